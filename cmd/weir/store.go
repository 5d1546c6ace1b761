package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

func newStore(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Make and examine the store itself",
		Long: `Make and examine the store itself. A store is named by a URL, in --store or in
store: of the policy:

  memory:                       until the process ends
  bolt:FILE                     a file, of one process at a time; sync=interval, sync=always
  redis://USER:PASSWORD@HOST:PORT/DB
                                one server; resend=true, one_by_one=true
  redis://SENTINEL              behind Sentinels: master_set=NAME, addr=HOST:PORT of others
  redis+cluster://HOST          a cluster: addr=HOST:PORT of other nodes
  rediss://, rediss+cluster://  with TLS: ca=FILE, cert=FILE, key=FILE
  dynamodb:TABLE                region=R, endpoint=URL, create=true

All take prefix=P, for several programs on one store, and max_ttl=24h, the longest
period that the store may be asked to keep: 'redis://HOST?prefix=P&max_ttl=24h'.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStoreCreate(c), newStoreCheck(c), newStoreCompact(c), newStoreLs(c))
	return cmd
}

// storeToManage is the store that a command about stores is for: of --store, or
// of the policy, if there is one.
func (c *common) storeToManage(cmd *cobra.Command) (storeURL, error) {
	text := c.store
	if text == "" {
		if _, err := os.Stat(c.config); errors.Is(err, fs.ErrNotExist) {
			return storeURL{}, usage(cmd.CommandPath()+" --store dynamodb:little-stage", "no store is named, and there is no policy file %s that does", c.config)
		}
		p, err := c.loadPolicy(c.config)
		if err != nil {
			return storeURL{}, err
		}
		text, _ = c.storeOf(p)
	}
	return parseStore(text)
}

// storeReport is the JSON of create and check.
type storeReport struct {
	SchemaVersion int      `json:"schema_version"`
	Store         string   `json:"store"`
	OK            bool     `json:"ok"`
	Warnings      []string `json:"warnings"`

	File *fileReport `json:"file,omitempty"` // of bolt:
}

type fileReport struct {
	Bytes     int64     `json:"bytes"`
	FreeBytes int64     `json:"free_bytes"` // that compact gives back
	Items     int       `json:"items"`
	Idle      int       `json:"idle"` // of the items: those that mean nothing any more
	Records   int       `json:"records"`
	WrittenAt time.Time `json:"written_at"`
	Damage    []string  `json:"damage"`
}

func newStoreCreate(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "create",
		Short: "Make the store's table or file",
		Long: `Make the table of a DynamoDB store: string key pk, on demand, time to live on
expiresAt; or the file of a bolt: store. What is there already is left as it is.
Other stores need no creation.
` + fmt.Sprintf(exitHelp, "is not used"),
		Example:     "  weir store create --store 'dynamodb:little-stage?region=eu-central-1'",
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := c.storeToManage(cmd)
			if err != nil {
				return err
			}
			rep := storeReport{SchemaVersion: 1, Store: u.String(), OK: true, Warnings: []string{}}
			switch u.scheme {
			case "dynamodb":
				s, err := openDynamo(cmd.Context(), u, storeOptions{log: c.logger(c.stderr)})
				if err != nil {
					return err
				}
				err = patiently(cmd.Context(), u, func(ctx context.Context) (err error) {
					if err = s.Create(ctx); err == nil {
						rep.Warnings, err = s.Check(ctx)
					}
					return err
				})
				if err != nil {
					return err
				}
				c.say("weir: table %s is ready", u.name)
			case "bolt":
				s, err := openBolt(&u, storeOptions{})
				if err == nil {
					rep.Warnings, err = s.Warnings(), s.Close()
				}
				if err != nil {
					return err
				}
				c.say("weir: file %s is ready", u.name)
			default:
				c.say("weir: %s needs no creation", u.String())
			}
			for _, w := range rep.Warnings {
				c.say("weir: warning: %s", w)
			}
			rep.Warnings = append([]string{}, rep.Warnings...) // [] and not null
			return c.report(rep)
		},
	}
}

// report writes a document, if JSON is asked for.
func (c *common) report(doc any) error {
	if c.format != "json" {
		return nil
	}
	return writeJSON(c.stdout, doc)
}

func newStoreCheck(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Look whether the store can keep limits, and whether a file is whole",
		Long: `Look whether a store can keep limits. Of DynamoDB: the table's key, its time to
live, its replication. Of Redis: a trial of all that deciding needs, and the
eviction policy of every node; what could not be looked at is a warning too. Of a bolt: file, which no process may hold: every
page and every item, and what can still be read of a damaged one.
` + fmt.Sprintf(exitHelp, "the file is damaged, or the store cannot keep limits well"),
		Example: `  weir store check --store bolt:weir.db
  weir store check --store 'dynamodb:little-stage?region=eu-central-1'`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := c.storeToManage(cmd)
			if err != nil {
				return err
			}
			switch u.scheme {
			case "memory":
				c.say("weir: memory: has nothing to examine")
				return c.report(storeReport{SchemaVersion: 1, Store: u.String(), OK: true, Warnings: []string{}})
			case "bolt":
				return checkFile(c, &u)
			}
			return checkServer(cmd.Context(), c, u)
		},
	}
}

func checkServer(ctx context.Context, c *common, u storeURL) error {
	s, err := openStore(ctx, u.text, storeOptions{existing: true, log: c.logger(c.stderr)})
	if err != nil {
		return err
	}
	rep := storeReport{SchemaVersion: 1, Store: u.String(), OK: len(s.warnings) == 0, Warnings: append([]string{}, s.warnings...)}
	if err := errors.Join(s.Close(), c.report(rep)); err != nil {
		return err
	}
	if c.format == "text" {
		for _, w := range rep.Warnings {
			fmt.Fprintln(c.stdout, "warning: "+w)
		}
	}
	if !rep.OK {
		return errNo{errors.New("the store has faults"), true}
	}
	what := "store"
	if u.scheme == "dynamodb" {
		what = "table"
	}
	c.say("weir: %s %s is in order", what, u.name)
	return nil
}

func checkFile(c *common, u *storeURL) error {
	if err := boltExists(u); err != nil {
		return err
	}
	r, err := boltstore.Check(u.name)
	if err != nil {
		return boltHint(u, err)
	}
	f := &fileReport{Bytes: r.Bytes, FreeBytes: r.Free, Items: r.Items, Idle: r.Idle, Records: r.Records, WrittenAt: r.Seen.UTC(), Damage: append([]string{}, r.Damage...)}
	if err := c.report(storeReport{SchemaVersion: 1, Store: u.String(), OK: len(r.Damage)+len(r.Warnings) == 0, Warnings: append([]string{}, r.Warnings...), File: f}); err != nil {
		return err
	}
	if c.format == "text" {
		for _, d := range r.Damage {
			fmt.Fprintf(c.stdout, "damage: %s %s\n", u.name, d)
		}
		for _, w := range r.Warnings {
			fmt.Fprintf(c.stdout, "warning: %s %s\n", u.name, w)
		}
		fmt.Fprintf(c.stdout, "%s: %d bytes, %d of them free; %s, %d of them idle; %s\n", u.name, r.Bytes, r.Free, plural(r.Items, "item"), r.Idle, plural(r.Records, "record"))
	}
	if len(r.Damage) > 0 {
		return errHint{errNo{fmt.Errorf("%s is damaged, and no store is opened on it: callers would start over with full limits. Bring back a copy of the file; or set it aside, and accept that they do", u.name), false},
			"mv " + shellWord(u.name) + " " + shellWord(u.name+".damaged")}
	}
	if len(r.Warnings) > 0 {
		return errHint{errNo{fmt.Errorf("%s opens, but some of what was counted last may be missing. Bring back a copy of the file; or go on with it, which makes it whole", u.name), false},
			"weir store compact --store " + shellWord("bolt:"+u.name)}
	}
	c.say("weir: file %s is in order", u.name)
	return nil
}

func newStoreCompact(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "compact",
		Short: "Write a bolt: file anew, without what it does not need",
		Long: `Write the file of a bolt: store anew, without the space of what was removed and
without the items that mean nothing any more. The old file stays until the new one
is complete. No other process may hold it.
` + fmt.Sprintf(exitHelp, "is not used"),
		Example:     "  weir store compact --store bolt:weir.db",
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := c.storeToManage(cmd)
			if err != nil {
				return err
			}
			if u.scheme != "bolt" {
				return usage("weir store compact --store bolt:weir.db", "only a bolt: file can be compacted, and the store is %s", u.String())
			}
			if err := boltExists(&u); err != nil {
				return err
			}
			before, after, err := boltstore.Compact(u.name)
			if err != nil {
				return boltHint(&u, err)
			}
			if c.format == "text" {
				_, err := fmt.Fprintf(c.stdout, "%s: %d bytes before, %d after\n", u.name, before, after)
				return err
			}
			return c.report(struct {
				SchemaVersion int    `json:"schema_version"`
				Store         string `json:"store"`
				Before        int64  `json:"bytes_before"`
				After         int64  `json:"bytes_after"`
			}{1, u.String(), before, after})
		},
	}
}

func newStoreLs(c *common) *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the keys of the items in the store",
		Long: `List the keys of the items in the store, one a line, in no particular order: all,
or those that begin with PREFIX. It reads the whole store in pages, which a
DynamoDB table charges for. Redis may give a key twice while it grows.
` + fmt.Sprintf(exitHelp, "is not used"),
		Example: `  weir store ls --store bolt:weir.db
  weir store ls account# -n 20 --store redis://localhost:6379`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 {
				return usage("weir store ls -n 20", "-n %d: a listing has 0 keys, which means all, or more", most)
			}
			u, err := c.storeToManage(cmd)
			if err != nil {
				return err
			}
			s, lister, err := openLister(cmd.Context(), cmd.CommandPath(), u)
			if err != nil {
				return err
			}
			err = list(cmd.Context(), c, lister, strings.Join(args, ""), most, u.String())
			return errors.Join(err, s.Close())
		},
	}
	cmd.Flags().IntVarP(&most, "count", "n", 0, "`N` keys at most; 0: all")
	return cmd
}

