package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/storetest"
)

// account is what a limit must have counted by now, as far as that can be known.
type account struct {
	mu          sync.Mutex
	least, most int64
	log         []storetest.Admission
}

func (a *account) note(least, most, admitted int64, from time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.least += least
	a.most += most
	if admitted != 0 {
		a.log = append(a.log, storetest.Admission{From: from.UnixNano(), To: time.Now().UnixNano(), Cost: admitted})
	}
}

// Requests and replies are lost, doubled and delayed at random on the way to a
// real server, near the limit, for single calls and for a crowd, with others in
// between and with give-backs. What is counted lies between what was allowed and
// that plus what stayed unknown, and the limit holds in every interval.
func TestLossyWay(t *testing.T) {
	const faults = 40 // for each of twelve
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		for _, callers := range []int{1, 6} {
			for _, others := range []int{0, 1, 3} {
				f := newFaulty(t, server)
				met, allowed, refused, unknown, back := 0, 0, 0, 0, 0
				for round := 0; met < faults; round++ {
					limit := parse(t, fmt.Sprint("lossy-", round%4), []string{"1/d burst 12", "quota 12/d", "quota 12/year calendar", "sliding 12/90d"}[round%4])
					op := weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint(callers, "-", others, "-", round)), Cost: 1}
					a := &account{}
					var mu sync.Mutex // of random and of the counts
					streak := false   // faults of one write: others come in between once, as four nonces are enough for three of them
					random := rand.New(rand.NewPCG(uint64(callers*10+others), uint64(round)))
					var late []func() // requests that the next attempt overtakes
					arrive := func() {
						mu.Lock()
						all := late
						late = nil
						mu.Unlock()
						for _, request := range all {
							request()
						}
					}
					between := func() {
						for range others {
							from := time.Now()
							if d := take(f, f.other, op); d.Allowed {
								a.note(1, 1, 1, from)
							}
						}
					}
					f.through.Always("UpdateItem", func(r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
						mu.Lock()
						fate := random.IntN(12)
						first := !streak
						if streak = fate < 4; streak {
							met++
						}
						mu.Unlock()
						switch fate {
						case 0:
							return dynalite.DropBefore(r, next)
						case 1:
							resp, err := dynalite.DropAfter(r, next)
							if first {
								between()
							}
							return resp, err
						case 2:
							return dynalite.Duplicate(r, next)
						case 3: // on its way for so long that the next attempt overtakes it, or, when its call ends before, never there
							if others < 3 {
								mu.Lock()
								late = append(late, func() { _, _ = dynalite.DropAfter(r, next) })
								mu.Unlock()
							}
							return dynalite.DropBefore(r, next)
						}
						resp, err := next()
						arrive()
						return resp, err
					})
					l := weir.NewLimiter(f.store, weir.Options{Deadline: deadline})
					var wg sync.WaitGroup
					for range callers {
						wg.Go(func() {
							for range 30 / callers {
								from := time.Now()
								r, d, err := l.Reserve(context.Background(), op)
								mu.Lock()
								cancels := random.IntN(2) == 0
								switch {
								case err != nil:
									unknown++
								case d.Allowed:
									allowed++
								default:
									refused++
								}
								mu.Unlock()
								switch {
								case errors.Is(err, weir.ErrOutcomeUnknown):
									a.note(0, 1, 0, from)
								case err != nil: // not asked: too many faults in a row
								case !d.Allowed:
									if d.Reason != weir.ReasonLimit {
										t.Errorf("%+v", d)
									}
								default:
									a.note(1, 1, 1, from)
									if !cancels {
										continue
									}
									from = time.Now()
									most := int64(0)
									if err := r.Cancel(context.Background()); err == nil {
										most = -1
										mu.Lock()
										back++
										mu.Unlock()
									}
									a.note(-1, most, -1, from)
								}
							}
						})
					}
					wg.Wait()
					f.through.Clear()
					arrive()
					if n := used(t, f.other, op); n < a.least || n > a.most {
						t.Errorf("%d callers, %d others, %s: %d are counted, and it must be %d to %d", callers, others, limit, n, a.least, a.most)
					}
					if err := (storetest.Bound{Burst: 12, Tokens: 1, Per: 24 * time.Hour}).Check(a.log); err != nil {
						t.Errorf("%d callers, %d others, %s: %v", callers, others, limit, err)
					}
				}
				t.Logf("%d callers, %d others: %d faults; %d allowed, %d refused, %d unknown, %d given back", callers, others, met, allowed, refused, unknown, back)
				if allowed == 0 || refused == 0 || back == 0 {
					t.Error("that shows nothing")
				}
			}
		}
	})
}
