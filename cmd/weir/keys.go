package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/policy"
)

func newKeys(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "See and reset what callers have used; limits of their own, bans",
		Long: `See and reset what callers have used, and say what holds for one of them. A caller is named by the key of its item, as
in account#customer-42, ip#192.0.2.44, ip#2001:db8:: for an IPv6 network of 64
bits, or account#customer-42|event#12; weir store ls lists them. The limits are
those of the policy file.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysGet(c), newKeysTop(c), newKeysReset(c), newKeysOverride(c), newKeysBan(c), newKeysErase(c))
	return cmd
}

const noPlan = `
A store does not know callers' plans: without --plan, the limits of every plan that
differ are shown.
`

func newKeysGet(c *common) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:   "get CALLER",
		Short: "Show what one caller has used of every limit",
		Long: `Show what one caller has used, of every limit of the policy that counts on its key.
` + noPlan + fmt.Sprintf(exitHelp, "the caller has used nothing, or no limit counts on its key"),
		Example: `  weir keys get 'account#customer-42'
  weir keys get 'ip#192.0.2.44' --json --store redis://localhost:6379`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        callerArgs(1, "weir keys get 'account#customer-42'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCounters(cmd, c, plan, func(k *counters) error { return keysGet(cmd.Context(), c, k, args[0]) })
		},
	}
	planFlag(cmd, &plan)
	return cmd
}

func newKeysTop(c *common) *cobra.Command {
	var plan string
	var most int
	cmd := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Show who is over a limit, or nearest to one",
		Long: `Show the callers that have used the largest share of a limit, those over it first:
all callers, or those whose keys begin with PREFIX. It reads the whole store in
pages, which DynamoDB charges for.

A store does not know callers' plans: without --plan, what was used is held against
the lowest plan that has room for it.
` + fmt.Sprintf(exitHelp, "nobody has used anything"),
		Example: `  weir keys top
  weir keys top account# -n 20 --plan free`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 1 {
				return usage("weir keys top -n 10", "-n %d: at least one line is shown", most)
			}
			return withCounters(cmd, c, plan, func(k *counters) error {
				return keysTop(cmd.Context(), c, k, strings.Join(args, ""), most)
			})
		},
	}
	planFlag(cmd, &plan)
	cmd.Flags().IntVarP(&most, "count", "n", 10, "how many lines")
	return cmd
}

func newKeysReset(c *common) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "reset CALLER [NAME]",
		Short: "Let one caller start over with full limits",
		Long: `Forget what one caller has used, of every limit of the policy or of the limit NAME,
and show what it was. Processes that refused the caller within the last second may
refuse it until that second is over.
` + fmt.Sprintf(exitHelp, "there was nothing to forget"),
		Example: `  weir keys reset 'account#customer-42' --dry-run
  weir keys reset 'account#customer-42' orders`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        callerArgs(2, "weir keys reset 'account#customer-42'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCounters(cmd, c, "", func(k *counters) error {
				return keysReset(cmd.Context(), c, k, args[0], args[1:], dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be forgotten, and forget nothing")
	return cmd
}

func planFlag(cmd *cobra.Command, plan *string) {
	cmd.Flags().StringVar(plan, "plan", "", "hold what was used against the limits of plan `NAME`")
}

// atMost refuses more arguments than a command takes.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usage(retyped(cmd, args[:n], ""), "%s takes at most %s, but got %s", cmd.CommandPath(), plural(n, "argument"), strings.Join(args, " "))
		}
		return nil
	}
}

// callerArgs wants a CALLER first.
func callerArgs(most int, try string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(try, "%s: no caller is named", cmd.CommandPath())
		}
		if _, ok := weir.ParseKey(args[0]); ok {
			return atMost(most)(cmd, args)
		}
		if near, ok := weir.ParseKey(nearKey(args[0])); ok {
			try = retyped(cmd, append([]string{near.String()}, args[1:min(most, len(args))]...), "")
		}
		if len(args[0]) > weir.MaxKey {
			return usage(try, "a key of %d bytes; a caller's has %d at most", len(args[0]), weir.MaxKey)
		}
		return usage(try, "%q is not the key of a caller; keys are KIND#ID, and bytes other than letters, digits and -_.@: are written %%XX", args[0])
	}
}

