package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
)

func newKeysErase(c *common) *cobra.Command {
	var f termFlags
	cmd := &cobra.Command{
		Use:   "erase CALLER",
		Short: "Forget a caller altogether",
		Long: `Remove everything that the store holds of one caller: what it has used of every
limit, alone or with others, its record with plans, versions, overrides and ban, and
the history of both. It reads the whole store in pages, which DynamoDB charges for.
Whoever calls again begins as a stranger. Wildcards stay, and so does whatever log
lines hold.

A store that removes what is over in its own time shows the caller's key until then,
with nothing beside it: DynamoDB for up to two days after the time to live.
` + fmt.Sprintf(exitHelp, "there is nothing of the caller"),
		Example: `  weir keys erase 'account#customer-42' --dry-run
  weir keys erase 'account#customer-42' --reason 'request of 3 May'`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        oneCaller("weir keys erase 'account#customer-42'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if begin, star := strings.CutSuffix(args[0], "*"); star {
				try := "weir accounts list"
				if s, err := subjectOf(args[0], ofAnother(cmd), true); err == nil {
					try += " " + shellWord(strings.TrimSuffix(string(s.pattern), "*"))
				}
				return usage(try, "%s erases one caller at a time, and not all that begin with %s", cmd.CommandPath(), begin)
			}
			s, err := subjectOf(args[0], ofAnother(cmd), false)
			if err != nil {
				return err
			}
			terms, err := f.terms(cmd, time.Now())
			if err != nil {
				return err
			}
			return withCounters(cmd, c, "", func(k *counters) error {
				a := &audited{command: "keys erase", subject: s.String(), what: "erase", terms: terms, dryRun: f.dryRun}
				return keysErase(cmd.Context(), c, k, s.caller, a)
			})
		},
	}
	f.add(cmd, "")
	return cmd
}

// eraseReport is the JSON of keys erase.
type eraseReport struct {
	SchemaVersion int      `json:"schema_version"`
	Caller        string   `json:"caller"`
	DryRun        bool     `json:"dry_run"`
	Record        bool     `json:"record"` // there was one
	Items         []string `json:"items"`  // that held something
}

func keysErase(ctx context.Context, c *common, k *counters, caller weir.Key, a *audited) error {
	rep := eraseReport{SchemaVersion: 1, Caller: caller.String(), DryRun: a.dryRun, Items: []string{}}
	err := eachPage(ctx, k.lister, "", func(keys []weir.Key) (bool, error) {
		for _, key := range keys {
			if !slices.Contains(strings.Split(key.String(), "|"), caller.String()) || slices.Contains(rep.Items, key.String()) {
				continue
			}
			rep.Items = append(rep.Items, key.String())
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if rep.Items, err = k.holding(ctx, rep.Items); err != nil {
		return err
	}
	// The record first: who calls meanwhile begins as a stranger, and what he then
	// uses is erased with the rest.
	if k.records != nil {
		var none *account.UnreadableError
		if rep.Record, err = k.editor(a.dryRun).Forget(ctx, caller); errors.As(err, &none) {
			return fmt.Errorf("nothing of %s is erased: %w", caller, err)
		} else if err != nil {
			return fmt.Errorf("the record of %s may or may not be erased; run it again: %w", caller, err)
		}
	}
	for _, text := range rep.Items {
		key, _ := weir.ParseKey(text)
		if a.dryRun {
			break
		}
		if err := k.limiter.Reset(ctx, key); err != nil {
			return fmt.Errorf("%s is erased in part; run it again: %w", caller, err)
		}
	}
	slices.Sort(rep.Items)
	if len(rep.Items) == 0 && !rep.Record {
		return errHint{errNo{fmt.Errorf("%s holds nothing of %s", k.store, caller), false}, "weir store ls"}
	}
	c.audit(a)
	if c.format == "json" {
		return writeJSON(c.stdout, rep)
	}
	if rep.Record {
		fmt.Fprintln(c.stdout, "record\t"+caller.String())
	}
	for _, i := range rep.Items {
		if _, err := fmt.Fprintln(c.stdout, "item\t"+i); err != nil {
			return err
		}
	}
	if a.dryRun {
		c.say("weir: nothing was changed; without --dry-run, this is erased")
	} else {
		c.say("weir: erased; processes that know the record forget it within %s", k.policy.AccountsAge())
	}
	return nil
}

// holding are the items of which some limit holds anything. A store may list one
// that is empty and will go.
func (k *counters) holding(ctx context.Context, items []string) (out []string, err error) {
	out = []string{}
	for _, text := range items {
		key, _ := weir.ParseKey(text)
		var state weir.Cells
		_, _, err := k.items.Apply(ctx, key, nil, &state)
		var spoiled *weir.SpoiledError
		if err != nil && !errors.As(err, &spoiled) {
			return nil, err
		}
		if spoiled != nil || !state.Empty() {
			out = append(out, text)
		}
	}
	return out, nil
}
