package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
)

// aboutReport is the JSON of accounts get.
type aboutReport struct {
	SchemaVersion int             `json:"schema_version"`
	Caller        string          `json:"caller"`
	Record        *account.Record `json:"record"`    // null when there is none
	Wildcards     []aboutLine     `json:"wildcards"` // those that name the caller, the longest first
}

// aboutLine is one caller, or wildcard, of a list.
type aboutLine struct {
	Caller string          `json:"caller"`
	Record *account.Record `json:"record"`
}

func accountsGet(ctx context.Context, c *common, k *counters, s subject) error {
	rep := aboutReport{SchemaVersion: 1, Caller: s.String(), Wildcards: []aboutLine{}}
	if s.pattern != "" {
		if r, ok := k.index.Wildcards[s.pattern]; ok {
			rep.Record = &r
		}
	} else {
		r, err := k.editor(false).Read(ctx, s.caller)
		if err != nil {
			return err
		}
		if !r.Empty() || len(r.History) > 0 {
			rep.Record = r
		}
		for _, p := range k.index.Patterns() {
			if p.Holds(s.caller) {
				r := k.index.Wildcards[p]
				rep.Wildcards = append(rep.Wildcards, aboutLine{string(p), &r})
			}
		}
		slices.SortFunc(rep.Wildcards, func(a, b aboutLine) int { return len(b.Caller) - len(a.Caller) })
	}
	if rep.Record == nil && len(rep.Wildcards) == 0 {
		return errHint{errNo{fmt.Errorf("nothing is said of %s on %s", s, k.store), false}, "weir accounts list" + k.again}
	}
	if c.format == "json" {
		return writeJSON(c.stdout, rep)
	}
	if rep.Record != nil {
		if err := writeRecord(c.stdout, s.String(), rep.Record); err != nil {
			return err
		}
	}
	for _, w := range rep.Wildcards {
		if err := writeRecord(c.stdout, w.Caller, w.Record); err != nil {
			return err
		}
	}
	return nil
}

// writeRecord shows what is said of a caller.
func writeRecord(w io.Writer, caller string, r *account.Record) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, caller)
	if r.Ban != nil {
		fmt.Fprintf(b, "  banned%s\n", until(&r.Ban.Terms))
	}
	for i := range r.Plans {
		fmt.Fprintf(b, "  plan %s%s\n", r.Plans[i].Plan, until(&r.Plans[i].Terms))
	}
	for _, plan := range slices.Sorted(maps.Keys(r.Pins)) {
		fmt.Fprintf(b, "  keeps %s@%d\n", plan, r.Pins[plan])
	}
	if !r.BillingAnchor.IsZero() {
		fmt.Fprintf(b, "  billing anchor %s\n", r.BillingAnchor.UTC().Format(time.RFC3339))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Overrides)) {
		o := r.Overrides[name]
		fmt.Fprintf(b, "  limit %s = %s%s\n", name, o.Limit, until(&o.Terms))
	}
	if r.Empty() {
		fmt.Fprintln(b, "  nothing")
	}
	for _, h := range r.History {
		fmt.Fprintf(b, "  %s %s: %s", h.At.UTC().Format(time.RFC3339), h.By, h.What)
		if h.Reason != "" {
			fmt.Fprintf(b, " (%s)", h.Reason)
		}
		fmt.Fprintln(b)
	}
	return b.Flush()
}

// listReport is the JSON of accounts list.
type listReport struct {
	SchemaVersion int         `json:"schema_version"`
	Accounts      []aboutLine `json:"accounts"`
}

func accountsList(ctx context.Context, c *common, k *counters, prefix string) error {
	rep := listReport{SchemaVersion: 1, Accounts: []aboutLine{}}
	for _, p := range k.index.Patterns() {
		if r := k.index.Wildcards[p]; strings.HasPrefix(string(p), prefix) {
			rep.Accounts = append(rep.Accounts, aboutLine{string(p), &r})
		}
	}
	wildcards := len(rep.Accounts)
	err := k.eachRecord(ctx, prefix, func(key weir.Key, r *account.Record) error {
		if !r.Empty() {
			rep.Accounts = append(rep.Accounts, aboutLine{key.String(), r})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(rep.Accounts[wildcards:], func(a, b aboutLine) int { return strings.Compare(a.Caller, b.Caller) })
	rep.Accounts = slices.CompactFunc(rep.Accounts, func(a, b aboutLine) bool { return a.Caller == b.Caller })
	if len(rep.Accounts) == 0 {
		return errHint{errNo{fmt.Errorf("nothing is said of anybody on %s", k.store), false}, "weir accounts set customer-42 --help"}
	}
	if c.format == "json" {
		return writeJSON(c.stdout, rep)
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "caller\tplans\tbilling anchor\tlimits\tbanned")
	for _, line := range rep.Accounts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", line.Caller, plansOf(line.Record), anchorOf(line.Record), overridesOf(line.Record), bannedOf(line.Record))
	}
	c.say("weir: %s on %s", plural(len(rep.Accounts), "caller"), k.store)
	return t.Flush()
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

func plansOf(r *account.Record) string {
	var list []string
	for _, g := range r.Plans {
		list = append(list, g.Plan)
	}
	for _, plan := range slices.Sorted(maps.Keys(r.Pins)) {
		list = append(list, fmt.Sprintf("keeps %s@%d", plan, r.Pins[plan]))
	}
	return orNone(list)
}

func anchorOf(r *account.Record) string {
	if r.BillingAnchor.IsZero() {
		return "-"
	}
	return r.BillingAnchor.UTC().Format(time.RFC3339)
}

func overridesOf(r *account.Record) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.Overrides)) {
		list = append(list, name+" = "+r.Overrides[name].Limit)
	}
	return orNone(list)
}

