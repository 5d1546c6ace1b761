package report

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir/policy"
)

// gatewayLine is a line of an access log of API Gateway in the format that `weir
// generate` sets, one JSON object of context variables:
//
//	{"requestTimeEpoch":"$context.requestTimeEpoch","ip":"$context.identity.sourceIp",
//	 "apiKeyId":"$context.identity.apiKeyId","httpMethod":"$context.httpMethod","path":"$context.path",
//	 "status":"$context.status","responseType":"$context.error.responseType"}
//
// API Gateway writes "-" for what a request does not have.
type gatewayLine struct {
	Epoch        text `json:"requestTimeEpoch"` // Unix milliseconds
	Time         text `json:"requestTime"`      // 28/Nov/2026:08:00:00 +0000
	IP           text `json:"ip"`
	KeyID        text `json:"apiKeyId"`
	Method       text `json:"httpMethod"`
	Path         text `json:"path"`
	Resource     text `json:"resourcePath"`
	Status       text `json:"status"`
	ResponseType text `json:"responseType"`
}

// text is a JSON string or number, as its text; "" for "-".
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if len(b) > 0 && b[0] != '"' {
		s = string(b)
	} else if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s == "-" || s == "null" {
		s = ""
	}
	*t = text(s)
	return nil
}

// ParseGateway reads a line of an access log of API Gateway into r, or says why
// it is none. What the service behind the gateway refused is served here.
func ParseGateway(line []byte, r *Request) (why string) {
	var g gatewayLine
	if err := json.Unmarshal(line, &g); err != nil {
		return "it is no JSON of API Gateway: " + err.Error()
	}
	var at time.Time
	switch ms, err := strconv.ParseInt(string(g.Epoch), 10, 64); {
	case err == nil && ms > 0 && ms <= maxMillis:
		at = time.UnixMilli(ms)
	case g.Epoch != "":
		return "requestTimeEpoch is no time: " + show(string(g.Epoch))
	default:
		if at, err = time.Parse("02/Jan/2006:15:04:05 -0700", string(g.Time)); err != nil {
			return "there is neither requestTimeEpoch nor a requestTime with its zone"
		}
	}
	status, err := strconv.Atoi(string(g.Status))
	if err != nil || status < 100 || status > 599 {
		return "status is missing, or none"
	}
	*r = Request{Time: at, Layer: policy.Gateway, Weight: 1}
	switch g.ResponseType {
	case "THROTTLED", "QUOTA_EXCEEDED":
	default:
		if status == 429 && !strings.Contains(string(line), `"responseType"`) {
			return "a 429 without responseType: the log does not say who refused"
		}
		return ""
	}
	r.Refused, r.Limit, r.Plan = true, strings.ToLower(string(g.ResponseType)), g.KeyID != ""
	r.Client, r.Path, r.Method = string(g.KeyID), string(g.Path), string(g.Method)
	if r.Client == "" {
		r.Client = string(g.IP)
	}
	if r.Path == "" {
		r.Path = string(g.Resource)
	}
	if r.Client == "" {
		return "neither apiKeyId nor ip is there"
	}
	return ""
}