// openLister opens a store that is to be looked into by what was typed.
func openLister(ctx context.Context, typed string, u storeURL) (*opened, weir.Lister, error) {
	if u.scheme == "memory" {
		return nil, nil, usage(typed+" --help",
			"memory: is seen by nobody but the process that counts there; a proxy answers its callers at /.weir/usage")
	}
	s, err := openStore(ctx, u.text, storeOptions{existing: true, looks: true})
	if err != nil {
		return nil, nil, err
	}
	lister, ok := s.Store.(weir.Lister)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("%s cannot list its items", u.String()), s.Close())
	}
	return s, lister, nil
}

// pageKeys is how many keys are asked for at a time.
const pageKeys = 1000

// eachPage hands on all keys with a prefix, page by page, until do says that
// it has enough.
func eachPage(ctx context.Context, l weir.Lister, prefix string, do func([]weir.Key) (more bool, err error)) error {
	for cursor := ""; ; {
		keys, next, err := l.ListKeys(ctx, prefix, cursor, pageKeys)
		if err != nil {
			return err
		}
		more, err := do(keys)
		if err != nil || !more || next == "" {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		cursor = next
	}
}

func list(ctx context.Context, c *common, l weir.Lister, prefix string, most int, store string) error {
	w := bufio.NewWriter(c.stdout)
	asJSON := c.format == "json"
	if asJSON {
		fmt.Fprintf(w, "{\n  \"schema_version\": 1,\n  \"store\": %s,\n  \"keys\": [", quoted(store))
	}
	listed := 0
	err := eachPage(ctx, l, prefix, func(keys []weir.Key) (bool, error) {
		for _, k := range keys {
			if most > 0 && listed == most {
				return false, nil
			}
			switch {
			case !asJSON:
				fmt.Fprintln(w, k)
			case listed > 0:
				fmt.Fprintf(w, ",\n    %s", quoted(k.String()))
			default:
				fmt.Fprintf(w, "\n    %s", quoted(k.String()))
			}
			listed++
		}
		return true, w.Flush()
	})
	if err != nil {
		return err
	}
	if asJSON {
		fmt.Fprint(w, "\n  ]\n}\n")
	}
	c.say("weir: %s", plural(listed, "key"))
	return w.Flush()
}

// quoted is a text in JSON.
func quoted(text string) []byte {
	b, _ := json.Marshal(text) // a string can always be written
	return b
}