func bannedOf(r *account.Record) string {
	if r.Ban == nil {
		return "-"
	}
	if r.Ban.Expires.IsZero() {
		return "yes"
	}
	return "until " + r.Ban.Expires.UTC().Format(time.RFC3339)
}

// eachRecord hands on every record of single callers, many read at a time and one
// handed on at a time.
func (k *counters) eachRecord(ctx context.Context, prefix string, do func(weir.Key, *account.Record) error) error {
	if k.records == nil {
		return fmt.Errorf("%s keeps no records of callers", k.store)
	}
	e := k.editor(false)
	return e.Each(ctx, prefix, func(keys []weir.Key) error {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var failed error
		todo := make(chan weir.Key)
		for range min(atATime, len(keys)) {
			wg.Go(func() {
				for key := range todo {
					r, err := e.Read(ctx, key)
					mu.Lock()
					if err == nil && failed == nil {
						err = do(key, r)
					}
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			})
		}
		for _, key := range keys {
			mu.Lock()
			stop := failed != nil
			mu.Unlock()
			if stop {
				break
			}
			todo <- key
		}
		close(todo)
		wg.Wait()
		return failed
	})
}

// migration is what accounts migrate does.
type migration struct {
	plan     string
	from, to int
	terms    account.Terms
	dryRun   bool
}

// migrateReport is the JSON of accounts migrate.
type migrateReport struct {
	SchemaVersion int      `json:"schema_version"`
	From          string   `json:"from"`
	To            string   `json:"to"`
	DryRun        bool     `json:"dry_run"`
	Accounts      []string `json:"accounts"`
}

func accountsMigrate(ctx context.Context, c *common, k *counters, m *migration) error {
	versions := k.policy.VersionsOf(m.plan)
	if !slices.Contains(versions, m.to) {
		if versions == nil {
			return usage("weir check"+k.again, "%s has no versions of a plan %s", k.file, m.plan)
		}
		return usage(fmt.Sprintf("weir accounts migrate --from %s@%d --to %s@%d --dry-run", m.plan, m.from, m.plan, versions[len(versions)-1]),
			"%s has no version %s@%d; it has %v", k.file, m.plan, m.to, versions)
	}
	from, to := fmt.Sprintf("%s@%d", m.plan, m.from), fmt.Sprintf("%s@%d", m.plan, m.to)
	rep := migrateReport{SchemaVersion: 1, From: from, To: to, DryRun: m.dryRun, Accounts: []string{}}
	a := audited{command: "accounts migrate", what: "from " + from + " to " + to, terms: m.terms, dryRun: m.dryRun}
	err := k.eachRecord(ctx, "", func(key weir.Key, r *account.Record) error {
		if r.Pins[m.plan] != m.from {
			return nil
		}
		moved := false
		_, _, err := k.edit(ctx, subject{caller: key}, m.dryRun, func(r *account.Record) error {
			if moved = r.Pins[m.plan] == m.from; !moved {
				return nil // somebody moved it meanwhile
			}
			r.Pins[m.plan] = m.to
			a.note(r)
			return nil
		})
		if err == nil && moved && !slices.Contains(rep.Accounts, key.String()) {
			rep.Accounts = append(rep.Accounts, key.String())
			a.subject = key.String()
			c.audit(&a)
		}
		return err
	})
	slices.Sort(rep.Accounts)
	if err != nil {
		return errHint{fmt.Errorf("%s moved, others may be left: %w", plural(len(rep.Accounts), "account"), err),
			"weir accounts migrate --from " + from + " --to " + to + k.again}
	}
	if c.format == "json" {
		err = writeJSON(c.stdout, rep)
	} else {
		for _, id := range rep.Accounts {
			fmt.Fprintln(c.stdout, id)
		}
	}
	switch {
	case err != nil:
		return err
	case len(rep.Accounts) == 0:
		return errHint{errNo{fmt.Errorf("no account on %s keeps %s", k.store, from), false}, "weir accounts list" + k.again}
	case m.dryRun:
		c.say("weir: nothing was changed; without --dry-run, %s would keep %s", plural(len(rep.Accounts), "account"), to)
	default:
		c.say("weir: %s moved to %s; processes follow within %s", plural(len(rep.Accounts), "account"), to, k.policy.AccountsAge())
	}
	return nil
}
