package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/internal/everystore"
	"github.com/weirlabs/weir/policy"
)

// What the caller sees at /.weir/usage, what support sees with weir usage, in
// another process, and what Peek says are one and the same, of every kind of
// limit and on every store; and looking takes nothing.
func TestSpec_B05_UsageIsTheSameForWhoeverAsks(t *testing.T) {
	t.Setenv("TEST_SECRET", testSecret)
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), `
weir: 1
auth: {jwt: {hs256_secret_env: TEST_SECRET}}
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    order: [free, paid]
    free@1: {render: quota 10/hour, tokens: [quota 100/year calendar, 20/day burst 20]}
    free@2: {since: 2199-01-01, render: quota 5/hour}
    paid: {render: quota 50/hour}
  operations:
    render: {match: POST /render}
    tokens: {match: POST /render/tokens, over: charge}
  limits:
    - {name: bill, match: "/render/{rest...}", by: account, limit: quota 40/month billing}
    - {name: slide, match: "/render/{rest...}", by: account, limit: sliding 30/week}
    - {name: own, match: "/render/{rest...}", by: account, limit: quota 7/day}
`)
	p, err := loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		e, err := engine.New(engine.Options{Policy: p, Store: s.Open(t), LogKey: []byte("k"), Deadline: patience,
			Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) {
				return policy.Identity{Claims: map[string]any{"sub": "ann"}}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		k := countersOn(t, p, file, s.Open(t))
		key := weir.NewKey("account", "ann")
		if _, _, err := k.editor(false).Edit(t.Context(), key, func(r *account.Record) error {
			r.BillingAnchor = time.Date(2024, 1, 31, 9, 30, 15, 0, time.UTC)
			r.Overrides = map[string]account.Override{"own": {Limit: "quota 9/day"}}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		attributes := func(path string) *policy.Attributes {
			return &policy.Attributes{Method: "POST", Path: path, Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}
		}
		for _, path := range []string{"/render", "/render/tokens", "/render/tokens"} {
			o := new(engine.Outcome)
			if e.Decide(t.Context(), attributes(path), o); !o.Served() {
				t.Fatalf("%s: status %d, %v", path, o.Status, o.Err)
			}
		}
		var own, support accountReport
		usage := func() {
			t.Helper()
			if err := json.Unmarshal(e.Usage(t.Context(), attributes("/.weir/usage"), new(engine.Outcome)), &own); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			k.index = nil
			if err := k.readIndex(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := accountUsage(t.Context(), &common{format: "json", stdout: &out, stderr: io.Discard}, k, key, nil); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(out.Bytes(), &support); err != nil {
				t.Fatal(err)
			}
		}
		usage()
		usage()
		want := []struct {
			engine.Usage
			override string
		}{
			{engine.Usage{Name: "render", Operation: "render", Plan: "free", Version: 1, Limit: 10, Used: 1, Remaining: 9, Period: "hour"}, ""},
			{engine.Usage{Name: "tokens", Operation: "tokens", Plan: "free", Version: 1, Limit: 100, Used: 2, Remaining: 98, Period: "year"}, ""},
			{engine.Usage{Name: "tokens.day", Operation: "tokens", Plan: "free", Version: 1, Limit: 20, Used: 2, Remaining: 18, Period: "day"}, ""},
			{engine.Usage{Name: "bill", Limit: 40, Used: 3, Remaining: 37, Period: "month"}, ""},
			{engine.Usage{Name: "slide", Limit: 30, Used: 3, Remaining: 27, Period: "week"}, ""},
			{engine.Usage{Name: "own", Limit: 9, Used: 3, Remaining: 6, Period: "day"}, "quota 9/day"},
		}
		if len(own.Limits) != len(want) || len(support.Limits) != len(want) {
			t.Fatalf("%d limits for the caller, %d for support, want %d: %+v", len(own.Limits), len(support.Limits), len(want), own.Limits)
		}
		for _, w := range want {
			var of [2]engine.Usage
			for i, list := range [][]engine.Usage{own.Limits, support.Limits} {
				at := slices.IndexFunc(list, func(u engine.Usage) bool { return u.Name == w.Name })
				if at < 0 {
					t.Fatalf("no %s in %+v", w.Name, list)
				}
				u := list[at]
				of[i] = u
				if got := said(u.Override); got != w.override {
					t.Errorf("%s: override %q, want %q", w.Name, got, w.override)
				}
				w.Layer, w.ResetAt, w.Override = policy.Application, u.ResetAt, u.Override
				if u != w.Usage {
					t.Errorf("%d: %+v, want %+v", i, u, w.Usage)
				}
				if left := time.Until(u.ResetAt); left <= 0 {
					t.Errorf("%s: resets at %v", w.Name, u.ResetAt)
				}
			}
			// The end of a window is an instant; when a bucket is full follows from
			// the instant of the question.
			if apart := of[0].ResetAt.Sub(of[1].ResetAt); apart != 0 && (w.Name != "tokens.day" || apart.Abs() > time.Minute) {
				t.Errorf("%s: resets at %v and at %v", w.Name, of[0].ResetAt, of[1].ResetAt)
			}
		}
		// Peek by hand, of the limits that no record changes.
		for _, r := range p.Rules() {
			if r.Name != "slide" && (r.Name != "render" || r.Version != 1) {
				continue
			}
			d, err := k.limiter.Peek(t.Context(), weir.Op{Limit: r.Limit, Key: key})
			if err != nil {
				t.Fatal(err)
			}
			u := own.Limits[slices.IndexFunc(own.Limits, func(u engine.Usage) bool { return u.Name == r.Name })]
			if d[0].Used != u.Used || d[0].Remaining != u.Remaining || !d[0].ResetAt(time.Now()).Equal(u.ResetAt) {
				t.Errorf("%s: Peek says %+v, usage %+v", r.Name, d[0], u)
			}
		}
	})
}

func said(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
