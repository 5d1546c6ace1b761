package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// talkative is a store whose errors name the key that was asked for: of an item in
// its text, of a record in its key.
type talkative struct {
	*memstore.Store
	items, records bool // fail
}

func (s *talkative) Caps() weir.Caps { return weir.Caps{} }
func (s *talkative) Lock(weir.Key) (*weir.Cells, int64) {
	return nil, 0
}

func (s *talkative) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if s.items {
		return -1, 0, fmt.Errorf("no answer about %s", item)
	}
	return s.Store.Apply(ctx, item, tries, state)
}

func (s *talkative) Get(ctx context.Context, key string) ([]byte, string, error) {
	if s.records && key != "accounts" {
		return nil, "", fmt.Errorf("no answer about record %s", key)
	}
	return s.Store.Get(ctx, key)
}

// Whatever an error of a store or a record says of a caller, a log shows it as
// log_keys allows it.
func TestNoErrorTakesACallersKeyIntoTheLog(t *testing.T) {
	const text = `
weir: 1
log_keys: %s
callers: {account: jwt.sub, ip: client_ip}
accounts: {max_age: 1s}
application:
  plans: {order: [free], free@1: {a: quota 5/day, l: quota 5/day, s: quota 5/day}}
  operations:
    a: {match: GET /a, on_store_error: allow}
    l: {match: GET /l, on_store_error: local}
    s: {match: GET /s, count: on_success, over: charge, notify_at: [20%%]}
`
	const who = "raw-account-id"
	for _, keys := range []string{"hash", "plain", "none"} {
		synctest.Test(t, func(t *testing.T) {
			store := &talkative{Store: memstore.New(memstore.Options{})}
			r := newRig(t, fmt.Sprintf(text, keys), func(o *Options) { o.Store = store; o.CanGiveBack = true })
			ctx := context.Background()
			o := r.ask("/s", who)
			store.items = true
			if err := o.Settle(ctx, 500); err == nil {
				t.Fatal("settled")
			}
			for range 10 {
				for _, path := range []string{"/a", "/l", "/s"} {
					o := r.ask(path, who)
					o.Release()
				}
				<-time.After(time.Second)
			}
			store.records = true
			for range 10 {
				r.ask("/a", who)
				r.ask("/s", who+"-new")
				r.ask("/s", "somebody-else") // who hears why the store is left alone
				<-time.After(100 * time.Millisecond)
			}
			<-time.After(2 * time.Minute)
			r.ask("/s", who+"-new")
			var usage Outcome
			r.Usage(ctx, request("GET", "/a", who), &usage)
			log := r.log.String()
			if !strings.Contains(log, "no answer about") || strings.Count(log, `"cause"`) < 4 {
				t.Fatalf("%s: the log tells of no failure:\n%s", keys, log)
			}
			if keys != "plain" && (strings.Contains(log, who) || strings.Contains(log, "somebody-else")) {
				t.Errorf("%s: the log names the caller:\n%s", keys, log)
			}
			if keys == "plain" && !strings.Contains(log, who) {
				t.Errorf("%s: the log does not name the caller:\n%s", keys, log)
			}
		})
	}
	if err := (nameless{"text", weir.ErrBusy}); !errors.Is(err, weir.ErrBusy) || err.Error() != "text" {
		t.Error("what an error is gets lost")
	}
}
