package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// The instant of a refusal is never before the one at which the call would pass,
// and at most the rest of a second after it.
func TestSpec_B13_ARefusalSaysNoInstantBeforeTheCallPasses(t *testing.T) {
	for _, c := range []struct{ limit, want string }{
		{"1/minute", "2027-03-14T12:35:51Z"},
		{"quota 1/minute", "2027-03-14T12:35:51Z"},
		{"quota 1/hour calendar", "2027-03-14T13:00:00Z"},
		{"quota 1/day calendar Europe/Berlin", "2027-03-14T23:00:00Z"},
	} {
		var at atomic.Int64
		at.Store(time.Date(2027, 3, 14, 12, 34, 50, 900_000_000, time.UTC).UnixNano())
		now := func() int64 { return at.Add(500) }
		e := engineOn(t, c.limit, now)
		a := &policy.Attributes{Method: "GET", Path: "/", Host: "shop", Peer: netip.MustParseAddr("192.0.2.1")}
		var o *engine.Outcome
		for range 2 {
			o = new(engine.Outcome)
			e.Decide(context.Background(), a, o)
		}
		var w answer.Writer
		var ex *answer.LimitExceeded
		if !errors.As(w.Exceeded(o, a), &ex) {
			t.Fatalf("%s: served", c.limit)
		}
		if got := ex.ResetsAt.Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%s: resets at %s, want %s", c.limit, got, c.want)
		}
		h := map[string][]string{}
		w.Fields(h, o, nil)
		if want, _ := time.Parse(time.RFC3339, c.want); len(h["X-Ratelimit-Reset"]) != 1 || h["X-Ratelimit-Reset"][0] != strconv.FormatInt(want.Unix(), 10) {
			t.Errorf("%s: X-RateLimit-Reset %q, want %d", c.limit, h, want.Unix())
		}
	}
}

// A call that costs more than the limit can ever hold is told no instant and no
// wait, however much is left, in a window and in a bucket alike.
func TestSpec_B13_WhatNeverFitsIsToldNoInstant(t *testing.T) {
	at := time.Date(2027, 3, 14, 12, 34, 50, 900_000_000, time.UTC).UnixNano()
	for _, limit := range []string{"10/minute", "quota 10/minute", "quota 10/day calendar", "sliding 10/hour"} {
		e := engineOn(t, limit+", cost: header.Units", func() int64 { return at })
		a := &policy.Attributes{Method: "GET", Path: "/", Host: "shop", Peer: netip.MustParseAddr("192.0.2.1")}
		for _, used := range []int64{0, 4} {
			if a.Header = map[string][]string{"Units": {"4"}}; used > 0 {
				e.Decide(context.Background(), a, new(engine.Outcome))
			}
			a.Header = map[string][]string{"Units": {"11"}}
			o := new(engine.Outcome)
			e.Decide(context.Background(), a, o)
			var w answer.Writer
			var ex *answer.LimitExceeded
			if !errors.As(w.Exceeded(o, a), &ex) {
				t.Fatalf("%s: served", limit)
			}
			text, err := json.Marshal(ex)
			if want := `{"operation":"things","limit":10,"used":` + strconv.FormatInt(used, 10) + `,"retryAfterSeconds":0}`; err != nil || string(text) != want {
				t.Errorf("%s, %d used: %s, want %s (%v)", limit, used, text, want, err)
			}
			if want := "things: " + strconv.FormatInt(used, 10) + " of 10 used; one call asks for more than the limit holds"; (&answer.LimitExceeded{Operation: ex.Operation, Limit: ex.Limit, Used: ex.Used}).Error() != want {
				t.Errorf("%s: without a message it says %q", limit, ex.Error())
			}
		}
	}
}

// engineOn counts a limit of everyone, to which terms may be added, in memory.
func engineOn(t *testing.T, limit string, now func() int64) *engine.Engine {
	t.Helper()
	text := "weir: 1\napplication:\n  limits:\n    - {name: things, match: /, by: everyone, header_styles: [github], limit: " + limit + "}\n"
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{Now: now})
	t.Cleanup(func() { store.Close() })
	e, err := engine.New(engine.Options{Policy: p, Store: store, Now: now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
