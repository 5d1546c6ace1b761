package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/plan"
)

// faulty is a limiter behind a Transport, and one beside it that is undisturbed.
type faulty struct {
	*testing.T
	through *dynalite.Transport
	store   *dynamostore.Store
	limiter *weir.Limiter
	other   *weir.Limiter
}

func newFaulty(t *testing.T, server *dynalite.Server) *faulty {
	t.Helper()
	f := &faulty{T: t, through: dynalite.NewTransport(nil)}
	f.store = open(t, clientOf(t, server, f.through), dynamostore.Options{})
	f.limiter = limiterOn(f.store, weir.Options{})
	f.other = limiterOn(open(t, clientOf(t, server, nil), dynamostore.Options{}), weir.Options{})
	return f
}

func (f *faulty) wantUsed(op weir.Op, want int64) {
	f.Helper()
	if got := used(f, f.other, op); got != want {
		f.Errorf("%d are used, want %d", got, want)
	}
}

// lossy are faults after which the caller can't know what became of a write.
var lossy = map[string]struct {
	fault   dynalite.Fault
	applied bool
}{
	"request lost":                  {dynalite.DropBefore, false},
	"reply lost":                    {dynalite.DropAfter, true},
	"reply cut at once":             {dynalite.CutReply(0), true},
	"reply cut in the middle":       {dynalite.CutReply(70), true},
	"500 after the write":           {dynalite.FailAfter, true},
	"500 before the write":          {dynalite.Reply(500, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"internal"}`), false},
	"503":                           {dynalite.Reply(503, `{"__type":"com.amazonaws.dynamodb.v20120810#ServiceUnavailable","message":"unavailable"}`), false},
	"502 of something in between":   {dynalite.Reply(502, `<html>Bad Gateway</html>`), false},
	"200 that is no JSON":           {dynalite.Reply(200, `<html>`), false},
	"sent twice on its way":         {dynalite.Duplicate, true},
	"sent twice, both replies lost": {dropTwice, true},
}

func dropTwice(r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
	return dynalite.DropAfter(r, func() (*http.Response, error) { return dynalite.Duplicate(r, next) })
}

var everyKind = []string{"1/d burst 10", "quota 10/d", "quota 10/year calendar", "sliding 10/90d"}

// B149: whatever becomes of the first attempt, and whoever writes before the
// second, a call that was applied is charged once and allowed. One that was not
// applied may end as unknown. None is refused.
func TestCase_B149_B151_LostReplyIsChargedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		f := newFaulty(t, server)
		for name, loss := range lossy {
			for _, text := range everyKind {
				for _, others := range []int64{0, 1, 3} {
					what := fmt.Sprintf("%s, %s, %d others", name, text, others)
					op := weir.Op{Limit: parse(t, "lost", text), Key: weir.NewKey("account", what)}
					d, between, err := f.takeTwice(op, loss.fault, others)
					switch {
					case err == nil && d.Allowed && d.Remaining == 9-between:
						f.wantUsed(op, 1+between)
					case errors.Is(err, weir.ErrOutcomeUnknown) && !loss.applied && between > 0:
						f.wantUsed(op, between)
					default:
						t.Errorf("%s: %+v, %v", what, d, err)
					}
					if err != nil && strings.Contains(err.Error(), "others") {
						t.Errorf("%s: the key is in the error %v", what, err)
					}
				}
			}
		}
	})
}

// takeTwice takes with a fault at the first attempt, and lets others take before
// the second. between is how many did: none when there was no second attempt.
func (f *faulty) takeTwice(op weir.Op, fault dynalite.Fault, others int64) (d weir.Decision, between int64, err error) {
	defer f.through.Clear()
	arrived, release := make(chan struct{}), make(chan struct{})
	f.through.Script("UpdateItem", fault, dynalite.Hold(arrived, release))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, err = f.limiter.Take(context.Background(), op)
	}()
	select {
	case <-arrived:
		for ; between < others; between++ {
			if d := take(f, f.other, op); !d.Allowed {
				f.Errorf("another's call was refused: %+v", d)
			}
		}
		close(release)
		<-done
	case <-done:
	}
	return d, between, err
}

// When every attempt is lost the outcome is unknown: neither a denial nor a
// success, and charged once at most. What to do then is the op's choice.
func TestOutcomeThatStaysUnknown(t *testing.T) {
	f := newFaulty(t, servers.full)
	rate := parse(t, "unknown", "1/d burst 10")
	for name, fault := range map[string]dynalite.Fault{"applied": dynalite.DropAfter, "not applied": dynalite.DropBefore} {
		want := int64(0)
		if name == "applied" {
			want = 1
		}
		f.through.Always("UpdateItem", fault)
		for mode, check := range map[weir.FailureMode]func(d weir.Decision, err error) bool{
			weir.FailError: func(_ weir.Decision, err error) bool { return errors.Is(err, weir.ErrOutcomeUnknown) },
			weir.FailAllow: func(d weir.Decision, err error) bool { return err == nil && d.Allowed && d.Degraded && d.Unknown },
			weir.FailDeny: func(d weir.Decision, err error) bool {
				return err == nil && !d.Allowed && d.Degraded && d.Reason == weir.ReasonUnavailable
			},
		} {
			f.limiter = limiterOn(f.store, weir.Options{}) // its breaker closed
			op := weir.Op{Limit: rate, Key: weir.NewKey("account", fmt.Sprint(name, mode)), OnFail: mode}
			if d, err := f.limiter.Take(context.Background(), op); !check(d, err) {
				t.Errorf("%s, mode %d: %+v, %v", name, mode, d, err)
			}
			f.wantUsed(op, want)
		}
		f.through.Clear()
	}
}

// A give-back whose reply is lost is given back once at most.
func TestGiveBackAtMostOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		f := newFaulty(t, server)
		for name, loss := range lossy {
			for _, text := range everyKind {
				op := weir.Op{Limit: parse(t, "back", text), Key: weir.NewKey("account", name+text), Cost: 2}
				r, d, err := f.limiter.Reserve(context.Background(), op)
				if err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				take(t, f.other, op)
				f.through.Script("UpdateItem", loss.fault)
				err = r.Cancel(context.Background())
				f.through.Clear()
				left := used(t, f.other, op)
				if left != 2 && (err == nil || left != 4) || err == nil && left != 2 {
					t.Errorf("%s, %s: %d are used, and Cancel said %v", name, text, left, err)
				}
			}
		}
	})
}

// B050: a busy key is no denial. A key is tried again, at a pace that falls with
// every batch, until the deadline; throttling of the whole table is passed on at once. Either
// way the error is passed on as what it is.
func TestCase_B050_ThrottlingIsNoDenial(t *testing.T) {
	f := newFaulty(t, servers.full)
	op := weir.Op{Limit: parse(t, "throttled", "1/d burst 5"), Key: weir.NewKey("account", fmt.Sprint("customer-42-", rand.Uint64()))}
	allowed := int64(0)
	for _, c := range []struct {
		exception, reason string
		ofKey             bool
	}{
		{"ProvisionedThroughputExceededException", "TableWriteKeyRangeThroughputExceeded", true},
		{"ThrottlingException", "TableWriteKeyRangeThroughputExceeded", true},
		{"ProvisionedThroughputExceededException", "", true},
		{"ThrottlingException", "", true},
		{"ThrottlingException", "TableWriteMaxOnDemandThroughputExceeded", false},
		{"ProvisionedThroughputExceededException", "TableWriteProvisionedThroughputExceeded", false},
		{"RequestLimitExceeded", "TableWriteAccountLimitExceeded", false},
		{"RequestLimitExceeded", "", false},
	} {
		refused := dynalite.Throttle(c.exception, c.reason)
		f.through.Always("UpdateItem", refused)
		var state weir.Cells
		_, _, err := f.store.Apply(context.Background(), op.Key, []weir.Write{{Keep: time.Hour}}, &state)
		if err == nil || errors.Is(err, weir.ErrThrottled) != c.ofKey || errors.Is(err, weir.ErrOutcomeUnknown) || errors.Is(err, weir.ErrBusy) {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if strings.Contains(err.Error(), "customer-42") || !strings.Contains(err.Error(), tableOf(t)) || !c.ofKey && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%+v: the error must name the table and what is busy in it, and not the key: %v", c, err)
		}
		f.through.Clear()
		// A busy key has its turn after three refusals; a busy table is a failure,
		// and is not asked again.
		f.limiter = weir.NewLimiter(f.store, weir.Options{Deadline: time.Minute})
		f.through.Script("UpdateItem", refused, refused, refused)
		before := f.through.Calls("UpdateItem")
		deny := op
		deny.OnFail = weir.FailDeny
		d := take(t, f.limiter, deny)
		n := f.through.Calls("UpdateItem") - before
		if c.ofKey {
			allowed++
			if n < 4 || n > 5 || !d.Allowed || d.Degraded || d.Used != allowed {
				t.Errorf("%+v: asked %d times: %+v", c, n, d)
			}
		} else if n != 1 || d.Allowed || d.Reason != weir.ReasonUnavailable || !d.Degraded {
			t.Errorf("%+v: asked %d times: %+v", c, n, d)
		}
		f.through.Clear()
	}
	f.wantUsed(op, allowed)
}

// B154, B155: the SDK has no retries to run out of, and none to do in secret.
func TestCase_B154_B155_NoRetriesOfTheSDK(t *testing.T) {
	f := newFaulty(t, servers.full)
	parse(t, "once", "quota 5/d")
	field, ok := weir.ParseField("once.c")
	if !ok {
		t.Fatal("once.c is no field")
	}
	key := weir.NewKey("account", "customer-42")
	apply := func(guard int64) (int, error) {
		applied, _, err := f.store.Apply(context.Background(), key, []weir.Write{{
			If: []weir.Cond{{Field: field, Cmp: plan.AtMost, Value: guard, OrAbsent: true}},
			Do: []weir.Act{{Field: field, Do: plan.Add, Value: 1}}, Keep: time.Hour,
		}}, new(weir.Cells))
		return applied, err
	}
	if applied, err := apply(0); applied != 0 || err != nil {
		t.Fatal(applied, err)
	}
	for range 200 { // the SDK would have had 500/14 of them
		if applied, err := apply(0); applied != -1 || err != nil {
			t.Fatal(applied, err)
		}
	}
	for name, loss := range lossy {
		if name == "sent twice on its way" {
			continue // a write without a nonce, sent twice, is two writes
		}
		before := f.through.Calls("UpdateItem")
		f.through.Script("UpdateItem", loss.fault)
		if _, err := apply(1000); !errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if n := f.through.Calls("UpdateItem") - before; n != 1 {
			t.Errorf("%s: sent %d times", name, n)
		}
	}
	if applied, err := apply(1000); applied != 0 || err != nil {
		t.Errorf("afterwards: %d, %v", applied, err)
	}
}

// B148: a reply that makes no sense is an error, never a decision.
func TestCase_B148_MalformedReplies(t *testing.T) {
	f := newFaulty(t, servers.full)
	op := weir.Op{Limit: parse(t, "malformed", "1/d burst 5"), Key: weir.NewKey("account", "customer-42")}
	bodies := []string{
		``, `null`, `[]`, `"`, `{`, `{"Attributes":[]}`, `{"Attributes":{"malformed.t":{"N":"abc"}}}`, `{"Attributes":{"malformed.t":{"N":""}}}`,
		`{"Attributes":{"malformed.t":{"N":"9223372036854775808"}}}`, `{"Attributes":{"malformed.t":{"S":"1"}}}`, `{"Attributes":{"malformed.t":{"NULL":true}}}`,
		`{"Attributes":{"malformed.t":{"N":"1e400"}}}`, `{"Attributes":{"malformed.t":{"L":[]}}}`,
	}
	random := rand.New(rand.NewPCG(1, 2))
	whole := `{"Attributes":{"malformed.t":{"N":"1796000000000000000"},"malformed.i":{"N":"86400000000000"},"pk":{"S":"account#customer-42"}},"ConsumedCapacity":{"CapacityUnits":1}}`
	for range 200 {
		b := []byte(whole)
		for range 1 + random.IntN(3) {
			b[random.IntN(len(b))] = byte(random.IntN(256))
		}
		bodies = append(bodies, string(b[:random.IntN(len(b)+1)]))
	}
	for _, body := range bodies {
		for status := range map[int]bool{200: true, 400: true} {
			f.through.Always("UpdateItem", dynalite.Reply(status, body))
			d, err := f.limiter.Take(context.Background(), op)
			if err == nil && !d.Allowed {
				t.Errorf("status %d, %q: refused: %+v", status, body, d)
			}
			if status == 400 && err == nil {
				t.Errorf("status 400, %q: %+v", body, d)
			}
			if err != nil && strings.Contains(err.Error(), "customer-42") {
				t.Errorf("%q: the key is in the error %v", body, err)
			}
		}
	}
	f.through.Clear()
	for _, body := range bodies[:13] {
		f.through.Always("GetItem", dynalite.Reply(200, strings.Replace(body, "Attributes", "Item", 1)))
		if ds, err := f.limiter.Peek(context.Background(), op); err == nil && strings.Contains(body, "malformed.t") {
			t.Errorf("GetItem, %q: %+v", body, ds)
		}
	}
}

