package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/policy"
)

func newUsage(c *common) *cobra.Command {
	var id string
	var plans []string
	cmd := &cobra.Command{
		Use:   "usage --account ID",
		Short: "Show what an account has used of its limits",
		Long: `Show what an account has used of every limit that it has, as it sees it itself at
/.weir/usage: under its plan, the version that it keeps, and limits of its own.
Nothing is taken.

Where plans come from a token or an API key, the store does not know them: name them
with --plan. Without it, and beside plans that were granted, it is the lowest.
` + fmt.Sprintf(exitHelp, "the account has used nothing and nothing is said of it"),
		Example: `  weir usage --account customer-42
  weir usage --account customer-42 --plan advanced --json`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id == "" {
				return usage("weir usage --account customer-42", "no account is named")
			}
			again := func(caller string) string {
				return retyped(cmd, nil, "account") + " --account " + shellWord(caller)
			}
			s, err := subjectOf(id, again, true)
			if err != nil {
				return err
			}
			if s.pattern != "" {
				return usage("weir accounts list "+shellWord(strings.TrimSuffix(string(s.pattern), "*")), "%s is no single account", s)
			}
			return withCounters(cmd, c, "", func(k *counters) error {
				if err := k.known(s, again); err != nil {
					return err
				}
				for _, name := range plans {
					if all := k.policy.Plans(); !slices.Contains(all, name) {
						return usage("weir usage --account "+shellWord(id), "%s has no plan %s; it has %s", k.file, name, orNone(all))
					}
				}
				return accountUsage(cmd.Context(), c, k, s.caller, plans)
			})
		},
	}
	cmd.Flags().StringVar(&id, "account", "", "whose usage: an account's `ID`, or the key of another caller")
	cmd.Flags().StringSliceVar(&plans, "plan", nil, "plan `NAME` that the caller's token or key gives it")
	return cmd
}

// accountReport is the JSON of usage: that of /.weir/usage, and of whom.
type accountReport struct {
	SchemaVersion int            `json:"schema_version"`
	Account       string         `json:"account"`
	Banned        bool           `json:"banned"`
	Limits        []engine.Usage `json:"limits"`
}

func accountUsage(ctx context.Context, c *common, k *counters, caller weir.Key, plans []string) error {
	if k.records == nil {
		return fmt.Errorf("%s keeps no records of callers", k.store)
	}
	kind := account.KindOf(caller)
	id, ok := k.policy.IdentityOf(kind, idOf(caller), plans...)
	if !ok {
		return usage("weir keys get '"+caller.String()+"'", "%s is known by an address only, and has no plan", caller)
	}
	r, err := k.editor(false).Read(ctx, caller)
	if err != nil {
		return err
	}
	said, _, wrong := account.Resolve(r, k.index, kind, caller, time.Now().UnixNano())
	if wrong != nil {
		c.say("weir: warning: %s", wrong)
	}
	if said.Account != nil {
		id.Accounts = append(id.Accounts, said.Account)
	}
	ops, err := k.policy.UsageOps(&policy.Attributes{}, netip.IPv6Unspecified(), id)
	if err != nil {
		return err
	}
	ops = slices.DeleteFunc(ops, func(op policy.Op) bool {
		return !slices.Contains(strings.Split(op.Key.String(), "|"), caller.String())
	})
	if len(ops) == 0 {
		return k.noLimit(caller)
	}
	asked := make([]weir.Op, len(ops))
	for i := range ops {
		asked[i] = ops[i].Op
	}
	seen, err := k.limiter.Peek(ctx, asked...)
	if err != nil {
		return err
	}
	rep := accountReport{SchemaVersion: 1, Account: caller.String(), Banned: said.Banned}
	rows := make([]keyUsage, len(ops))
	used, now := !r.Empty() || said.Account != nil || said.Banned, time.Now()
	for i := range ops {
		rows[i] = keyUsage{Usage: engine.UsageOf(&ops[i], &seen[i], now), limit: seen[i].Limit, reset: seen[i].ResetAfter}
		rep.Limits = append(rep.Limits, rows[i].Usage)
		used = used || rows[i].inUse()
	}
	if !used {
		return k.nothing(caller, rows)
	}
	if len(plans) == 0 && len(k.policy.Plans()) > 1 && k.policy.PlansFrom() != "account.plan" {
		c.say("weir: plans come from %s, which only the caller's own requests tell: --plan names them", k.policy.PlansFrom())
	}
	if said.Banned {
		c.say("weir: %s is banned", caller)
	}
	if c.format == "json" {
		return writeJSON(c.stdout, rep)
	}
	return writeRows(c.stdout, rows, false)
}

// idOf is the id of a caller as it came, without the escapes of keys.
func idOf(caller weir.Key) string {
	_, text, _ := strings.Cut(caller.String(), "#")
	id, err := url.PathUnescape(text)
	if err != nil {
		return text // a key's escapes are those of a path
	}
	return id
}
