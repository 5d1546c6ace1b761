package shadow

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func watching(t *testing.T, limit, mode string) *policy.Policy {
	t.Helper()
	text := fmt.Sprintf("weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: seats, match: POST /seats, by: account, limit: %s, mode: %s}\n", limit, mode)
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// traffic makes the same calls by any policy, and gives what is logged of them.
func traffic(t *testing.T, p *policy.Policy) []engine.Record {
	t.Helper()
	var now int64
	clock := func() int64 { return now }
	var who string
	var out []engine.Record
	e, err := engine.New(engine.Options{
		Policy: p, Store: memstore.New(memstore.Options{Now: clock}), Now: clock, Logger: slog.New(slog.DiscardHandler), LogKey: []byte("k"),
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{Claims: map[string]any{"sub": who}}, nil
		},
		Decisions: func(r engine.Record) { out = append(out, r) }, AllowedShare: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const seed = 5
	r := rand.New(rand.NewPCG(seed, seed))
	now = start.UnixNano()
	for range 1000 {
		now += int64(r.ExpFloat64() * float64(200*time.Millisecond))
		who = fmt.Sprintf("caller-%d", r.IntN(1+r.IntN(12)))
		var o engine.Outcome
		e.Decide(t.Context(), &policy.Attributes{Method: "POST", Path: "/seats", Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}, &o)
		o.Release()
	}
	return out
}

func collect(t *testing.T, log []engine.Record, p *policy.Policy) []Limit {
	t.Helper()
	c := New(time.Time{}, p)
	for i := range log {
		if err := c.Add(t.Context(), &log[i]); err != nil {
			t.Fatal(err)
		}
	}
	return c.Limits()
}

// Whom a limit would have hurt is whom it hurts when it is enforced, and the limit
// that spares all is the smallest which does: with one less somebody is refused.
func TestTheSparingLimitIsTheSmallest(t *testing.T) {
	for _, text := range []string{"0.5/s burst 10", "10/m", "quota 10/m", "quota 20/5m calendar", "sliding 10/m", "quota 3/hour"} {
		log := traffic(t, watching(t, text, "shadow"))
		found := collect(t, log, nil)
		if len(found) != 1 {
			t.Fatalf("%s: %+v", text, found)
		}
		l := found[0]
		enforced := map[string]int64{}
		var refused int64
		for _, r := range traffic(t, watching(t, text, "enforce")) {
			if !r.Allowed {
				refused++
				enforced[r.KeyHash]++
			}
		}
		if l.Denied != refused || l.Hurt != len(enforced) || l.Requests != 1000 || l.Callers != 12 || refused == 0 {
			t.Errorf("%s: would have refused %d of %d callers, and refuses %d of %d", text, l.Denied, l.Hurt, refused, len(enforced))
		}
		for i, one := range l.Top {
			if one.Denied != enforced[one.Key] || i > 0 && one.Denied > l.Top[i-1].Denied {
				t.Errorf("%s: %+v, refused %d times", text, one, enforced[one.Key])
			}
		}
		if len(l.Top) != min(10, l.Hurt) || l.Spare == nil {
			t.Fatalf("%s: %+v", text, l)
		}
		with := func(limit string) (n int) {
			for _, r := range traffic(t, watching(t, limit, "enforce")) {
				if !r.Allowed {
					n++
				}
			}
			return n
		}
		all, err := weir.ParseLimit(l.Spare.All)
		if err != nil {
			t.Fatal(err)
		}
		if n := with(l.Spare.All); n != 0 {
			t.Errorf("%s: %s spares all, and refuses %d", text, l.Spare.All, n)
		}
		if less := withCount(l.Spare.All, all.Max()-1); with(less) == 0 {
			t.Errorf("%s: %s spares all, and so does %s", text, l.Spare.All, less)
		}
		most := map[string]bool{}
		for _, r := range traffic(t, watching(t, l.Spare.Most, "enforce")) {
			if !r.Allowed {
				most[r.KeyHash] = true
			}
		}
		if len(most)*10 > l.Hurt {
			t.Errorf("%s: %s refuses %d of %d callers", text, l.Spare.Most, len(most), l.Hurt)
		}
	}
}

// A log that does not hold every call says whom, and not what would have spared
// them.
func TestASampleSparesNobody(t *testing.T) {
	log := traffic(t, watching(t, "quota 10/m", "shadow"))
	full := collect(t, log, nil)[0]
	edit := func(change func(*engine.Record)) (out []engine.Record) {
		for _, r := range log {
			change(&r)
			if r.Limit != "" {
				out = append(out, r)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		log  []engine.Record
		p    *policy.Policy
		note string // "": known
	}{
		"all of it":              {log, nil, ""},
		"without limits' texts":  {edit(func(r *engine.Record) { r.LimitText = "" }), nil, "name the policy with -c"},
		"texts of the policy":    {edit(func(r *engine.Record) { r.LimitText = "" }), watching(t, "quota 10/m", "shadow"), ""},
		"one in a hundred":       {edit(func(r *engine.Record) { r.Weight = map[bool]float64{true: 100, false: 1}[r.Allowed] }), nil, "one in 100 of what was allowed"},
		"refusals only":          {edit(func(r *engine.Record) { r.Limit = map[bool]string{true: "", false: "seats"}[r.Allowed] }), nil, "what was allowed is not in the log"},
		"of others nothing said": {append(edit(func(r *engine.Record) { r.Shadow, r.Limit = false, "other" }), log...), nil, ""},
	} {
		got := collect(t, c.log, c.p)
		if len(got) != 1 {
			t.Fatalf("%s: %+v", name, got)
		}
		l := got[0]
		if l.Denied != full.Denied || l.Hurt != full.Hurt || !strings.Contains(l.Note, c.note) || (l.Spare == nil) != (c.note != "") {
			t.Errorf("%s: %d denied, %d hurt, %q, %v; want %d, %d", name, l.Denied, l.Hurt, l.Note, l.Spare, full.Denied, full.Hurt)
		}
		if c.note == "" && *l.Spare != *full.Spare {
			t.Errorf("%s: %v, want %v", name, l.Spare, full.Spare)
		}
	}
	c := New(start.Add(time.Minute), nil)
	for i := range log {
		if err := c.Add(t.Context(), &log[i]); err != nil {
			t.Fatal(err)
		}
	}
	if l := c.Limits()[0]; l.Denied == 0 || l.Denied >= full.Denied || l.First.Before(start.Add(time.Minute)) || c.Older() == 0 {
		t.Errorf("since: %+v, %d older", l, c.Older())
	}
	if err := New(time.Time{}, nil).Add(t.Context(), &engine.Record{Limit: "seats", Shadow: true}); err == nil || !strings.Contains(err.Error(), "log_keys: none") {
		t.Errorf("a line without a caller: %v", err)
	}
}

func TestWithRoomAndWithCount(t *testing.T) {
	for text, want := range map[string]string{
		"0.5/s burst 10":                  "0.5/s burst 7",
		"10/m":                            "10/m burst 7",
		"quota 5/hour":                    "quota 7/hour",
		"quota 5/2h":                      "quota 7/2h",
		"quota 5/day calendar Asia/Tokyo": "quota 7/day calendar Asia/Tokyo",
		"sliding 2000/5m":                 "sliding 7/5m",
	} {
		l, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := withCount(l.String(), 7); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		room, err := withRoom(l)
		if err != nil || room.Max() < 10_000 || room.Period() != l.Period() || room.IsBucket() != l.IsBucket() || room.OnCalendar() != l.OnCalendar() {
			t.Errorf("%s: %s, %v", text, room, err)
		}
	}
	for _, text := range []string{"1/year", "1000000/s", "0.001/day", "quota 5/month billing"} {
		l, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if room, err := withRoom(l); err != nil || room.Max() < l.Max() {
			t.Errorf("%s: %s, %v", text, room, err)
		}
	}
}
