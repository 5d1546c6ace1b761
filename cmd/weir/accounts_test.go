package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

const versioned = `weir: 1
auth: {jwt: {hs256_secret_env: TEST_SECRET}}
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    order: [free]
    free@1: {orders: quota 1000/day}
    free@2: {since: %s, orders: quota 2000/day}
  operations: {orders: {match: POST /orders}}
`

// While accounts are moved, calls go on: every call is counted once, nobody is
// refused, and in the end everybody has the new version.
func TestMigrateWhileCallsGoOn(t *testing.T) {
	const accounts, callers, rounds = 50, 4, 10
	store := memstore.New(memstore.Options{})
	defer store.Close()
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), fmt.Sprintf(versioned, "2199-01-01"))
	p, err := loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64 // what the processes' clocks add, so that they read records anew
	engines := make([]*engine.Engine, 2)
	for i := range engines {
		engines[i], err = engine.New(engine.Options{Policy: p, Store: store, LogKey: []byte("k"), Deadline: patience,
			Now: func() int64 { return time.Now().UnixNano() + ahead.Load() },
			Identify: func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
				return policy.Identity{Claims: map[string]any{"sub": a.Host}}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer engines[i].Close()
	}
	call := func(e *engine.Engine, id string) int {
		o := new(engine.Outcome)
		e.Decide(context.Background(), &policy.Attributes{Method: "POST", Path: "/orders", Host: id, Header: map[string][]string{}}, o)
		if !o.Served() || len(o.Verdicts) != 1 {
			t.Errorf("%s: status %d, %v", id, o.Status, o.Err)
			return 0
		}
		return o.Verdicts[0].Rule.Version
	}
	id := func(n int) string { return fmt.Sprint("customer-", n) }
	for n := range accounts {
		if v := call(engines[n%2], id(n)); v != 1 {
			t.Fatalf("first seen with version %d", v)
		}
	}
	k := &counters{policy: p, file: file, store: "memory:", items: store, records: store, limiter: weir.NewLimiter(store, weir.Options{Limits: p.Limits()})}
	if err := k.readIndex(t.Context()); err != nil {
		t.Fatal(err)
	}
	migrate := func(dryRun bool) string {
		var out bytes.Buffer
		c := &common{format: "text", stdout: &out, stderr: io.Discard}
		if err := accountsMigrate(t.Context(), c, k, &migration{plan: "free", from: 1, to: 2, terms: account.Terms{At: time.Now()}, dryRun: dryRun}); err != nil {
			t.Error(err)
		}
		return out.String()
	}
	if n := strings.Count(migrate(true), "\n"); n != accounts {
		t.Errorf("a dry run names %d accounts, not %d", n, accounts)
	}
	if v := call(engines[0], id(0)); v != 1 {
		t.Errorf("after a dry run: version %d", v)
	}
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for range rounds {
				for n := range accounts {
					if v := call(engines[w%2], id(n)); v != 1 && v != 2 {
						t.Errorf("version %d", v)
					}
					ahead.Add(int64(time.Second))
				}
			}
		})
	}
	moved := migrate(false)
	wg.Wait()
	ahead.Add(int64(time.Minute))
	if n := strings.Count(moved, "\n"); n != accounts {
		t.Errorf("%d accounts were moved, not %d", n, accounts)
	}
	for n := range accounts {
		for i, e := range engines {
			if v := call(e, id(n)); v != 2 {
				t.Errorf("%s has version %d in process %d", id(n), v, i)
			}
		}
		key := weir.NewKey("account", id(n))
		seen, err := k.limiter.Peek(t.Context(), weir.Op{Limit: p.Limits()[0], Key: key})
		want := int64(1 + callers*rounds + 2)
		if n == 0 {
			want++
		}
		if err != nil || seen[0].Used != want {
			t.Errorf("%s: %d calls are counted, want %d (%v)", id(n), seen[0].Used, want, err)
		}
	}
}

// Two processes that do not agree since when a version is new see an account for
// the first time, in 64 calls at once.
func TestSpec_B12_TwoProcessesPinOneVersion(t *testing.T) {
	t.Setenv("TEST_SECRET", testSecret)
	db := dynalite.Start(t, dynalite.Options{})
	up := newRecorder(t, nil)
	var processes []*process
	for _, since := range []string{"2199-01-01", "2020-01-01"} {
		file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), fmt.Sprintf(versioned, since))
		processes = append(processes, startWeir(t, []string{"TEST_SECRET=" + testSecret}, "proxy", "--to", up.URL, "-c", file, "--listen", "127.0.0.1:0", "-q",
			"--store", "dynamodb:pins?region=us-east-1&create=true&endpoint="+db.URL))
	}
	const each = 64
	for round := range 3 {
		who := token(t, jwt.MapClaims{"sub": fmt.Sprint("customer-", round)})
		var seen [2]atomic.Int64 // of version 1 and 2, which their limits tell
		var wg sync.WaitGroup
		began := make(chan struct{})
		for n := range each {
			wg.Go(func() {
				<-began
				r, err := http.NewRequest("POST", processes[n%2].url+"/orders", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", who)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				switch policy := res.Header.Get("RateLimit-Policy"); {
				case strings.Contains(policy, "q=1000;"):
					seen[0].Add(1)
				case strings.Contains(policy, "q=2000;"):
					seen[1].Add(1)
				default:
					t.Errorf("status %d, %q", res.StatusCode, policy)
				}
			})
		}
		close(began)
		wg.Wait()
		one, two := seen[0].Load(), seen[1].Load()
		if one+two != each || one != 0 && two != 0 {
			t.Errorf("round %d: %d calls of version 1, %d of version 2", round, one, two)
		}
	}
	for _, p := range processes {
		p.end(syscall.SIGTERM)
	}
}
