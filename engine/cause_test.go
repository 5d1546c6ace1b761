package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// partly is a store that fails for some items, each in its own way.
type partly struct {
	*memstore.Store
	fails map[string]error // by the text of the key
}

func (s *partly) Caps() weir.Caps { return weir.Caps{} }
func (s *partly) Lock(weir.Key) (*weir.Cells, int64) {
	return nil, 0
}

func (s *partly) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if err := s.fails[item.String()]; err != nil {
		return -1, 0, err
	}
	return s.Store.Apply(ctx, item, tries, state)
}

// The cause in a log line is that of the line's own limit and caller, whichever
// item failed last.
func TestACauseIsThatOfItsOwnKey(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, tenant: jwt.org}
application:
  limits:
    - {name: mine, match: GET /x, by: account, limit: 9/h, on_store_error: allow}
    - {name: ours, match: GET /x, by: everyone, limit: 9/h, on_store_error: allow}
    - {name: others, match: GET /y, by: account, limit: 9/h, on_store_error: allow}
`
	// The causes of two keys that share a place are not kept apart.
	var f failures
	a, of := "a", func(sub string) *atomic.Pointer[storeFailure] { return f.place(weir.NewKey("account", sub)) }
	for of(a) == f.place(weir.NewKey("everyone", "all")) {
		a += "a"
	}
	store := &partly{Store: memstore.New(memstore.Options{}), fails: map[string]error{
		"account#" + a: errors.New("hot: nobody waits"), "everyone#all": errors.New("the answer was cut off"), "account#b": errors.New("hot as well"),
	}}
	r := newRig(t, text, func(o *Options) { o.Store, o.Deadline = store, time.Minute })
	r.ask("/x", a)
	r.ask("/y", "b")
	causes := map[string]string{}
	for line := range strings.Lines(r.log.String()) {
		var l struct{ Limit, Cause string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Cause != "" {
			causes[l.Limit] = l.Cause
		}
	}
	for limit, want := range map[string]string{"mine": "hot: nobody", "ours": "cut off", "others": "hot as well"} {
		if !strings.Contains(causes[limit], want) {
			t.Errorf("%s: cause %q, want %q\n%s", limit, causes[limit], want, r.log.String())
		}
	}
}

// What is wrong with one key alone is never said of another.
func TestFailuresOfOneKeyAreItsOwn(t *testing.T) {
	var f failures
	a, b := weir.NewKey("account", "a"), weir.NewKey("account", "b")
	if f.of(a) != nil {
		t.Error("a cause of nothing")
	}
	gone, hot := errors.New("connection refused"), fmt.Errorf("hot: %w", weir.ErrThrottled)
	f.add(a, hot)
	if f.of(a) != hot || f.of(b) != nil {
		t.Errorf("%v, %v", f.of(a), f.of(b))
	}
	f.add(a, gone)
	if f.of(a) != gone || f.of(b) != gone {
		t.Errorf("%v, %v", f.of(a), f.of(b))
	}
	for n := range 10_000 { // more keys than places
		f.add(weir.NewKey("account", fmt.Sprint(n)), hot)
	}
	if f.of(a) != gone || f.of(b) != gone {
		t.Errorf("among many: %v, %v", f.of(a), f.of(b))
	}
}
