package engine

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

func load(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatalf("policy: %v", err)
	}
	return p
}

// rig is an engine on a memory store, with what it tells.
type rig struct {
	*Engine
	log     bytes.Buffer
	records []Record
}

func newRig(t *testing.T, text string, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	o := Options{
		Policy: load(t, text), Store: store, LogKey: []byte("secret"), AllowedShare: 1,
		Logger:    slog.New(slog.NewJSONHandler(&r.log, nil)),
		Decisions: func(rec Record) { r.records = append(r.records, rec) },
		Identify: func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
			if sub := a.Header["Sub"]; sub != nil {
				return policy.Identity{Claims: map[string]any{"sub": sub[0]}}, nil
			}
			return policy.Identity{}, nil
		},
	}
	for _, f := range change {
		f(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	r.Engine = e
	return r
}

func request(method, path, sub string) *policy.Attributes {
	a := &policy.Attributes{Method: method, Path: path, Host: "shop", Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}
	if sub != "" {
		a.Header["Sub"] = []string{sub}
	}
	return a
}

func (r *rig) ask(path, sub string) *Outcome {
	o := new(Outcome)
	r.Decide(context.Background(), request("GET", path, sub), o)
	return o
}

const simple = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: things, match: /, by: [account, ip], limit: quota 2/h}
`

func TestARecordIsOneLineOfTheDecisionLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, simple)
		for range 3 {
			r.ask("/", "customer-42")
		}
		mac := hmac.New(sha256.New, []byte("secret"))
		mac.Write([]byte("account#customer-42"))
		key := hex.EncodeToString(mac.Sum(nil)[:12])
		line := func(i int) string { return string(r.records[i].AppendJSON(nil)) }
		if got, want := line(0), `{"time":"2000-01-01T00:00:00Z","layer":"application","limit":"things","operation":"","plan":"","key_hash":"`+key+
			`","allowed":true,"shadow":false,"reason":"ok","cost":1,"remaining":1,"retry_after_seconds":0,"degraded":false,"denial_id":"","weight":1,"limit_text":"quota 2/h"}`; got != want {
			t.Errorf("allowed:\n%s\nwant\n%s", got, want)
		}
		id := r.records[2].DenialID
		if got, want := line(2), `{"time":"2000-01-01T00:00:00Z","layer":"application","limit":"things","operation":"","plan":"","key_hash":"`+key+
			`","allowed":false,"shadow":false,"reason":"limit","cost":1,"remaining":0,"retry_after_seconds":3600,"degraded":false,"denial_id":"`+id+`","weight":1,"limit_text":"quota 2/h"}`; got != want || len(id) != 13 {
			t.Errorf("refused:\n%s\nwant\n%s", got, want)
		}
	})
}

func TestARecordIsJSONWhateverItHolds(t *testing.T) {
	r := Record{Layer: policy.Edge, Limit: "a", KeyHash: "account#a%22|event#1", Unknown: true, Degraded: true, Weight: 100}
	text, err := json.Marshal(r)
	var m map[string]any
	if err2 := json.Unmarshal(text, &m); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if v, ok := m["remaining"]; !ok || v != nil || m["weight"] != 100.0 || m["key_hash"] != r.KeyHash {
		t.Errorf("%s", text)
	}
}

func TestLogKeys(t *testing.T) {
	for mode, want := range map[string]string{"plain": "account#customer-42", "none": ""} {
		r := newRig(t, "log_keys: "+mode+simple)
		for range 3 {
			r.ask("/", "customer-42")
		}
		if got := r.records[0].KeyHash; got != want {
			t.Errorf("%s: record has %q", mode, got)
		}
		if has := strings.Contains(r.log.String(), "customer-42"); has != (mode == "plain") {
			t.Errorf("%s: log %s", mode, r.log.String())
		}
	}
}

func TestARandomLogKeyIsSaidOnce(t *testing.T) {
	for _, tt := range []struct {
		text string
		said bool
	}{{simple, true}, {"log_keys: none" + simple, false}} {
		r := newRig(t, tt.text, func(o *Options) { o.LogKey = nil })
		if said := strings.Contains(r.log.String(), "WEIR_LOG_KEY"); said != tt.said {
			t.Errorf("log: %s", r.log.String())
		}
		one, two := newRig(t, simple, func(o *Options) { o.LogKey = nil }), newRig(t, simple, func(o *Options) { o.LogKey = nil })
		one.ask("/", "a")
		two.ask("/", "a")
		if one.records[0].KeyHash == two.records[0].KeyHash {
			t.Error("two processes hash alike without a key")
		}
	}
}

