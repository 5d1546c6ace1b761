package dynamostore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
)

// someDay is no round second.
var someDay = time.Date(2027, 3, 14, 15, 9, 26, 535897932, time.UTC)

// timed is a store and a limiter by one clock that a test moves.
type timed struct {
	*testing.T
	client  *dynamodb.Client
	clock   *clock
	store   *dynamostore.Store
	limiter *weir.Limiter
}

func newTimed(t *testing.T, server *dynalite.Server, limits ...weir.Limit) timed {
	t.Helper()
	c := newClock(someDay)
	client := clientOf(t, server, nil)
	store := open(t, client, dynamostore.Options{Now: c.now})
	return timed{t, client, c, store, limiterOn(store, weir.Options{Limits: limits, Now: c.now})}
}

func (x timed) expiry(key weir.Key) int64 {
	x.Helper()
	at, err := strconv.ParseInt(number(x, item(x, x.client, tableOf(x), key.String()), "expiresAt"), 10, 64)
	if err != nil {
		x.Fatal(err)
	}
	return at
}

// delete is what DynamoDB's time to live does to an item whose time is over.
func (x timed) delete(key weir.Key) {
	x.Helper()
	table := tableOf(x)
	_, err := x.client.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{
		TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key.String()}},
	})
	if err != nil {
		x.Fatal(err)
	}
}

// seeded is random, and says by what.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A6: now + time to full + 3600, in whole seconds, rounded up, whatever the
// limit: B065 wrote nanoseconds, B067 overflowed 32 bits, B073 rounded to zero.
func TestSpec_A06_ExpiryInWholeSeconds(t *testing.T) {
	texts := map[string]int64{ // seconds to full
		"0.5/s burst 10": 20, "3/s burst 1": 1, "1000000/s": 1, "1000000/s burst 1": 1, "7/m burst 3": 26, "1/30m": 1800, "1/d": 86400,
		"1/100d burst 300": 300 * 100 * 86400, "quota 100/d": 86400, "quota 1/s": 1, "sliding 10/5m": 600,
	}
	n := 0
	for text, full := range texts {
		n++
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			limit := parse(t, "expiring", text)
			x := newTimed(t, servers.full, limit)
			key := weir.NewKey("account", "customer-42")
			take(t, x.limiter, weir.Op{Limit: limit, Key: key})
			if got, want := x.expiry(key), someDay.Unix()+full+3600; got != want {
				t.Errorf("%s: expiresAt is %d, that is %d s off", text, got, got-want)
			}
			// Every write renews it; it is never earlier than the limit needs.
			x.clock.advance(1500 * time.Millisecond)
			take(t, x.limiter, weir.Op{Limit: limit, Key: key})
			if got, want := x.expiry(key), x.clock.now()/1e9+full+3600; got != want && got != someDay.Unix()+full+3600 {
				t.Errorf("%s: later expiresAt is %d, want %d", text, got, want)
			}
		})
	}
}

func TestCase_B065_B067_B073_AnyLimitHasASoundExpiry(t *testing.T) {
	random := seeded(t)
	x := newTimed(t, servers.full)
	for i := range 150 {
		text := fmt.Sprintf("%d/%d%s burst %d", 1+random.Int64N(1000), 1+random.Int64N(400), []string{"s", "m", "h", "d"}[random.IntN(4)], 1+random.Int64N(100_000))
		limit, err := weir.ParseLimit(text)
		if err != nil {
			continue // out of bounds, and refused for that
		}
		l := limiterOn(x.store, weir.Options{Limits: []weir.Limit{limit}, Now: x.clock.now})
		key := weir.NewKey("account", fmt.Sprint(i))
		if d := take(t, l, weir.Op{Limit: limit, Key: key}); !d.Allowed {
			t.Errorf("%s: the first call is refused", text)
		}
		left := time.Duration(x.expiry(key)-someDay.Unix()) * time.Second
		if left < limit.Horizon()+time.Hour || left > limit.Horizon()+time.Hour+time.Second {
			t.Errorf("%s: expires after %v, and is full after %v", text, left, limit.Horizon())
		}
	}
}

// A6: the longest limit that may share the item decides, not the one that is
// asked; a short bucket must not let a month's quota be forgotten. B076.
func TestSpec_A06_ExpiryOfTheLongestLimit(t *testing.T) {
	short, long := parse(t, "short", "1/s"), parse(t, "long", "quota 30/h")
	x := newTimed(t, servers.full, short, long)
	key := weir.NewKey("account", "customer-42")
	take(t, x.limiter, weir.Op{Limit: long, Key: key})
	x.clock.advance(10 * time.Second)
	take(t, x.limiter, weir.Op{Limit: short, Key: key})
	if got, want := x.expiry(key), x.clock.now()/1e9+2*3600; got != want {
		t.Errorf("expiresAt is %d, want %d", got, want)
	}
}

func TestCase_B076_LimitsOfOneItemDontDisturbEachOther(t *testing.T) {
	a, b := parse(t, "a", "1/s"), parse(t, "b", "quota 30/h")
	x := newTimed(t, servers.full, a, b)
	key := weir.NewKey("account", "customer-42")
	for i := range 10 {
		take(t, x.limiter, weir.Op{Limit: a, Key: key})
		if d := take(t, x.limiter, weir.Op{Limit: b, Key: key}); d.Remaining != int64(29-i) {
			t.Errorf("hit %d: %d remain, want %d", i, d.Remaining, 29-i)
		}
		x.clock.advance(3 * time.Second)
	}
}

