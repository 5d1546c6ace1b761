package report

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/weirlabs/weir/policy"
)

// wafLine is what a report needs of a line of an AWS WAF log, as AWS WAF writes
// it to S3, Firehose or CloudWatch Logs.
type wafLine struct {
	Timestamp   int64  `json:"timestamp"` // Unix milliseconds
	Action      string `json:"action"`
	Terminating string `json:"terminatingRuleId"`
	Request     *struct {
		ClientIP string `json:"clientIp"`
		URI      string `json:"uri"`
		Args     string `json:"args"`
		Method   string `json:"httpMethod"`
		Headers  []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"headers"`
	} `json:"httpRequest"`
}

// redacted stands in a log for what its configuration hides, as the one that `weir
// generate` writes hides queries. Pages that differ only there look like one.
const redacted = "REDACTED"

// maxMillis is the year 2200: what lies beyond is in another unit.
const maxMillis = 7_258_118_400_000

// ParseWAF reads a line of an AWS WAF log into r, or says why it is none. A
// request that a rule merely counted was served.
func ParseWAF(line []byte, r *Request) (why string) {
	var w wafLine
	if err := json.Unmarshal(line, &w); err != nil {
		return "it is no JSON of AWS WAF: " + err.Error()
	}
	switch {
	case w.Timestamp <= 0:
		return "the timestamp is missing"
	case w.Timestamp > maxMillis:
		return "the timestamp is none in milliseconds"
	case w.Action == "":
		return "the action is missing"
	case w.Request == nil || w.Request.ClientIP == "":
		return "httpRequest.clientIp is missing"
	}
	*r = Request{Time: time.UnixMilli(w.Timestamp), Layer: policy.Edge, Weight: 1}
	switch w.Action {
	case "ALLOW", "COUNT":
		return ""
	case "BLOCK", "CAPTCHA", "CHALLENGE":
	default:
		return "there is no action " + show(w.Action)
	}
	if w.Terminating == "" {
		return "terminatingRuleId is missing"
	}
	r.Refused, r.Limit, r.Client = true, w.Terminating, w.Request.ClientIP
	r.Path, r.Method = w.Request.URI, w.Request.Method
	if w.Request.Args != "" && w.Request.Args != redacted {
		r.Path += "?" + w.Request.Args
	}
	for _, h := range w.Request.Headers {
		if strings.EqualFold(h.Name, "user-agent") {
			r.Agent = h.Value
		}
	}
	return ""
}

// show quotes foreign text, cut to what a line of a report can hold.
func show(s string) string {
	b, _ := json.Marshal(s[:min(len(s), 40)])
	return string(b)
}
