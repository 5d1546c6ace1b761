package lambdalimit

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
)

// remote is a store behind a network, whose clock is behind.
type remote struct{ weir.Store }

func (remote) Skew() time.Duration { return -3 * time.Second }

// A clock that is off makes buckets refill too early or too late: an alarm looks
// at it.
func TestSkewIsAMetric(t *testing.T) {
	for name, c := range map[string]struct {
		store weir.Store
		want  float64
	}{
		"a store that tells":         {remote{memstore.New(memstore.Options{})}, 3000},
		"a store that does not tell": {struct{ weir.Store }{memstore.New(memstore.Options{})}, 0},
	} {
		var metrics bytes.Buffer
		e := newEngine(t, simple, func(o *engine.Options) { o.Store = c.store })
		f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 201}, nil }, e, Options{Metrics: &metrics})
		if _, err := f(withRequest("r1"), httpEvent("POST", "/", "customer-42")); err != nil {
			t.Fatal(err)
		}
		if got := lines(t, &metrics); len(got) != 1 || got[0]["SkewMs"] != c.want {
			t.Errorf("%s: %s", name, metrics.String())
		}
	}
}