// nearKey is the text of the key that somebody meant who did not escape it: parts begin
// with a KIND# and those that are right stay. An id alone is an account's.
func nearKey(text string) string {
	var parts []string
	for part := range strings.SplitSeq(text, "|") {
		if last := len(parts) - 1; last < 0 || strings.Contains(part, "#") {
			parts = append(parts, part)
		} else {
			parts[last] += "|" + part
		}
	}
	for i, part := range parts {
		kind, id, both := strings.Cut(part, "#")
		if !both {
			kind, id = "account", part
		}
		if _, ok := weir.ParseKey(part); !ok {
			parts[i] = weir.NewKey(kind, id).String()
		}
	}
	return strings.Join(parts, "|")
}

// withCounters opens what the keys commands look at.
func withCounters(cmd *cobra.Command, c *common, plan string, do func(*counters) error) error {
	return withRecords(cmd, c, plan, func(k *counters) error {
		if err := k.readIndex(cmd.Context()); err != nil {
			return err
		}
		return do(k)
	})
}

// withRecords is withCounters for who needs nothing of what is said of callers.
func withRecords(cmd *cobra.Command, c *common, plan string, do func(*counters) error) error {
	typed := cmd.CommandPath()
	for _, a := range cmd.Flags().Args() {
		typed += " " + shellWord(a)
	}
	if _, err := os.Stat(c.config); errors.Is(err, fs.ErrNotExist) {
		return usage("weir init -c "+shellWord(c.config), "there is no policy file %s, which says what the limits are", c.config)
	}
	p, err := c.loadPolicy(c.config)
	if err != nil {
		return err
	}
	if err := knownPlan(p, plan, typed); err != nil {
		return err
	}
	text, _ := c.storeOf(p)
	u, err := parseStore(text)
	if err != nil {
		return err
	}
	s, lister, err := openLister(cmd.Context(), typed, u)
	if err != nil {
		return err
	}
	for _, w := range s.warnings {
		c.say("weir: warning: %s", w)
	}
	k := &counters{policy: p, file: c.config, plan: plan, store: u.String(), lister: lister,
		limiter: weir.NewLimiter(s.Store, weir.Options{Limits: p.Limits(), Deadline: patience})}
	k.items = s.Store
	k.records, _ = s.Store.(weir.Records)
	err = k.limiter.Check(p.Limits()...)
	if err != nil {
		err = errUsage{err}
	} else {
		err = do(k)
	}
	return errors.Join(err, s.Close())
}

// readIndex learns what is said of many callers at once.
func (k *counters) readIndex(ctx context.Context) (err error) {
	if k.records == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k.index, err = (account.Editor{Records: k.records}).ReadIndex(within)
	return err
}

func knownPlan(p *policy.Policy, plan, command string) error {
	if plan == "" {
		return nil
	}
	var known []string
	for _, r := range p.Rules() {
		if r.Plan != "" && !slices.Contains(known, r.Plan) {
			known = append(known, r.Plan)
		}
	}
	switch {
	case slices.Contains(known, plan):
		return nil
	case len(known) == 0:
		return usage(command, "the policy has no plans, but --plan names %q", plan)
	}
	return usage(command+" --plan "+known[0], "no limit is of plan %q; there are %s", plan, strings.Join(known, ", "))
}

// keysReport is the JSON of the keys commands.
type keysReport struct {
	SchemaVersion int        `json:"schema_version"`
	Caller        string     `json:"caller,omitempty"`  // of get and reset
	Callers       *int       `json:"callers,omitempty"` // that top looked at
	DryRun        bool       `json:"dry_run,omitempty"`
	Limits        []keyUsage `json:"limits"`

	Unreadable []unreadable `json:"unreadable,omitempty"` // callers that top passed over
}

func keysGet(ctx context.Context, c *common, k *counters, caller string) error {
	key, _ := weir.ParseKey(caller) // its arguments were checked
	rows, err := k.look(ctx, key)
	if err != nil {
		return named(key, err)
	}
	if len(rows) == 0 {
		return k.noLimit(key)
	}
	if !slices.ContainsFunc(rows, keyUsage.inUse) {
		return k.nothing(key, rows)
	}
	if c.format == "json" {
		return writeJSON(c.stdout, keysReport{SchemaVersion: 1, Caller: caller, Limits: rows})
	}
	return writeRows(c.stdout, rows, false)
}

