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
	"github.com/weirlabs/weir/policy"
)

func newKeysOverride(c *common) *cobra.Command {
	var f termFlags
	var remove bool
	cmd := &cobra.Command{
		Use:   "override CALLER NAME LIMIT",
		Short: "Give one caller, or all that a wildcard names, a limit of its own",
		Long: `Put LIMIT in place of the policy's limit NAME for one caller, or for all that a
wildcard names: account#acme-* is every account whose id begins with acme-. LIMIT is
in the grammar of limits, or "unlimited". An override of the caller itself comes
before that of the longest wildcard, and that before its plan. What was used stays
used where LIMIT counts in the same windows; from a window that starts with the first
call to a calendar one, a sliding one or a rate, nothing is used yet, and weir says
so. Running processes follow within accounts.max_age of the policy, 5 seconds by
default.
` + fmt.Sprintf(exitHelp, "the policy has no such limit, or there is no such override to remove"),
		Example: `  weir keys override 'account#customer-42' orders 'quota 500/hour' --expires 14d --reason 'launch'
  weir keys override 'account#acme-*' orders unlimited --dry-run
  weir keys override 'account#customer-42' orders --remove`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args: func(cmd *cobra.Command, args []string) error {
			const try = "weir keys override 'account#customer-42' orders 'quota 500/hour'"
			switch {
			case remove && len(args) != 2:
				return usage("weir keys override 'account#customer-42' orders --remove", "%s --remove takes a CALLER and the NAME of a limit, but got %s", cmd.CommandPath(), plural(len(args), "argument"))
			case !remove && len(args) != 3:
				return usage(try, "%s takes a CALLER, the NAME of a limit and a LIMIT in quotes, but got %s", cmd.CommandPath(), plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSubject(cmd, c, &f, args[0], false, func(k *counters, s subject, a *audited) error {
				limit := ""
				if !remove {
					limit = args[2]
				}
				return keysOverride(cmd.Context(), c, k, s, args[1], limit, a)
			})
		},
	}
	f.add(cmd, "when the override ends")
	cmd.Flags().BoolVar(&remove, "remove", false, "let the policy's limit hold again")
	return cmd
}

// withSubject opens what a command needs that says something of a caller.
func withSubject(cmd *cobra.Command, c *common, f *termFlags, of string, accounts bool, do func(*counters, subject, *audited) error) error {
	again := ofAnother(cmd)
	s, err := subjectOf(of, again, accounts)
	if err != nil {
		return err
	}
	terms, err := f.terms(cmd, time.Now())
	if err != nil {
		return err
	}
	return withCounters(cmd, c, "", func(k *counters) error {
		if k.records == nil {
			return fmt.Errorf("%s keeps no records of callers", k.store)
		}
		if err := k.known(s, again); err != nil {
			return err
		}
		command := strings.TrimPrefix(cmd.CommandPath(), "weir ")
		return do(k, s, &audited{command: command, subject: s.String(), terms: terms, dryRun: f.dryRun})
	})
}

// ofAnother types a command again for another caller than its first argument.
func ofAnother(cmd *cobra.Command) func(caller string) string {
	return func(caller string) string {
		return retyped(cmd, append([]string{caller}, cmd.Flags().Args()[1:]...), "")
	}
}

func keysOverride(ctx context.Context, c *common, k *counters, s subject, name, limit string, a *audited) error {
	if err := k.hasLimit(s, name); err != nil {
		return err
	}
	var own weir.Limit
	if limit != "" && limit != account.Unlimited {
		l, err := weir.ParseLimit(limit)
		if err == nil {
			err = k.limiter.Check(l)
		}
		if err != nil {
			return usage("weir keys override '"+s.String()+"' "+name+" 'quota 500/hour'", "%s", strings.TrimPrefix(err.Error(), "weir: "))
		}
		own, limit = l, l.String()
	}
	a.what = name + " = " + limit
	if limit == "" {
		a.what = "remove the override of " + name
	}
	before, after, err := k.edit(ctx, s, a.dryRun, func(r *account.Record) error {
		r.Prune(a.terms.At)
		if limit == "" {
			if _, have := r.Overrides[name]; !have {
				return errNothing
			}
			delete(r.Overrides, name)
		} else {
			if r.Overrides == nil {
				r.Overrides = map[string]account.Override{}
			}
			r.Overrides[name] = account.Override{Limit: limit, Terms: a.terms}
		}
		a.note(r)
		return nil
	})
	if errors.Is(err, errNothing) {
		return errHint{errNo{fmt.Errorf("%s has no override of %s", s, name), false}, "weir accounts get '" + s.String() + "'"}
	}
	if err != nil {
		return err
	}
	if limit != account.Unlimited {
		was := before.Overrides[name]
		had, _ := weir.ParseLimit(was.Limit) // none, unlimited, or what a newer program reads: the policy's then
		said, err := k.asides(ctx, s.kind(), name, had, own)
		if err != nil {
			return err
		}
		for _, text := range said {
			c.say("weir: warning: %s", text)
		}
	}
	return c.tell(k, a, before, after)
}

// hasLimit reports a name that no limit has by which callers of this kind count.
func (k *counters) hasLimit(s subject, name string) error {
	var names []string
	for _, r := range k.policy.Rules() {
		if r.Layer == policy.Edge && !k.policy.EdgeShared() || !countsBy(r, s.kind()) {
			continue
		}
		if r.Layer == policy.Edge {
			continue // nobody is known there
		}
		if r.Name == name {
			return nil
		}
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	for _, name := range k.policy.Operations() {
		if countsBy(&policy.Rule{By: policy.AccountKind}, s.kind()) && !slices.Contains(names, name) {
			names = append(names, name) // unlimited in every plan
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	if len(names) == 0 {
		return errHint{errNo{fmt.Errorf("no limit of %s counts by %s", k.file, s.kind()), false}, "weir check"}
	}
	return errHint{errNo{fmt.Errorf("%s has no limit %s by %s; it has %s", k.file, name, s.kind(), strings.Join(names, ", ")), false},
		"weir keys override '" + s.String() + "' " + names[0] + " 'quota 500/hour'"}
}

// countsBy reports whether a rule may count on items of a kind of callers: an
// address stands in for every caller that is not known.
func countsBy(r *policy.Rule, kind string) bool {
	if kind == "ip" && r.Layer != policy.Gateway {
		return true
	}
	return slices.Contains(strings.FieldsFunc(r.By, func(c rune) bool { return c == ',' || c == '+' || c == ' ' }), kind)
}

func newKeysBan(c *common) *cobra.Command {
	var f termFlags
	var lift bool
	cmd := &cobra.Command{
		Use:   "ban CALLER",
		Short: "Refuse every request of a caller",
		Long: `Answer every request of a caller, or of all that a wildcard names, with 403 and
{"error":"banned"}, wherever a limit or an operation of gateway: or application:
applies. Elsewhere nobody is identified, and edge rules see only addresses: those
keep strangers out. Running processes follow within accounts.max_age of the policy,
5 seconds by default.
` + fmt.Sprintf(exitHelp, "there is no ban to lift"),
		Example: `  weir keys ban 'account#customer-42' --expires 1d --reason 'card testing'
  weir keys ban 'ip#192.0.2.44'
  weir keys ban 'account#customer-42' --lift`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        oneCaller("weir keys ban 'account#customer-42'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSubject(cmd, c, &f, args[0], false, func(k *counters, s subject, a *audited) error {
				return keysBan(cmd.Context(), c, k, s, lift, a)
			})
		},
	}
	f.add(cmd, "when the ban ends")
	cmd.Flags().BoolVar(&lift, "lift", false, "let the caller in again")
	return cmd
}

// oneCaller wants a CALLER and nothing else.
func oneCaller(try string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(try, "%s: no caller is named", cmd.CommandPath())
		}
		return atMost(1)(cmd, args)
	}
}

func keysBan(ctx context.Context, c *common, k *counters, s subject, lift bool, a *audited) error {
	a.what = "ban"
	if lift {
		a.what = "lift the ban"
	}
	before, after, err := k.edit(ctx, s, a.dryRun, func(r *account.Record) error {
		r.Prune(a.terms.At)
		switch {
		case lift && r.Ban == nil:
			return errNothing
		case lift:
			r.Ban = nil
		default:
			r.Ban = &account.Ban{Terms: a.terms}
		}
		a.note(r)
		return nil
	})
	if errors.Is(err, errNothing) {
		return errHint{errNo{fmt.Errorf("%s is not banned by itself", s), false}, "weir accounts get '" + s.String() + "'"}
	}
	if err != nil {
		return err
	}
	return c.tell(k, a, before, after)
}