func TestAllowedDecisionsAreSampledAndWeighed(t *testing.T) {
	big := strings.Replace(simple, "quota 2/h", "quota 10000/h", 1)
	r := newRig(t, big, func(o *Options) { o.AllowedShare = 0.01 })
	for range 10000 {
		r.ask("/", "a")
	}
	refused := 0
	for range 50 {
		r.ask("/", "a")
	}
	sum := 0.0
	for _, rec := range r.records {
		if !rec.Allowed {
			refused++
			continue
		}
		sum += rec.Weight
	}
	if refused != 50 {
		t.Errorf("%d refusals recorded, want all 50", refused)
	}
	// 100 of 10,000 are expected; 10 standard deviations leave a chance below 1e-20.
	if sum < 500 || sum > 20000 {
		t.Errorf("the sample stands for %v decisions, want about 10000", sum)
	}
	none := newRig(t, big, func(o *Options) { o.AllowedShare = 0 })
	none.ask("/", "a")
	if len(none.records) != 0 {
		t.Errorf("records %v", none.records)
	}
}

const layers = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
edge:
  - {name: floods, limit: 100/h, by: ip}
application:
  limits:
    - {name: things, match: /, by: [account, ip], limit: quota 2/h}
    - {name: others, match: /, by: [account, ip], limit: 100/h}
