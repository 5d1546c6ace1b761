package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/memstore"
)

func TestUsageNeedsACallerWhereThereIsAuth(t *testing.T) {
	text := "auth: {jwt: {hs256_secret_env: SECRET}}" + simple
	r := newRig(t, text)
	o := new(Outcome)
	if body := r.Usage(context.Background(), request("GET", "/.weir/usage", ""), o); body != nil || o.Status != 401 {
		t.Errorf("anonymous: %d %s", o.Status, body)
	}
	o = new(Outcome)
	if body := r.Usage(context.Background(), request("GET", "/.weir/usage", "a"), o); !o.Served() || !json.Valid(body) {
		t.Errorf("a caller: %d %s", o.Status, body)
	}
}

func TestUsagePassesTheEdgeAndFailsWithTheStore(t *testing.T) {
	r := newRig(t, strings.Replace(layers, "limit: 100/h, by: ip", "limit: 1/h, by: ip", 1))
	for i, want := range []int{0, 429} {
		o := new(Outcome)
		if r.Usage(context.Background(), request("GET", "/.weir/usage", "a"), o); o.Status != want {
			t.Errorf("call %d: %d, want %d", i, o.Status, want)
		}
	}
	r = newRig(t, simple, func(o *Options) {
		o.Store = &remote{s: memstore.New(memstore.Options{}), fails: errors.New("down")}
	})
	o := new(Outcome)
	if body := r.Usage(context.Background(), request("GET", "/.weir/usage", "a"), o); body != nil || o.Status != 503 {
		t.Errorf("without the store: %d %s", o.Status, body)
	}
}

func TestUsageAnswersAreBounded(t *testing.T) {
	now := int64(time.Hour)
	r := newRig(t, simple, func(o *Options) { o.Now = func() int64 { return now }; o.Decisions = nil })
	for i := range 2*maxUsage + 10 {
		o := new(Outcome)
		if r.Usage(context.Background(), request("GET", "/.weir/usage", fmt.Sprint("caller-", i)), o); !o.Served() {
			t.Fatalf("caller %d: %d", i, o.Status)
		}
		now += 100
	}
	if n := len(r.usage.answers); n > maxUsage {
		t.Errorf("%d answers kept, at most %d", n, maxUsage)
	}
}