// Nothing in the table lives for ever, whatever was done to it and however it
// broke off.
func TestCase_B061_B062_B064_EveryItemHasAnExpiry(t *testing.T) {
	f := newFaulty(t, servers.full)
	ctx := context.Background()
	limits := []weir.Limit{parse(t, "e-rate", "1/h burst 3"), parse(t, "e-quota", "quota 3/h"), parse(t, "e-day", "quota 3/d calendar"), parse(t, "e-slide", "sliding 3/h")}
	for i, limit := range limits {
		for name, loss := range lossy {
			op := weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint(name, i))}
			f.through.Script("UpdateItem", loss.fault)
			r, d, err := f.limiter.Reserve(ctx, op)
			f.through.Clear()
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			f.through.Script("UpdateItem", loss.fault)
			_ = r.Settle(ctx, 2) // its outcome may be unknown: what counts is what it leaves
			f.through.Clear()
			for range 3 {
				take(t, f.limiter, op)
			}
			take(t, f.limiter, weir.Op{Limit: limit, Key: op.Key, Cost: 9})
			if err := f.limiter.Reset(ctx, op.Key); err != nil {
				t.Fatal(err)
			}
			if err := f.limiter.Reset(ctx, weir.NewKey("account", fmt.Sprint("nobody", name, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	client, table, items := clientOf(t, servers.full, nil), tableOf(t), 0
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range page.Items {
			items++
			at, err := strconv.ParseInt(number(t, got, "expiresAt"), 10, 64)
			if now := time.Now().Unix(); err != nil || at < now+3600 || at > now+10*86400 {
				t.Errorf("an item expires at %d, now is %d: %v", at, now, names(got))
			}
		}
	}
	if want := len(limits) * len(lossy); items != want {
		t.Errorf("%d items are in the table, want %d: a reset of nobody leaves none", items, want)
	}
}

// An item that is over and not deleted is worth what a deleted one is: nothing
// (B070, B071). One that is not over is not deleted, as every write renews it
// (B068). So the same calls on an item that is deleted at its expiry, and on one
// that never is, are decided alike.
func TestCase_B068_B070_B071_DeletionDecidesNothing(t *testing.T) {
	limits := []weir.Limit{parse(t, "n-rate", "1/m burst 5"), parse(t, "n-quota", "quota 5/5m"), parse(t, "n-day", "quota 20/d calendar"), parse(t, "n-slide", "sliding 10/10m")}
	x := newTimed(t, servers.full, limits[0], limits[1], limits[3])
	random := seeded(t)
	kept, deleted := weir.NewKey("account", "kept"), weir.NewKey("account", "deleted")
	deletions, refusals := 0, 0
	for i := range 400 {
		if item(t, x.client, tableOf(t), deleted.String()) != nil && x.expiry(deleted) <= x.clock.now()/1e9 {
			x.delete(deleted)
			deletions++
		}
		limit := []weir.Limit{limits[0], limits[1], limits[3]}[random.IntN(3)]
		cost := 1 + random.Int64N(3)
		a := take(t, x.limiter, weir.Op{Limit: limit, Key: kept, Cost: cost})
		b := take(t, x.limiter, weir.Op{Limit: limit, Key: deleted, Cost: cost})
		if a != b {
			t.Fatalf("call %d: the item that was kept says %+v, the one that was deleted at its expiry %+v", i, a, b)
		}
		if !a.Allowed {
			refusals++
		}
		switch {
		case i%40 == 39: // beyond every expiry, so that there always are deletions
			x.clock.advance(3 * time.Hour)
		case random.IntN(20) == 0:
			x.clock.advance(time.Duration(random.Int64N(int64(3 * time.Hour))))
		default:
			x.clock.advance(time.Duration(random.Int64N(int64(time.Minute))))
		}
	}
	if deletions < 3 || refusals < 10 {
		t.Errorf("%d deletions and %d refusals: that tests nothing", deletions, refusals)
	}
}

// Counting inside a window moves its end neither way.
func TestCase_B058_B059_WindowEndsWhenItDid(t *testing.T) {
	x := newTimed(t, servers.full)
	op := weir.Op{Limit: parse(t, "budget", "quota 2/m"), Key: weir.NewKey("account", "customer-42")}
	for i := range 200 { // one call every 30 s is two a minute, for as long as it likes
		if d := take(t, x.limiter, op); !d.Allowed {
			t.Fatalf("call %d: %+v", i, d)
		}
		x.clock.advance(30 * time.Second)
	}
	full := weir.Op{Limit: parse(t, "full", "quota 10/m"), Key: op.Key}
	for i := range 20 {
		d := take(t, x.limiter, full)
		if want := time.Minute - time.Duration(i)*3*time.Second; d.ResetAfter != want || d.Allowed != (i < 10) {
			t.Fatalf("call %d: %+v, want the window to end in %v", i, d, want)
		}
		x.clock.advance(3 * time.Second)
	}
	if d := take(t, x.limiter, full); !d.Allowed || d.Remaining != 9 {
		t.Errorf("the next window: %+v", d)
	}
}
