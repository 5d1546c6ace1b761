package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// A policy of one limit is decided in a short way. It is only shorter: an engine that
// has to ask who calls, and so goes the long way, says the same of every request, and
// tells the same to logs and hooks.
func TestShortWaySaysWhatTheLongWaySays(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	refused, degraded, banned := 0, 0, 0
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			o := sideOptions(r)
			short, long := newSide(t, o, nil), newSide(t, o, func(context.Context, *policy.Attributes) (policy.Identity, error) { return policy.Identity{}, nil })
			for range 60 {
				<-time.After(time.Duration(r.Int64N(int64(2 * time.Second))))
				if r.IntN(10) == 0 {
					short.fail(nil)
					long.fail(nil)
				} else if o.remote && r.IntN(10) == 0 {
					away := errors.New("no route to host")
					short.fail(away)
					long.fail(away)
				}
				if !o.remote && r.IntN(100) == 0 {
					short.ban(t)
					long.ban(t)
				}
				a := policy.Attributes{Method: pick(r, "GET", "GET", "post", "OPTIONS", "TRACE"), Path: pick(r, "/", "/a", "/a%2f", "/%", "a"), Header: http.Header{},
					Peer: netip.MustParseAddr(pick(r, "192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2"))}
				got, want := short.ask(t, a), long.ask(t, a)
				if got != want {
					t.Fatalf("%+v\n%s %s of %v:\n%s\nwant\n%s", o, a.Method, a.Path, a.Peer, got, want)
				}
				switch x := &short.last; {
				case x.Limited():
					refused++
				case x.Degraded:
					degraded++
				case x.Status == http.StatusForbidden:
					banned++
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	if refused < 500 || degraded < 200 || banned < 100 {
		t.Errorf("of 12,000 requests only %d were refused, %d served without the store, %d banned", refused, degraded, banned)
	}
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// sides are what both engines of a comparison have in common.
type sides struct {
	text              string
	remote            bool // the store is asked as a remote one is, and fails at times
	replicas          int
	shadow, givesBack bool
	decisions, hook   bool
}

func sideOptions(r *rand.Rand) sides {
	often := func() bool { return r.IntN(4) == 0 }
	return sides{
		text: fmt.Sprintf("weir: 1\napplication:\n  limits:\n    - {name: l, by: ip, limit: %s%s%s}\n",
			pick(r, "2/s", "3/s burst 5", "sliding 4/m", "quota 6/hour"), pick(r, "", ", cost: 2"), pick(r, "", ", on_store_error: deny", ", on_store_error: local")),
		remote: r.IntN(2) == 0, replicas: 1 + r.IntN(3),
		shadow: often(), givesBack: often(), decisions: often(), hook: often(),
	}
}

// side is one of two engines that are asked the same.
type side struct {
	engine *Engine
	memory *memstore.Store
	away   *remote // nil when the store is in this process
	told   bytes.Buffer
	last   Outcome
}

func newSide(t *testing.T, o sides, identify func(context.Context, *policy.Attributes) (policy.Identity, error)) *side {
	t.Helper()
	s := &side{memory: memstore.New(memstore.Options{})}
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "denial" || a.Key == "denial_id" {
			return slog.Attr{}
		}
		return a
	}
	options := Options{
		Policy: load(t, o.text), Store: s.memory, Identify: identify, Replicas: o.replicas, Shadow: o.shadow, CanGiveBack: o.givesBack,
		LogKey: []byte("secret"), Logger: slog.New(slog.NewTextHandler(&s.told, &slog.HandlerOptions{ReplaceAttr: untimed})),
	}
	if o.remote {
		s.away = &remote{s: s.memory}
		options.Store = s.away
	}
	if o.decisions {
		options.AllowedShare = 1
		options.Decisions = func(r Record) {
			r.DenialID = ""
			fmt.Fprintln(&s.told, "decision", r)
		}
	}
	if o.hook {
		options.Decided = func(_ context.Context, o *Outcome) { fmt.Fprintln(&s.told, "decided", o.Status) }
	}
	e, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	s.engine = e
	return s
}

func (s *side) fail(err error) {
	if s.away != nil {
		s.away.fails = err
	}
}

func (s *side) ban(t *testing.T) {
	t.Helper()
	e := account.Editor{Records: s.memory}
	if _, _, err := e.Edit(t.Context(), weir.NewKey("ip", "192.0.2.1"), func(r *account.Record) error {
		r.Ban = &account.Ban{Terms: account.Terms{Reason: "card testing"}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// ask is all that becomes of a request: what is decided, logged and told.
func (s *side) ask(t *testing.T, a policy.Attributes) string {
	t.Helper()
	s.told.Reset()
	s.last = Outcome{}
	o := &s.last
	s.engine.Decide(t.Context(), &a, o)
	said := fmt.Sprint(o.Status, o.Err, o.Exempt, o.Client, o.Degraded, o.Repeated, o.Served(), o.Limited(), o.MustSettle(), o.held != nil, len(o.DenialID()))
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		said += fmt.Sprint(" | ", v.Rule.Name, v.Key, v.Shadow, v.Excess(), v.Decision, v == o.Speaks())
	}
	return said + "\n" + s.told.String()
}
