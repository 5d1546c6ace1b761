package report

import "encoding/json"

// KindOf says of which log a line is, by the fields that only that log has: waf,
// gateway or decisions; "" when it is none of them.
func KindOf(line []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return ""
	}
	for _, k := range []struct{ field, kind string }{
		{"key_hash", "decisions"}, {"webaclId", "waf"}, {"terminatingRuleId", "waf"}, {"requestTimeEpoch", "gateway"}, {"requestTime", "gateway"},
	} {
		if _, there := fields[k.field]; there {
			return k.kind
		}
	}
	return ""
}