// B038: a wrong clock is told from wrong credentials.
func TestCase_B038_WrongClockIsNamed(t *testing.T) {
	f := newFaulty(t, servers.full)
	op := weir.Op{Limit: parse(t, "signed", "1/d"), Key: weir.NewKey("account", "customer-42")}
	refuse := func(ahead time.Duration) dynalite.Fault {
		return func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			body := `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired"}`
			return &http.Response{
				StatusCode: 400, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader(body)),
				Header: http.Header{"Date": {time.Now().Add(ahead).UTC().Format(http.TimeFormat)}},
			}, nil
		}
	}
	began := time.Now()
	f.through.Script("UpdateItem", refuse(15*time.Minute), refuse(0))
	if _, err := f.limiter.Take(context.Background(), op); err == nil || !strings.Contains(err.Error(), "clock is off") || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("15 minutes slow: %v", err)
	}
	if skew := f.store.Skew(); (skew - 15*time.Minute).Abs() > 5*time.Second+time.Since(began) {
		t.Errorf("the skew is %v, want 15m", skew)
	}
	if _, err := f.limiter.Take(context.Background(), op); err == nil || strings.Contains(err.Error(), "clock is off") || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("with a right clock: %v", err)
	}
}

// A call that its caller gives up while it is under way may have been applied.
func TestAbandonedCall(t *testing.T) {
	f := newFaulty(t, servers.full)
	op := weir.Op{Limit: parse(t, "abandoned", "1/d burst 5"), Key: weir.NewKey("account", "customer-42")}
	arrived := make(chan struct{})
	f.through.Script("UpdateItem", dynalite.HoldReply(arrived, nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := f.limiter.Take(ctx, op)
		done <- err
	}()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	f.wantUsed(op, 1)
}

// Nobody listens: nothing was sent, and so nothing is unknown.
func TestServerThatIsGone(t *testing.T) {
	server := dynalite.Start(t, dynalite.Options{})
	client := clientOf(t, server, nil)
	store := open(t, client, dynamostore.Options{})
	server.Close()
	op := weir.Op{Limit: parse(t, "gone", "1/d"), Key: weir.NewKey("account", "customer-42")}
	l := limiterOn(store, weir.Options{})
	for range 2 { // over the connection that was open, and over a new one
		if d, err := l.Take(context.Background(), op); err == nil || strings.Contains(err.Error(), "customer-42") {
			t.Errorf("%+v, %v", d, err)
		}
	}
	l = limiterOn(store, weir.Options{}) // its breaker closed
	if _, err := l.Take(context.Background(), op); errors.Is(err, weir.ErrOutcomeUnknown) || !errors.Is(err, weir.ErrUnreachable) {
		t.Errorf("a refused connection: %v", err)
	}
	if _, err := l.Peek(context.Background(), op); !errors.Is(err, weir.ErrUnreachable) && err.Error() != "weir: store: not asked, because it failed on the last calls" {
		t.Errorf("a refused connection: %v", err)
	}
}

// A connection that is refused for a moment, as while a server restarts, is
// tried again within the deadline, for takes and for give-backs.
func TestRefusedForAMoment(t *testing.T) {
	f := newFaulty(t, servers.full)
	op := weir.Op{Limit: parse(t, "moment", "1/d burst 5"), Key: weir.NewKey("account", "customer-42")}
	refused := func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
		conn, err := net.Dial("tcp", "127.0.0.1:1") // where nobody listens
		if err == nil {
			conn.Close()
			t.Error("somebody listens on port 1")
		}
		return nil, err
	}
	f.through.Script("UpdateItem", refused, refused, refused)
	r, d, err := f.limiter.Reserve(context.Background(), op)
	if err != nil || !d.Allowed || d.Remaining != 4 || f.through.Calls("UpdateItem") != 4 {
		t.Errorf("%+v, %v after %d attempts", d, err, f.through.Calls("UpdateItem"))
	}
	f.wantUsed(op, 1)
	f.through.Script("UpdateItem", refused, refused)
	if err := r.Cancel(context.Background()); err != nil || f.through.Calls("UpdateItem") != 7 {
		t.Errorf("%v after %d attempts", err, f.through.Calls("UpdateItem"))
	}
	f.wantUsed(op, 0)
	// One that lasts ends as unreachable, and not as unknown.
	f.through.Always("UpdateItem", refused)
	if _, err := f.limiter.Take(context.Background(), op); !errors.Is(err, weir.ErrUnreachable) || errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	f.wantUsed(op, 0)
}
