package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
)

// unreadable is a record, or an item, that a command had to pass over.
type unreadable struct {
	Caller string `json:"caller"`
	Error  string `json:"error"`
	Fix    string `json:"fix"`

	try string // the command that mends it; "" where only another program does
}

func unreadableOf(key weir.Key, e *account.UnreadableError) unreadable {
	u := unreadable{Caller: key.String(), Error: e.Error()}
	if e.Newer > 0 {
		u.Fix = "run the command of the newer program that wrote it"
		return u
	}
	if errors.Is(e, weir.ErrNoRecord) {
		u.Fix = "remove it by the store's own means, and run this again"
		return u
	}
	u.try = "weir keys erase " + shellWord(u.Caller) + " --dry-run"
	u.Fix = u.try + " shows what forgetting the caller altogether would remove"
	return u
}

// unread is the error of a command that did its work but for some of what it
// looked at.
func unread(k *counters, what string, list []unreadable) error {
	if len(list) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s cannot be read, and all others were:", plural(len(list), what), k.store)
	try := ""
	for _, u := range list {
		fmt.Fprintf(&b, "\n  %s\n    %s", u.Error, u.Fix)
		if try == "" {
			try = u.try
		}
	}
	err := errors.New(b.String())
	if try == "" {
		return err
	}
	return errHint{err, try}
}

// eachCaller hands on the callers of whom there is a record and whose keys begin
// with a prefix, many at once; one may come twice. do is called by several
// goroutines. Whose record cannot be read is passed over and told; any other
// error ends it.
func (k *counters) eachCaller(ctx context.Context, prefix string, do func(weir.Key) error) ([]unreadable, error) {
	if k.records == nil {
		return nil, fmt.Errorf("%s keeps no records of callers", k.store)
	}
	var mu sync.Mutex
	bad := map[string]unreadable{}
	one := func(key weir.Key) error {
		err := do(key)
		var e *account.UnreadableError
		if errors.As(err, &e) {
			mu.Lock()
			bad[key.String()] = unreadableOf(key, e)
			mu.Unlock()
			return nil
		}
		return err
	}
	err := k.editor(false).Each(ctx, prefix, func(keys []weir.Key) error { return atOnce(keys, one) })
	list := slices.AppendSeq([]unreadable{}, maps.Values(bad))
	slices.SortFunc(list, func(a, b unreadable) int { return strings.Compare(a.Caller, b.Caller) })
	return list, err
}

// atOnce does something for every key, for [atATime] together. After a failure
// none is begun any more.
func atOnce(keys []weir.Key, do func(weir.Key) error) error {
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		next   int
		failed error
	)
	take := func() (key weir.Key, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next == len(keys) {
			return key, false
		}
		next++
		return keys[next-1], true
	}
	for range min(atATime, len(keys)) {
		wg.Go(func() {
			for key, ok := take(); ok; key, ok = take() {
				if err := do(key); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// migration is what accounts migrate does.
type migration struct {
	plan     string
	from, to int
	terms    account.Terms
	dryRun   bool
}

func (m *migration) old() string { return fmt.Sprintf("%s@%d", m.plan, m.from) }
func (m *migration) new() string { return fmt.Sprintf("%s@%d", m.plan, m.to) }

// again is the command that does the same once more; its other flags are as they
// were typed.
func (m *migration) again() string {
	return "weir accounts migrate --from " + m.old() + " --to " + m.new()
}

// migrateReport is the JSON of accounts migrate.
type migrateReport struct {
	SchemaVersion int          `json:"schema_version"`
	From          string       `json:"from"`
	To            string       `json:"to"`
	DryRun        bool         `json:"dry_run"`
	Accounts      []string     `json:"accounts"` // that were moved, or under dry_run would be
	Unreadable    []unreadable `json:"unreadable"`
}

func accountsMigrate(ctx context.Context, c *common, k *counters, m *migration) error {
	if err := k.hasVersions(m); err != nil {
		return err
	}
	rep := migrateReport{SchemaVersion: 1, From: m.old(), To: m.new(), DryRun: m.dryRun}
	moved := map[string]bool{}
	var mu sync.Mutex
	bad, lost := k.eachCaller(ctx, "", func(key weir.Key) error {
		a := audited{command: "accounts migrate", subject: key.String(), what: "from " + m.old() + " to " + m.new(), terms: m.terms, dryRun: m.dryRun}
		keeps := false
		_, _, err := k.edit(ctx, subject{caller: key}, m.dryRun, func(r *account.Record) error {
			if keeps = r.Pins[m.plan] == m.from; keeps {
				r.Pins[m.plan] = m.to
				a.note(r)
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && keeps && !moved[a.subject] {
			moved[a.subject] = true
			c.audit(&a)
		}
		return err
	})
	rep.Accounts, rep.Unreadable = slices.AppendSeq([]string{}, maps.Keys(moved)), bad
	slices.Sort(rep.Accounts)
	// What was moved is told whatever happened to the others.
	if err := writeMigrated(c, &rep); err != nil {
		return err
	}
	count := plural(len(rep.Accounts), "account")
	switch {
	case lost != nil && m.dryRun:
		return errHint{fmt.Errorf("%s would be moved, and others were not looked at: %w", count, lost), m.again()}
	case lost != nil:
		return errHint{fmt.Errorf("%s moved, others may be left: %w", count, lost), m.again()}
	case len(rep.Accounts) == 0 && len(bad) == 0:
		return errHint{errNo{fmt.Errorf("no account on %s keeps %s", k.store, m.old()), false}, "weir accounts list"}
	case m.dryRun:
		c.say("weir: nothing was changed; without --dry-run, %s would keep %s", count, m.new())
	default:
		c.say("weir: %s moved to %s; processes follow within %s", count, m.new(), k.policy.AccountsAge())
	}
	return unread(k, "record", bad)
}

func writeMigrated(c *common, rep *migrateReport) error {
	if c.format == "json" {
		return writeJSON(c.stdout, rep)
	}
	for _, id := range rep.Accounts {
		if _, err := fmt.Fprintln(c.stdout, id); err != nil {
			return err
		}
	}
	return nil
}

// hasVersions refuses to move accounts to a version that the policy does not have.
func (k *counters) hasVersions(m *migration) error {
	versions := k.policy.VersionsOf(m.plan)
	if slices.Contains(versions, m.to) {
		return nil
	}
	if versions == nil {
		return usage("weir check", "%s has no versions of a plan %s", k.file, m.plan)
	}
	others := slices.DeleteFunc(slices.Clone(versions), func(v int) bool { return v == m.from })
	if len(others) == 0 {
		return usage("weir accounts list", "%s has no version %s; its only one is %s, which there is nothing to move to from", k.file, m.new(), m.old())
	}
	known := migration{plan: m.plan, from: m.from, to: others[len(others)-1]}
	return usage(known.again()+" --dry-run", "%s has no version %s; it has %v", k.file, m.new(), versions)
}