// noLimit says that a key is none that the policy counts on.
func (k *counters) noLimit(key weir.Key) error {
	var by []string
	for _, r := range k.policy.Rules() {
		if (r.Layer != policy.Edge || k.policy.EdgeShared()) && !slices.Contains(by, r.By) {
			by = append(by, r.By)
		}
	}
	if k.plan != "" {
		return errHint{errNo{fmt.Errorf("no limit of plan %s in %s counts on %s", k.plan, k.file, key), false}, "weir keys get '" + key.String() + "'"}
	}
	return errHint{errNo{fmt.Errorf("no limit of %s counts on %s; its limits are by %s", k.file, key, strings.Join(by, "; ")), false}, "weir store ls"}
}

// nothing says that a key has used nothing of some limits, though of others.
func (k *counters) nothing(key weir.Key, rows []keyUsage, others ...keyUsage) error {
	names := func(rows []keyUsage) string {
		var names []string
		for _, r := range rows {
			if !slices.Contains(names, r.Name) {
				names = append(names, r.Name)
			}
		}
		return strings.Join(names, ", ")
	}
	if len(others) > 0 {
		return errHint{errNo{fmt.Errorf("%s has used nothing of %s on %s, but some of %s", key, names(rows), k.store, names(others)), false}, "weir keys get '" + key.String() + "'"}
	}
	kind, _, _ := strings.Cut(key.String(), "#")
	return errHint{errNo{fmt.Errorf("%s has used nothing of %s on %s", key, names(rows), k.store), false}, "weir store ls '" + kind + "#'"}
}

func keysTop(ctx context.Context, c *common, k *counters, prefix string, most int) error {
	rows, seen, bad, err := k.top(ctx, prefix, most)
	if err != nil {
		return err
	}
	if c.format == "json" {
		err = writeJSON(c.stdout, keysReport{SchemaVersion: 1, Callers: &seen, Limits: rows, Unreadable: bad})
	} else if len(rows) > 0 {
		err = writeRows(c.stdout, rows, true)
	}
	if err != nil {
		return err
	}
	if len(rows) == 0 && len(bad) == 0 {
		return errHint{errNo{fmt.Errorf("nobody has used anything of the limits of %s on %s: %s", k.file, k.store, plural(seen, "caller")), false}, "weir store ls"}
	}
	c.say("weir: %s on %s", plural(seen, "caller"), k.store)
	return unread(k, "caller", bad)
}

func keysReset(ctx context.Context, c *common, k *counters, caller string, name []string, dryRun bool) error {
	key, _ := weir.ParseKey(caller) // its arguments were checked
	rows, err := k.look(ctx, key)
	var spoiled *weir.SpoiledError
	if errors.As(err, &spoiled) {
		return resetSpoiled(ctx, c, k, key, name, dryRun, err)
	}
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return k.noLimit(key)
	}
	var others []keyUsage // that are in use, beside the one that is named
	if len(name) == 1 {
		all := rows
		others = slices.DeleteFunc(slices.Clone(rows), func(r keyUsage) bool { return !r.inUse() || r.Name == name[0] })
		rows = slices.DeleteFunc(slices.Clone(rows), func(r keyUsage) bool { return r.Name != name[0] })
		if len(rows) == 0 {
			return errHint{errNo{fmt.Errorf("%s has no limit %s in %s", caller, name[0], k.file), false}, "weir keys reset '" + caller + "' " + all[0].Name}
		}
	}
	used := slices.DeleteFunc(slices.Clone(rows), func(r keyUsage) bool { return !r.inUse() })
	if len(used) == 0 {
		return k.nothing(key, rows, others...)
	}
	if !dryRun {
		var limits []weir.Limit
		for _, r := range rows {
			limits = append(limits, r.limit)
		}
		if err := k.limiter.Reset(ctx, key, limits...); err != nil {
			return notReset(caller, err)
		}
	}
	if c.format == "json" {
		return writeJSON(c.stdout, keysReport{SchemaVersion: 1, Caller: caller, DryRun: dryRun, Limits: used})
	}
	if err := writeRows(c.stdout, used, false); err != nil {
		return err
	}
	if dryRun {
		c.say("weir: nothing was changed; without --dry-run, %s starts over with these", caller)
	} else {
		c.say("weir: %s starts over with these", caller)
	}
	return nil
}
