package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// However many are refused, the record holds a fixed number of them, and a flood
// costs no write each.
func TestDenialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
weir: 1
application:
  limits: [{name: calls, by: account, limit: 1/h}]
`, func(o *Options) { o.KeepDenials = true })
		records := r.o.Store.(weir.Records)
		refuse := func() string {
			a := &policy.Attributes{Method: "GET", Path: "/", Header: map[string][]string{"Sub": {"a"}}}
			for {
				o := new(Outcome)
				if r.Decide(context.Background(), a, o); !o.Served() {
					return o.DenialID()
				}
			}
		}
		kept := 0
		for range 100 {
			id := refuse()
			synctest.Wait()
			d, ok, err := FindDenial(context.Background(), records, id)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				kept++
				if d.Limit != "calls" || d.Max != 1 || *d.Used != 1 || d.KeyHash == "" || d.Reason != "limit" {
					t.Errorf("%+v", d)
				}
			}
		}
		if kept != denialsKept {
			t.Errorf("%d of 100 refusals of one second are kept, want %d", kept, denialsKept)
		}
		keys := map[string]bool{}
		for range 20_000 {
			keys[denialKey(denialID(rand.Uint64()))] = true
		}
		if len(keys) > denialPlaces || len(keys) < denialPlaces*9/10 {
			t.Errorf("%d places", len(keys))
		}
		<-time.After(time.Second)
		id := refuse()
		synctest.Wait()
		if _, ok, _ := FindDenial(context.Background(), records, id); !ok {
			t.Error("a refusal a second later is not kept")
		}
		if _, ok, err := FindDenial(context.Background(), records, "another"); ok || err != nil {
			t.Errorf("an id of nothing: %v, %v", ok, err)
		}
	})
}

// registry is a store that counts what is asked of its records, and can be slow or
// keep silent.
type registry struct {
	*remote
	silent       atomic.Bool
	took         time.Duration
	asked, atOne atomic.Int64 // questions, and those at the same time
	most         atomic.Int64
}

func (r *registry) ask(ctx context.Context) error {
	r.asked.Add(1)
	r.most.Store(max(r.most.Load(), r.atOne.Add(1)))
	defer r.atOne.Add(-1)
	if r.silent.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(r.took):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *registry) Get(ctx context.Context, key string) ([]byte, string, error) {
	if !strings.HasPrefix(key, "denial/") {
		return r.s.Get(ctx, key)
	}
	if err := r.ask(ctx); err != nil {
		return nil, "", err
	}
	return r.s.Get(ctx, key)
}

func (r *registry) Put(ctx context.Context, key string, value []byte, ifVersion string, expires time.Time) error {
	if err := r.ask(ctx); err != nil {
		return err
	}
	return r.s.Put(ctx, key, value, ifVersion, expires)
}

func (r *registry) List(ctx context.Context, prefix, cursor string, max int) ([]string, string, error) {
	return r.s.List(ctx, prefix, cursor, max)
}

const refusing = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
%s
edge: [{name: flood, by: ip, limit: 1/h, path: /edge}]
application:
  limits: [{name: calls, match: /calls, by: account, limit: 1/h, on_store_error: deny}]
`

func newRegistry(t *testing.T, extra string) (*registry, *rig) {
	s := &registry{remote: &remote{s: memstore.New(memstore.Options{})}}
	r := newRig(t, fmt.Sprintf(refusing, extra), func(o *Options) { o.Store, o.KeepDenials = s, true })
	return s, r
}

// What an edge rule refuses asks no store, not even to keep why; where edge rules
// count in the store, that is kept too.
func TestAnEdgeRefusalIsKeptNowhere(t *testing.T) {
	for extra, want := range map[string]int64{"": 0, "edge_store: shared": 2 * denialsKept} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newRegistry(t, extra)
			for range 20 {
				r.ask("/edge", "a")
			}
			synctest.Wait()
			if n := s.asked.Load(); n != want {
				t.Errorf("%q: the records were asked %d times, want %d", extra, n, want)
			}
		})
	}
}

