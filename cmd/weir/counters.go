package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/policy"
)

// counters is a store with the policy that says what its numbers mean.
type counters struct {
	policy  *policy.Policy
	file    string // of the policy
	plan    string // whose limits alone are looked at; "" for all
	store   string // as people may see it
	lister  weir.Lister
	limiter *weir.Limiter
	items   weir.Store
	records weir.Records   // nil when the store keeps none
	index   *account.Index // what is said of many callers; nil until it is known
}

// keyUsage is what one caller has used of one limit, in the form of
// /.weir/usage.
type keyUsage struct {
	Caller string `json:"caller"`
	engine.Usage
	Shadow    bool `json:"shadow"`    // counts, and refuses nobody
	Anonymous bool `json:"anonymous"` // the limit of callers known by their address only

	limit weir.Limit
	reset time.Duration
}

func (u keyUsage) inUse() bool { return u.Used > 0 }

// share is the part of the limit that is used: above 1 when a call cost more
// than was reserved for it, or the limit was lowered.
func (u *keyUsage) share() float64 { return float64(u.Used) / float64(u.Limit) }

// ops are those of every limit that counts on a key.
func (k *counters) ops(ctx context.Context, key weir.Key) ([]policy.Op, error) {
	said, err := k.said(ctx, key)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(k.policy.ItemOps(key, said...), func(op policy.Op) bool {
		return k.plan != "" && op.Rule.Plan != "" && op.Rule.Plan != k.plan
	}), nil
}

// look asks the store once and gives a line for every limit that counts on a
// key. Plans with equal limits share the line of the first.
func (k *counters) look(ctx context.Context, key weir.Key) ([]keyUsage, error) {
	ops, err := k.ops(ctx, key)
	if err != nil {
		return nil, err
	}
	asked := make([]weir.Op, len(ops))
	for i := range ops {
		asked[i] = ops[i].Op
	}
	if len(asked) == 0 {
		return nil, nil
	}
	seen, err := k.limiter.Peek(ctx, asked...)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var rows []keyUsage
	for i := range seen {
		d, r := &seen[i], ops[i].Rule
		if slices.ContainsFunc(rows, func(u keyUsage) bool {
			return u.Name == r.Name && u.Shadow == ops[i].Shadow && u.limit.String() == d.Limit.String()
		}) {
			continue
		}
		rows = append(rows, keyUsage{
			Caller: key.String(), Shadow: ops[i].Shadow, Anonymous: r.Anonymous, limit: d.Limit, reset: d.ResetAfter,
			Usage: engine.UsageOf(&ops[i], d, now),
		})
	}
	return rows, nil
}

// said is what is said of those whose item a key is: a limit of their own, or the
// day on which their billing periods begin.
func (k *counters) said(ctx context.Context, key weir.Key) (out []*policy.Account, err error) {
	if k.records == nil {
		return nil, nil
	}
	for part := range strings.SplitSeq(key.String(), "|") {
		caller, ok := weir.ParseKey(part)
		kind := account.KindOf(caller)
		if !ok || !slices.Contains(k.policy.CallerKinds(), kind) {
			continue // a part of the request
		}
		r := new(account.Record)
		if k.index.Kinds[kind].Records {
			if r, err = (account.Editor{Records: k.records}).Read(ctx, caller); err != nil {
				return nil, err
			}
		}
		c, _, _ := account.Resolve(r, k.index, kind, caller, time.Now().UnixNano())
		if c.Account != nil {
			out = append(out, c.Account)
		}
	}
	return out, nil
}

// atATime is how many callers are looked at together: a store on a network
// answers many as fast as one.
const atATime = 32

