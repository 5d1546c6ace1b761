package report

import (
	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// FromDecision is a line of the decision log as a report sees it. A refusal that
// a shadow limit would have given was served. It reports false for a line that
// tells what became of a decision, and is none itself.
func FromDecision(d *engine.Record, r *Request) bool {
	*r = Request{Time: d.Time, Layer: d.Layer, Weight: d.Weight}
	if d.Event != "" {
		return false
	}
	if d.Allowed || d.Shadow {
		return true
	}
	r.Refused, r.Limit, r.Client = true, d.Limit, d.KeyHash
	r.Plan, r.RetryAfter = d.Plan != "", d.RetryAfterSeconds
	r.Outage = d.Reason == weir.ReasonUnavailable.String()
	return true
}
