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
		return errHint{errNo{fmt.Errorf("nothing is said of %s on %s", s, k.store), false}, "weir accounts list"}
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
	SchemaVersion int          `json:"schema_version"`
	Accounts      []aboutLine  `json:"accounts"`
	Unreadable    []unreadable `json:"unreadable"`
}

func accountsList(ctx context.Context, c *common, k *counters, prefix string) error {
	rep := listReport{SchemaVersion: 1, Accounts: []aboutLine{}}
	for _, p := range k.index.Patterns() {
		if r := k.index.Wildcards[p]; strings.HasPrefix(string(p), prefix) {
			rep.Accounts = append(rep.Accounts, aboutLine{string(p), &r})
		}
	}
	wildcards := len(rep.Accounts)
	e := k.editor(false)
	var mu sync.Mutex
	var err error
	rep.Unreadable, err = k.eachCaller(ctx, prefix, func(key weir.Key) error {
		r, err := e.Read(ctx, key)
		if err == nil && !r.Empty() {
			mu.Lock()
			rep.Accounts = append(rep.Accounts, aboutLine{key.String(), r})
			mu.Unlock()
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(rep.Accounts[wildcards:], func(a, b aboutLine) int { return strings.Compare(a.Caller, b.Caller) })
	rep.Accounts = slices.CompactFunc(rep.Accounts, func(a, b aboutLine) bool { return a.Caller == b.Caller })
	if len(rep.Accounts) == 0 && len(rep.Unreadable) == 0 {
		return errHint{errNo{fmt.Errorf("nothing is said of anybody on %s", k.store), false}, "weir accounts set customer-42 --help"}
	}
	if c.format == "json" {
		return errors.Join(writeJSON(c.stdout, rep), unread(k, "record", rep.Unreadable))
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "caller\tplans\tbilling anchor\tlimits\tbanned")
	for _, line := range rep.Accounts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", line.Caller, plansOf(line.Record), anchorOf(line.Record), overridesOf(line.Record), bannedOf(line.Record))
	}
	c.say("weir: %s on %s", plural(len(rep.Accounts), "caller"), k.store)
	return errors.Join(t.Flush(), unread(k, "record", rep.Unreadable))
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
