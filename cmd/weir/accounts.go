package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/engine/account"
)

func newAccounts(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accounts",
		Short: "See and change what is said of single accounts",
		Long: `See and change what the store says of single accounts: plans that were granted, the
version of a plan that an account keeps, the day on which its billing periods begin,
limits of its own, and bans. An account is named by its id, customer-42; acme-* is
every account whose id begins with acme-. Other callers are named by their key, as in
partner#acme.

Limits of their own and bans are set by weir keys override and weir keys ban.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAccountsGet(c), newAccountsSet(c), newAccountsList(c), newAccountsMigrate(c))
	return cmd
}

func newAccountsGet(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show what is said of one account",
		Long: `Show what is said of one account, what wildcards say of it, and who changed it. weir
usage shows what it has used.
` + fmt.Sprintf(exitHelp, "nothing is said of the account"),
		Example: `  weir accounts get customer-42
  weir accounts get 'acme-*' --json`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        oneCaller("weir accounts get customer-42"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var f termFlags
			return withSubject(cmd, c, &f, args[0], true, func(k *counters, s subject, _ *audited) error {
				return accountsGet(cmd.Context(), c, k, s)
			})
		},
	}
}

// setFlags are what accounts set changes.
type setFlags struct {
	termFlags
	plans  []string
	anchor string
	clear  []string
}

// The words of accounts set --clear.
var clearable = []string{"plan", "version", "billing-anchor"}

func newAccountsSet(c *common) *cobra.Command {
	var f setFlags
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Grant plans to an account, or say when its billing periods begin",
		Long: `Grant plans to an account, or say when its first billing period began. A plan that is
granted counts beside those that the policy's from: tells of the caller; the highest
wins. --plan free@2 also lets the account keep that version. What was granted before
goes. Running processes follow within accounts.max_age of the policy, 5 seconds by
default.

A billing period begins on the day of month of its anchor, in UTC, at the anchor's
time of day; in a month that lacks the day, on the last. Another anchor begins a new
period, of which nothing is used yet.
` + fmt.Sprintf(exitHelp, "there is nothing to clear"),
		Example: `  weir accounts set customer-42 --plan advanced --expires 14d --reason trial
  weir accounts set customer-42 --billing-anchor 2026-01-31
  weir accounts set customer-42 --clear plan --dry-run`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        oneCaller("weir accounts set --help"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, word := range f.clear {
				if !slices.Contains(clearable, word) {
					return usage("--clear plan", "--clear %s: what can be cleared is %s", word, strings.Join(clearable, ", "))
				}
			}
			switch {
			case len(f.plans) == 0 && f.anchor == "" && len(f.clear) == 0:
				return usage("weir accounts set --help", "nothing is to be set: give --plan, --billing-anchor or --clear")
			case f.expires != "" && len(f.plans) == 0:
				return usage("weir accounts set --help", "--expires ends plans, and none is granted")
			}
			return withSubject(cmd, c, &f.termFlags, args[0], true, func(k *counters, s subject, a *audited) error {
				return accountsSet(cmd, c, k, s, &f, a)
			})
		},
	}
	f.add(cmd, "when the plans end")
	fl := cmd.Flags()
	fl.StringSliceVar(&f.plans, "plan", nil, "grant plan `NAME`, or version NAME@N of it; several are possible")
	fl.StringVar(&f.anchor, "billing-anchor", "", "when a first billing period began: 2026-01-31, or a time as in RFC 3339 (`WHEN`)")
	fl.StringSliceVar(&f.clear, "clear", nil, "forget `WHAT`: plan, version or billing-anchor")
	return cmd
}

func newAccountsList(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "list [BEGINNING]",
		Short: "List the callers of whom anything is said",
		Long: `List the callers of whom anything is said, wildcards first: all, or those whose keys
begin with BEGINNING. An account that keeps a version of a plan is among them. It
reads the whole store in pages, which DynamoDB charges for. A record that cannot be
read is named at the end, and ends it with 3.
` + fmt.Sprintf(exitHelp, "nothing is said of anybody"),
		Example: `  weir accounts list
  weir accounts list account#acme- --json`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCounters(cmd, c, "", func(k *counters) error {
				return accountsList(cmd.Context(), c, k, strings.Join(args, ""))
			})
		},
	}
}

