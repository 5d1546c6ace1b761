package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// TestOneTripForWhatIsNotKnown: a process that knows nothing of a key decides in
// one trip, whether the key's bucket is full, in use or empty, and whether a
// window has begun: both writes are offered, and the server takes the one that holds.
func TestOneTripForWhatIsNotKnown(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	var trips atomic.Int64
	store, err := redisstore.Open("redis://"+server.Addr, redisstore.Options{Observer: &weir.Observer{Trip: func(context.Context, weir.Trip) { trips.Add(1) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, text := range []string{"1/d burst 4", "quota 4/d", "quota 4/year calendar", "sliding 4/90d"} {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		for n := range int64(6) {
			stranger := weir.NewLimiter(store, weir.Options{Deadline: time.Minute})
			trips.Store(0)
			d, err := stranger.Take(context.Background(), weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint(text))})
			if err != nil || d.Allowed != (n < 4) || d.Used != min(n+1, 4) || trips.Load() != 1 {
				t.Errorf("%s, call %d: %+v, %v in %d trips", text, n, d, err, trips.Load())
			}
		}
	}
}
