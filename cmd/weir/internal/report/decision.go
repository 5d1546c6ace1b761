package report

import "github.com/weirlabs/weir/engine"

// FromDecision is a line of the decision log as a report sees it. A refusal that
// a shadow limit would have given was served.
func FromDecision(d *engine.Record, r *Request) {
	*r = Request{Time: d.Time, Layer: d.Layer, Weight: d.Weight}
	if d.Allowed || d.Shadow {
		return
	}
	r.Refused, r.Limit, r.Client = true, d.Limit, d.KeyHash
	r.Plan, r.RetryAfter = d.Plan != "", d.RetryAfterSeconds
}
