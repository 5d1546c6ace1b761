package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// metrics counts what the proxy does. Labels come from closed sets: layers and
// limits of the policy, never callers or paths.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	decisions *prometheus.CounterVec
	degraded  prometheus.Counter
	trips     *prometheus.CounterVec
	seconds   prometheus.Histogram
	units     *prometheus.CounterVec
	quotas    quotaMetrics
	reloads   *prometheus.CounterVec
	inForce   prometheus.Gauge
	loadedAt  prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_requests_total", Help: "Requests by outcome: served, exempt, refused by a limit, or rejected before any limit.",
		}, []string{"outcome"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total", Help: "Decisions of single limits. A shadow limit that would have refused counts as shadow_denied.",
		}, []string{"layer", "limit", "result"}),
		degraded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_degraded_requests_total", Help: "Requests that were decided by a failure mode, because the store could not be asked.",
		}),
		trips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_store_trips_total", Help: "Round trips to the store: applied, not_applied or failed.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_store_trip_seconds", Help: "Duration of a round trip to the store.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
		}),
		units: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_store_units_total", Help: "Units that the store charged, in its own measure: read or write.",
		}, []string{"kind"}),
	}
	m.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_policy_reloads_total", Help: "Attempts to put a changed policy in force: done, or failed, which leaves the last good one in force.",
	}, []string{"result"})
	m.inForce = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_policy_last_reload_successful", Help: "1 while the policy file is in force, 0 while it has mistakes and an earlier one is.",
	})
	m.loadedAt = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_policy_loaded_timestamp_seconds", Help: "When the policy in force was read, in Unix seconds.",
	})
	for _, result := range []string{"done", "failed"} {
		m.reloads.WithLabelValues(result) // so that an alert has a first value to compare with
	}
	m.inForce.Set(1)
	m.loadedAt.SetToCurrentTime()
	m.registry.MustRegister(m.requests, m.decisions, m.degraded, m.trips, m.seconds, m.units, m.reloads, m.inForce, m.loadedAt,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.quotas = newQuotaMetrics(m.registry)
	return m
}

// decided hears of every request.
func (m *metrics) decided(_ context.Context, o *engine.Outcome) {
	outcome := "served"
	switch {
	case o.Err != nil:
		outcome = "rejected"
	case !o.Served():
		outcome = "refused"
	case o.Exempt != "":
		outcome = "exempt"
	}
	m.requests.WithLabelValues(outcome).Inc()
	if o.Degraded {
		m.degraded.Inc()
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		result := "allowed"
		switch {
		case v.Reason == weir.ReasonNotAsked:
			continue
		case !v.Allowed && v.Shadow:
			result = "shadow_denied"
		case !v.Allowed:
			result = "denied"
		}
		m.decisions.WithLabelValues(string(v.Rule.Layer), v.Rule.Name, result).Inc()
	}
}

// trip hears of every round trip to a remote store.
func (m *metrics) trip(_ context.Context, t weir.Trip) {
	result := "not_applied"
	switch {
	case t.Err != nil:
		result = "failed"
	case t.Applied:
		result = "applied"
	}
	m.trips.WithLabelValues(result).Inc()
	m.seconds.Observe(t.Took.Seconds())
	m.units.WithLabelValues("read").Add(t.ReadUnits)
	m.units.WithLabelValues("write").Add(t.WriteUnits)
}

// reloaded hears how an attempt to put a changed policy in force ended.
func (m *metrics) reloaded(err error) {
	if err != nil {
		m.reloads.WithLabelValues("failed").Inc()
		m.inForce.Set(0)
		return
	}
	m.reloads.WithLabelValues("done").Inc()
	m.inForce.Set(1)
	m.loadedAt.SetToCurrentTime()
}

// of adds what stands in front of a store. It is asked when metrics are read.
func (m *metrics) of(e *engine.Engine, s weir.Store) {
	count := func(name, help string, value func(*weir.Stats) uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			stats := e.Stats()
			return float64(value(&stats))
		}))
	}
	count("weir_store_memo_refusals_total", "Calls that were refused by what the store said less than a second before, without asking it.", func(s *weir.Stats) uint64 { return s.Memo })
	count("weir_store_coalesced_calls_total", "Calls that shared another's write.", func(s *weir.Stats) uint64 { return s.Coalesced })
	count("weir_store_lost_replies_total", "Writes whose reply was lost, and whose outcome another attempt found.", func(s *weir.Stats) uint64 { return s.LostReplies })
	count("weir_store_unknown_outcomes_total", "Writes of which nobody knows whether they were applied.", func(s *weir.Stats) uint64 { return s.Unknown })
	count("weir_store_throttled_trips_total", "Round trips that the store refused because one item was too busy.", func(s *weir.Stats) uint64 { return s.Throttled })
	count("weir_store_skipped_calls_total", "Calls for which the store was not asked, because it had just failed: its breaker was open.", func(s *weir.Stats) uint64 { return s.Skipped })
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_store_breaker_open", Help: "1 while the store is left alone because it fails."}, func() float64 {
			if e.Stats().Open {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_store_clock_skew_seconds", Help: "By how much the store's clock is ahead of this machine's, as last seen."}, func() float64 {
			if c, ok := s.(interface{ Skew() time.Duration }); ok {
				return c.Skew().Seconds()
			}
			return e.Stats().Ahead.Seconds()
		}))
}

// serve answers GET /metrics on an address of its own, so that clients of the
// service cannot read them. It ends with ctx.
func (m *metrics) serve(ctx context.Context, addr string, log *slog.Logger) (url string, err error) {
	l, err := listen("--metrics", addr)
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() { _ = srv.Serve(l) }() // ends by Close
	return "http://" + l.Addr().String() + "/metrics", nil
}