`

func TestOneRefusalIsOneRecord(t *testing.T) {
	r := newRig(t, layers)
	r.ask("/", "a")
	r.ask("/", "a")
	r.records = nil
	o := r.ask("/", "a")
	var names []string
	for _, rec := range r.records {
		names = append(names, fmt.Sprint(rec.Limit, rec.Allowed))
	}
	// The edge's take stays taken and is recorded; what the refused call did not take is not.
	if got := fmt.Sprint(names); got != "[floodstrue thingsfalse]" || o.Speaks().Rule.Name != "things" {
		t.Errorf("records %s, %s speaks", got, o.Speaks().Rule.Name)
	}
}

func TestAnEdgeRefusalAsksNoStore(t *testing.T) {
	r := newRig(t, strings.Replace(layers, "limit: 100/h, by: ip", "limit: 1/h, by: ip", 1))
	r.ask("/", "a")
	o := r.ask("/", "a")
	if o.Status != http.StatusTooManyRequests || len(o.Verdicts) != 1 || o.Speaks().Rule.Layer != policy.Edge || o.Identity != nil {
		t.Errorf("outcome %+v", o)
	}
}

func TestReloadKeepsCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, layers)
		r.ask("/", "a")
		r.ask("/", "a")
		next := strings.NewReplacer("quota 2/h", "quota 3/h", "limit: 100/h, by: ip", "limit: 50/h, by: ip").Replace(layers)
		old := r.ask("/", "b") // a request under way
		if err := r.Reload(load(t, next)); err != nil {
			t.Fatal(err)
		}
		if old.Policy() == r.Policy() {
			t.Error("a request under way changed its policy")
		}
		if o := r.ask("/", "a"); !o.Served() {
			t.Errorf("the third of three: %d", o.Status)
		}
		o := r.ask("/", "a")
		if o.Served() {
			t.Error("the fourth of three was served: the count was lost")
		}
		if edge := o.Verdicts[0]; edge.Limit.Max() != 50 || edge.Remaining != 45 {
			t.Errorf("edge: %d of %d left after five calls", edge.Remaining, edge.Limit.Max())
		}
	})
}

func TestReloadUnderTraffic(t *testing.T) {
	big := strings.NewReplacer("100/h", "100000/h", "quota 2/h", "quota 1000/h").Replace(layers)
	r := newRig(t, big, func(o *Options) { o.Decisions = nil; o.Logger = slog.New(slog.DiscardHandler) })
	var wg sync.WaitGroup
	served := make([]int, 4)
	for i := range served {
		wg.Go(func() {
			for range 500 {
				if r.ask("/", "a").Served() {
					served[i]++
				}
			}
		})
	}
	for range 50 {
		if err := r.Reload(load(t, big)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if sum := served[0] + served[1] + served[2] + served[3]; sum != 1000 {
		t.Errorf("%d of 2000 calls served, want the 1000 of the quota", sum)
	}
}

func TestReloadRefusesWhatTheStoreCannotKeep(t *testing.T) {
	r := newRig(t, simple, func(o *Options) { o.Store = keeper{o.Store.(*memstore.Store)} })
	err := r.Reload(load(t, strings.Replace(simple, "quota 2/h", "quota 2/day", 1)))
	if err == nil || !strings.Contains(err.Error(), `"things"`) {
		t.Fatalf("error %v, want one that names the limit", err)
	}
	if got := r.Policy().Rules()[0].Limit.String(); got != "quota 2/h" {
		t.Errorf("in force is %s", got)
	}
}

// keeper is a memory store which says that it forgets after two hours.
type keeper struct{ *memstore.Store }

func (k keeper) Caps() weir.Caps {
	c := k.Store.Caps()
	c.MaxKeep = 2 * time.Hour
	return c
}

func TestOptionsAreChecked(t *testing.T) {
	p, store := load(t, simple), memstore.New(memstore.Options{})
	defer store.Close()
	for _, o := range []Options{{}, {Policy: p}, {Store: store}, {Policy: p, Store: store, AllowedShare: 1.1}, {Policy: p, Store: store, AllowedShare: -1}} {
		if e, err := New(o); err == nil {
			e.Close()
			t.Errorf("no error for %+v", o)
		}
	}
}

func TestIdentificationThatFails(t *testing.T) {
	r := newRig(t, simple, func(o *Options) {
		o.Identify = func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{}, errors.New("key set at https://login.example: timeout")
		}
	})
	o := r.ask("/", "")
	if o.Status != 503 || strings.Contains(o.Err.Reason, "login.example") {
		t.Errorf("status %d, reason %q", o.Status, o.Err.Reason)
	}
	if !strings.Contains(r.log.String(), "login.example: timeout") {
		t.Errorf("log %s", r.log.String())
	}
	r.ask("/", "")
	if n := strings.Count(r.log.String(), "\n"); n != 1 {
		t.Errorf("%d lines within a second", n)
	}
}

func TestAnOutageIsToldWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &remote{s: memstore.New(memstore.Options{}), fails: errors.New("no route to host")}
		r := newRig(t, simple, func(o *Options) { o.Store = store })
		for range 7 {
			r.ask("/", "a")
		}
		store.fails = nil
		<-time.After(2 * time.Second) // the store is tried again by then
		for range 3 {
			r.ask("/", "a")
		}
		if n := strings.Count(r.log.String(), `"ERROR"`); n != 1 {
			t.Errorf("%d error lines, want 1", n)
		}
		if n := strings.Count(r.log.String(), `"store answers again"`); n != 1 || !strings.Contains(r.log.String(), `"decisions_without_it":7`) {
			t.Errorf("log %s", r.log.String())
		}
		store.fails = errors.New("no route to host")
		<-time.After(time.Minute)
		r.ask("/", "a")
		if n := strings.Count(r.log.String(), `"ERROR"`); n != 2 {
			t.Errorf("the next outage is not told at once: %s", r.log.String())
		}
	})
}

func TestAGiveBackThatFailsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &remote{s: memstore.New(memstore.Options{})}
		r := newRig(t, strings.Replace(simple, "quota 2/h", "quota 2/h, count: on_success", 1), func(o *Options) { o.Store = store })
		o := r.ask("/", "a")
		store.fails = errors.New("no route to host")
		if err := o.Settle(context.Background(), 500); err == nil {
			t.Error("no error")
		}
		if err := o.Settle(context.Background(), 500); err != nil {
			t.Errorf("the second call did something: %v", err)
		}
		if !strings.Contains(r.log.String(), "no route to host") || !strings.Contains(r.log.String(), "could not give back") {
			t.Errorf("log %s", r.log.String())
		}
	})
}

func TestSettleTouchesOnlyWhatCountsSuccess(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: calls, match: /, by: account, limit: quota 10/h}
    - {name: good, match: /, by: account, limit: quota 10/h, count: on_success, success: 200-299}
    - {name: fine, match: /, by: account, limit: quota 10/h, count: on_success, success: 100-499}
`
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, text)
		for _, status := range []int{200, 404, 500} {
			o := r.ask("/", "a")
			if !o.MustSettle() {
				t.Fatal("nothing counts success")
			}
			if err := o.Settle(context.Background(), status); err != nil {
				t.Fatal(err)
			}
		}
		o := r.ask("/", "a")
		got := ""
		for _, v := range o.Verdicts {
			got += fmt.Sprintf("%s %d ", v.Rule.Name, v.Used)
		}
		if got != "calls 4 good 2 fine 3 " {
			t.Errorf("used: %s", got)
		}
	})
}

func TestSharedEdgeRulesUseTheStore(t *testing.T) {
	for _, failing := range []string{"", ", on_store_error: local", ", on_store_error: local, share: 1/5"} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			text := "weir: 1\nedge_store: shared\ncallers: {ip: client_ip}\nedge: [{name: floods, limit: 5/h, by: ip" + failing + "}]\n"
			served := 0
			for range 2 { // two processes, and shares do not apply while the store answers
				r := newRig(t, text, func(o *Options) { o.Store = store; o.Replicas = 5 })
				for range 5 {
					if r.ask("/none", "").Served() {
						served++
					}
				}
			}
			if served != 5 {
				t.Errorf("%s: %d served by both, want 5", text, served)
			}
		})
	}
}
