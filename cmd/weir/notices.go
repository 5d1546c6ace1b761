package main

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlabs/weir/engine"
)

// quotaMetrics count what is told of quotas beside decisions.
type quotaMetrics struct {
	marks  *prometheus.CounterVec
	excess *prometheus.CounterVec
}

func newQuotaMetrics(r *prometheus.Registry) quotaMetrics {
	m := quotaMetrics{
		marks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_quota_marks_total", Help: "Callers that have reached a mark of a quota (notify_at:), once a period and caller.",
		}, []string{"layer", "limit", "percent"}),
		excess: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_quota_excess_units_total", Help: "Units beyond quotas that are charged for (over: charge): counted, or given_back by calls that failed or cost less.",
		}, []string{"layer", "limit", "change"}),
	}
	r.MustRegister(m.marks, m.excess)
	return m
}

// noticed hears of every mark, and of every change of an excess.
func (m quotaMetrics) noticed(_ context.Context, n engine.Notice) {
	layer, limit := string(n.Rule.Layer), n.Rule.Name
	if n.Percent != 0 {
		m.marks.WithLabelValues(layer, limit, strconv.Itoa(n.Percent)).Inc()
	}
	switch {
	case n.Excess > 0:
		m.excess.WithLabelValues(layer, limit, "counted").Add(float64(n.Excess))
	case n.Excess < 0:
		m.excess.WithLabelValues(layer, limit, "given_back").Add(float64(-n.Excess))
	}
}
