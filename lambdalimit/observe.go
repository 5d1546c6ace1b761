package lambdalimit

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

type identify = func(context.Context, *policy.Attributes) (policy.Identity, error)

// NewEngine makes an engine that knows events: call it once per process. It sets
// what o leaves open, and puts itself before what o has:
//
//   - Identify asks the event first, and o.Identify for callers whom it does not
//     know, such as those of a function URL that sends a token of its own;
//   - Logger writes JSON to standard error, or what o.Logger does, with the
//     request id;
//   - LogKey is WEIR_LOG_KEY of the environment, so that all instances of the
//     function write the same hash for a caller;
//   - Observer measures trips to the store.
func NewEngine(o engine.Options) (*engine.Engine, error) {
	own := o.Identify
	clock, _ := o.Store.(interface{ Skew() time.Duration })
	o.Identify = func(ctx context.Context, a *policy.Attributes) (policy.Identity, error) {
		if c := callOf(ctx); c != nil {
			if clock != nil {
				c.skew = clock.Skew
			}
			return c.who(ctx, a, own)
		}
		if own != nil {
			return own(ctx, a)
		}
		return policy.Identity{}, nil
	}
	var handler slog.Handler = slog.NewJSONHandler(os.Stderr, nil)
	if o.Logger != nil {
		handler = o.Logger.Handler()
	}
	o.Logger = slog.New(logHandler{handler})
	if len(o.LogKey) == 0 {
		o.LogKey = []byte(os.Getenv("WEIR_LOG_KEY"))
	}
	var seen weir.Observer
	if o.Observer != nil {
		seen = *o.Observer
	}
	told := seen.Trip
	seen.Trip = func(ctx context.Context, t weir.Trip) {
		if c := callOf(ctx); c != nil {
			c.storeNS.Add(int64(t.Took))
		}
		if told != nil {
			told(ctx, t)
		}
	}
	o.Observer = &seen
	return engine.New(o)
}

// logHandler adds to the engine's lines what it cannot know, and calls the two
// that people search for by their names.
type logHandler struct{ slog.Handler }

// named gives the name of one of the engine's lines about a call, and whether the
// call it is about goes on.
func named(message string) (name string, allowed bool) {
	switch message {
	case "request refused":
		return "rate limited", false
	case "store could not be asked: request refused", "a request could not be judged and was answered 503":
		return "rate limiter failed", false
	case "store could not be asked: request served without counting it",
		"store could not be asked: requests decided by this process's share of the limit":
		return "rate limiter failed", true
	}
	return "", false
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	c := callOf(ctx)
	if c != nil {
		r.AddAttrs(slog.String("request_id", c.requestID()))
		if c.cold {
			r.AddAttrs(slog.Bool("cold_start", true))
		}
	}
	name, allowed := named(r.Message)
	if name == "" {
		return h.Handler.Handle(ctx, r)
	}
	line := slog.NewRecord(r.Time, r.Level, name, r.PC)
	r.Attrs(func(a slog.Attr) bool { line.AddAttrs(a); return true })
	line.AddAttrs(slog.String("event", r.Message), slog.Bool("allowed", allowed))
	if c != nil {
		line.AddAttrs(slog.Bool("degraded", name == "rate limiter failed"), slog.Float64("store_ms", c.storeMS()))
	}
	return h.Handler.Handle(ctx, line)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}

// storeMS is what trips to the store took, to the microsecond.
func (c *call) storeMS() float64 {
	return float64(time.Duration(c.storeNS.Load()).Microseconds()) / 1000
}

// metricLines writes one line in the embedded metric format for every call that
// a limit was asked about. The dimensions are the service and the limit that
// speaks: a set that the policy closes. The caller is no dimension; his key, as
// log_keys allows it, is a property to search for.
type metricLines struct {
	mu      sync.Mutex
	w       io.Writer
	service string
	began   atomic.Bool // a line has told of the cold start
}

type metric struct{ Name, Unit string }

type metricSet struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []metric
}

// metricSets declares the metrics. They are sums but for the times: Allowed and
// Denied of calls, Degraded of calls that a failure mode decided, ColdStart of
// environments, by the first line of each. StoreMs is spent at the store, and
// SkewMs is how far its clock and this one are apart, 0 when that is not known.
func metricSets() []metricSet {
	return []metricSet{{"weir", [][]string{{"Service"}, {"Service", "Limit"}}, []metric{
		{"Allowed", "Count"}, {"Denied", "Count"}, {"Degraded", "Count"}, {"StoreMs", "Milliseconds"}, {"SkewMs", "Milliseconds"}, {"ColdStart", "Count"}}}}
}

type metricLine struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []metricSet
	} `json:"_aws"`
	Service   string
	Limit     string
	Allowed   int
	Denied    int
	Degraded  int
	StoreMs   float64
	SkewMs    int64
	ColdStart int

	// Properties, to search for.
	RequestID string       `json:"request_id,omitempty"`
	Layer     policy.Layer `json:"layer"`
	Operation string       `json:"operation,omitempty"`
	Plan      string       `json:"plan,omitempty"`
	Key       string       `json:"key,omitempty"`
	Reason    string       `json:"reason"`
	Remaining *int64       `json:"remaining"` // null when it is not known
}

func (l *metricLines) write(c *call) {
	v := c.outcome.Speaks()
	if l.w == nil || v == nil {
		return
	}
	line := metricLine{
		Service: l.service, Limit: v.Rule.Name, StoreMs: c.storeMS(), RequestID: c.requestID(), Layer: v.Rule.Layer,
		Operation: v.Rule.Operation, Plan: v.Rule.Plan, Key: c.outcome.KeyHash(v), Reason: v.Reason.String(),
	}
	line.AWS.Timestamp, line.AWS.CloudWatchMetrics = c.outcome.Time().UnixMilli(), metricSets()
	line.Denied = one(c.outcome.Limited())
	line.Allowed = one(c.outcome.Served())
	line.Degraded = one(c.outcome.Degraded)
	if c.skew != nil {
		line.SkewMs = c.skew().Abs().Milliseconds()
	}
	line.ColdStart = one(!l.began.Swap(true))
	if !v.Unknown {
		line.Remaining = &v.Remaining
	}
	text, err := json.Marshal(line)
	if err != nil {
		return // structs of texts and numbers always encode
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(append(text, '\n')) // a metric that is lost must not fail the call
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