// A refusal takes no time because it is kept: records that keep silent hold up one
// goroutine and no request, and are left alone; so is a store that is away.
func TestARefusalDoesNotWaitToBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newRegistry(t, "")
		r.ask("/calls", "a")
		s.silent.Store(true)
		began := time.Now()
		for range 100 {
			if o := r.ask("/calls", "a"); !o.Limited() {
				t.Fatal("served")
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("100 refusals took %v", took)
		}
		for range 60 {
			<-time.After(time.Second)
			r.ask("/calls", "a")
		}
		if n := s.asked.Load(); n > 40 || s.most.Load() != 1 {
			t.Errorf("records that keep silent were asked %d times in a minute, %d at once", n, s.most.Load())
		}
		s.silent.Store(false)
		<-time.After(5 * time.Second)
		o := r.ask("/calls", "a")
		synctest.Wait()
		if _, ok, err := FindDenial(context.Background(), s.s, o.DenialID()); !ok || err != nil {
			t.Errorf("records that answer again: %v, %v", ok, err)
		}

		s.fails = weir.ErrUnreachable
		for range 20 {
			r.ask("/calls", "b")
			<-time.After(time.Second)
		}
		asked := s.asked.Load()
		for range 20 {
			if o := r.ask("/calls", "b"); o.Status != 503 {
				t.Errorf("status %d", o.Status)
			}
			r.ask("/edge", "b")
			<-time.After(100 * time.Millisecond)
		}
		if n := s.asked.Load(); n != asked {
			t.Errorf("a store that is away was asked to keep %d refusals", n-asked)
		}
	})
}

// Closing writes what still waits.
func TestCloseWritesTheRefusalsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newRegistry(t, "")
		s.took = 50 * time.Millisecond
		r.ask("/calls", "a")
		var ids []string
		for range denialsKept {
			ids = append(ids, r.ask("/calls", "a").DenialID())
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if _, ok, err := FindDenial(context.Background(), s.s, id); !ok || err != nil {
				t.Errorf("%s: %v, %v", id, ok, err)
			}
		}
	})
}

// Closing ends in time although the records are slow, or keep silent.
func TestCloseEndsInTime(t *testing.T) {
	for name, trouble := range map[string]func(*registry){
		"silent": func(s *registry) { s.silent.Store(true) },
		"slow":   func(s *registry) { s.took = denialTime * 9 / 20 }, // to read a place, and again to write it
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newRegistry(t, "")
			r.ask("/calls", "a")
			trouble(s)
			for range denialsKept {
				r.ask("/calls", "a")
			}
			began := time.Now()
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > denialTime {
				t.Errorf("%s: closing took %v", name, took)
			}
		})
	}
}

// When the same call would pass is not what the caller was told, where that was
// lengthened, and is not said of a wait for calls under way.
func TestWhenARefusedCallWouldPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newRegistry(t, "retry_after_jitter: 10m")
		r.ask("/calls", "a")
		at := time.Now().Add(time.Hour)
		<-time.After(time.Minute)
		for range 3 {
			o := r.ask("/calls", "a")
			synctest.Wait()
			d, ok, err := FindDenial(context.Background(), s.s, o.DenialID())
			if !ok || err != nil || !d.RetryAt.Equal(at) || d.RetryAfter != Seconds(o.Speaks().RetryAfter) {
				t.Errorf("%+v, %v; want %v", d, err, at)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		r := newRig(t, `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits: [{name: calls, by: account, limit: quota 1/h, count: on_success}]
`, func(o *Options) { o.Store, o.KeepDenials = store, true })
		under := r.ask("/", "a")
		o := r.ask("/", "a")
		synctest.Wait()
		d, ok, err := FindDenial(context.Background(), store, o.DenialID())
		if !ok || err != nil || !d.RetryAt.IsZero() || d.Reason != "in flight" || d.RetryAfter != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		under.Release()
	})
}