func newAccountsMigrate(c *common) *cobra.Command {
	var f termFlags
	var from, to string
	cmd := &cobra.Command{
		Use:   "migrate --from PLAN@N --to PLAN@M",
		Short: "Move accounts from one version of a plan to another",
		Long: `Move every account that keeps version N of a plan to version M, and list them. What
was used stays used. Running processes follow within accounts.max_age of the policy, 5
seconds by default; calls go on meanwhile. When it ends early it can be run again: it
goes on with those that are left. A record that cannot be read is passed over and
named at the end, which is then 3. It reads the whole store in pages, which DynamoDB
charges for.
` + fmt.Sprintf(exitHelp, "no account keeps version N"),
		Example: `  weir accounts migrate --from free@1 --to free@2 --dry-run
  weir accounts migrate --from free@1 --to free@2 --reason 'terms of January'`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const try = "weir accounts migrate --from free@1 --to free@2 --dry-run"
			plan, old, ok := planVersion(from)
			next, version, also := planVersion(to)
			switch {
			case !ok || !also:
				return usage(try, "--from and --to each name a version of a plan, such as free@1")
			case plan != next:
				return usage(try, "--from %s and --to %s are of two plans: which plan an account has, its plan's source says; see weir accounts set --help", from, to)
			case old == version:
				return usage("weir accounts list", "--from and --to are the same: %s; the list says which versions accounts keep", from)
			}
			terms, err := f.terms(cmd, time.Now())
			if err != nil {
				return err
			}
			return withCounters(cmd, c, "", func(k *counters) error {
				return accountsMigrate(cmd.Context(), c, k, &migration{plan: plan, from: old, to: version, terms: terms, dryRun: f.dryRun})
			})
		},
	}
	f.add(cmd, "")
	cmd.Flags().StringVar(&from, "from", "", "the version that accounts keep now (`PLAN@N`)")
	cmd.Flags().StringVar(&to, "to", "", "the version that they are to keep (`PLAN@M`)")
	return cmd
}

// planVersion reads PLAN@N.
func planVersion(text string) (plan string, version int, ok bool) {
	plan, number, both := strings.Cut(text, "@")
	version, err := strconv.Atoi(number)
	return plan, version, both && err == nil && version > 0 && plan != ""
}

// accountsSet changes plans, versions and the anchor.
func accountsSet(cmd *cobra.Command, c *common, k *counters, s subject, f *setFlags, a *audited) error {
	pins := map[string]int{}
	var grants []account.Grant
	for _, text := range f.plans {
		name, version, pinned := planVersion(text)
		if !pinned {
			name = text
		}
		if err := k.hasPlan(name, version, text); err != nil {
			return err
		}
		if pinned {
			pins[name] = version
		}
		grants = append(grants, account.Grant{Plan: name, Terms: a.terms})
	}
	if len(pins) > 0 && s.pattern != "" {
		return usage("--plan "+grants[0].Plan, "a wildcard keeps no version of a plan: versions belong to single accounts")
	}
	var anchor time.Time
	if f.anchor != "" {
		at, ok := instant(f.anchor, time.Time{})
		if !ok || at.Year() < 1970 || at.Year() > 2200 {
			return usage("--billing-anchor 2026-01-31", "--billing-anchor %s is no day: write 2026-01-31, or 2026-01-31T09:00:00Z", f.anchor)
		}
		anchor = at.UTC().Truncate(time.Second)
	}
	var what []string
	if len(f.plans) > 0 {
		what = append(what, "plan "+strings.Join(f.plans, ", "))
	}
	if f.anchor != "" {
		what = append(what, "billing anchor "+anchor.Format(time.RFC3339))
	}
	for _, word := range f.clear {
		what = append(what, "clear "+word)
	}
	a.what = strings.Join(what, "; ")
	before, after, err := k.edit(cmd.Context(), s, a.dryRun, func(r *account.Record) error {
		r.Prune(a.terms.At)
		cleared := len(f.plans) > 0 || f.anchor != ""
		for _, word := range f.clear {
			switch {
			case word == "plan" && len(r.Plans) > 0:
				r.Plans, cleared = nil, true
			case word == "version" && len(r.Pins) > 0:
				r.Pins, cleared = nil, true
			case word == "billing-anchor" && !r.BillingAnchor.IsZero():
				r.BillingAnchor, cleared = time.Time{}, true
			}
		}
		if !cleared {
			return errNothing
		}
		if grants != nil {
			r.Plans = grants
		}
		for name, version := range pins {
			if r.Pins == nil {
				r.Pins = map[string]int{}
			}
			r.Pins[name] = version
		}
		if f.anchor != "" {
			r.BillingAnchor = anchor
		}
		a.note(r)
		return nil
	})
	if errors.Is(err, errNothing) {
		return errHint{errNo{fmt.Errorf("%s has none of %s", s, strings.Join(f.clear, ", ")), false}, "weir accounts get '" + s.String() + "'"}
	}
	if err != nil {
		return err
	}
	if len(f.plans) > 0 && k.policy.PlansFrom() != "account.plan" {
		c.say("weir: plans of %s count beside these; the highest of all holds", k.policy.PlansFrom())
	}
	return c.tell(k, a, before, after)
}

// hasPlan refuses a plan, or a version of it, that the policy does not have.
func (k *counters) hasPlan(name string, version int, text string) error {
	plans := k.policy.Plans()
	switch versions := k.policy.VersionsOf(name); {
	case len(plans) == 0:
		return usage("weir check", "%s has no plans under application:", k.file)
	case !slices.Contains(plans, name):
		return usage("--plan "+plans[len(plans)-1], "%s has no plan %s; it has %s", k.file, name, strings.Join(plans, ", "))
	case version > 0 && versions == nil:
		return usage("--plan "+name, "plan %s of %s has no versions", name, k.file)
	case version > 0 && !slices.Contains(versions, version):
		return usage(fmt.Sprintf("--plan %s@%d", name, versions[len(versions)-1]), "%s has no version %s; it has %v", k.file, text, versions)
	}
	return nil
}