// top looks at every caller with a prefix and keeps the lines with the largest
// shares, no more than most of them. seen is how many callers there were; bad are
// those that cannot be read, in order.
func (k *counters) top(ctx context.Context, prefix string, most int) (best []keyUsage, seen int, bad []unreadable, err error) {
	best = []keyUsage{}
	err = eachPage(ctx, k.lister, prefix, func(keys []weir.Key) (bool, error) {
		seen += len(keys)
		lines, unread, err := k.lookAtAll(ctx, keys)
		if err != nil {
			return false, err
		}
		bad = append(bad, unread...)
		for _, u := range lines {
			if at, _ := slices.BinarySearchFunc(best, u, byShare); at == most {
				continue
			}
			best = slices.DeleteFunc(best, u.same) // its key was listed before
			at, _ := slices.BinarySearchFunc(best, u, byShare)
			best = slices.Insert(best, at, u)
			best = best[:min(len(best), most)]
		}
		return true, nil
	})
	slices.SortFunc(bad, func(a, b unreadable) int { return strings.Compare(a.Caller, b.Caller) })
	bad = slices.CompactFunc(bad, func(a, b unreadable) bool { return a.Caller == b.Caller })
	return best, seen, bad, err
}

// lookAtAll gives one line for each limit that each caller has used something
// of: of several plans that of the lowest which has room for it. Who cannot be
// read is passed over and told.
func (k *counters) lookAtAll(ctx context.Context, keys []weir.Key) (lines []keyUsage, bad []unreadable, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		todo = make(chan weir.Key)
	)
	for range min(atATime, len(keys)) {
		wg.Go(func() {
			for key := range todo {
				rows, failed := k.look(ctx, key)
				u, one := unreadCaller(key, failed)
				mu.Lock()
				if one {
					bad = append(bad, u)
				} else if failed != nil && err == nil {
					err = failed
					cancel()
				}
				lines = append(lines, lowest(rows)...)
				mu.Unlock()
			}
		})
	}
	for _, key := range keys {
		if ctx.Err() != nil {
			break
		}
		todo <- key
	}
	close(todo)
	wg.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return lines, bad, err
}

// lowest keeps of the lines that speak of one limit the first that what was used
// fits into, and the last when it fits into none; and none of unused limits.
func lowest(rows []keyUsage) []keyUsage {
	var kept []keyUsage
	for _, u := range rows {
		if !u.inUse() {
			continue
		}
		i := slices.IndexFunc(kept, func(o keyUsage) bool { return o.Name == u.Name && o.Shadow == u.Shadow })
		switch {
		case i < 0:
			kept = append(kept, u)
		case kept[i].Used > kept[i].Limit:
			kept[i] = u
		}
	}
	return kept
}

// byShare orders lines: large shares first, then a fixed order.
func byShare(a, b keyUsage) int {
	return cmp.Or(cmp.Compare(b.share(), a.share()), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Name, b.Name))
}

func (u *keyUsage) same(o keyUsage) bool {
	return u.Caller == o.Caller && u.Name == o.Name && u.Shadow == o.Shadow
}

// writeRows writes lines for people; with callers when they are of several.
func writeRows(w io.Writer, rows []keyUsage, callers bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if callers {
		fmt.Fprint(t, "caller\t")
	}
	fmt.Fprintln(t, "limit\tplan\tused\tof\tremaining\treset\tat")
	for i := range rows {
		u := &rows[i]
		if callers {
			fmt.Fprint(t, u.Caller+"\t")
		}
		name, plan, reset, at := u.Name, cmp.Or(u.Plan, "-"), "-", "-"
		if u.Version > 0 {
			plan += fmt.Sprint("@", u.Version)
		}
		if u.Shadow {
			name += " (shadow)"
		}
		if u.inUse() {
			reset = "in " + max(u.reset.Round(time.Second), time.Second).String()
			at = u.ResetAt.Add(time.Second - 1).Truncate(time.Second).Format(time.RFC3339) // not before it
		}
		of := u.limit.String()
		if u.Override != nil {
			of += " (override)"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", name, plan, u.Used, of, u.Remaining, reset, at)
	}
	return t.Flush()
}
