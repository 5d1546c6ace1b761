package generate

import (
	"strings"
	"testing"
)

func templateOf(t *testing.T, policy string, o Options) string {
	t.Helper()
	out, err := CloudFormation(loadText(t, policy), o)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range out.Files {
		all.Write(f.Text)
	}
	return all.String()
}

// B173: a usage plan has what the policy gives it, whichever half is missing.
func TestCase_B173_PlansWithHalves(t *testing.T) {
	for limits, want := range map[string]struct{ throttle, quota bool }{
		"10/s burst 20": {true, false}, "quota 1000/day calendar": {false, true}, "[10/s burst 20, quota 1000/day calendar]": {true, true},
	} {
		got := templateOf(t, "weir: 1\ngateway: {match: GET /p, plans: {p: "+limitOf(limits)+"}}\n", Options{API: REST})
		if strings.Contains(got, "RateLimit: 10") != want.throttle || strings.Contains(got, "Limit: 1000\n") != want.quota {
			t.Errorf("%s: throttle %v, quota %v expected", limits, want.throttle, want.quota)
		}
	}
}

func limitOf(limits string) string {
	if strings.HasPrefix(limits, "[") {
		return limits
	}
	return `"` + limits + `"`
}

// B176: a limit is written for the window that it names, and for no other.
func TestCase_B176_WindowsAreThoseOfTheLimit(t *testing.T) {
	for window, seconds := range map[string]string{"1m": "60", "2m": "120", "5m": "300", "10m": "600"} {
		got := templateOf(t, "weir: 1\nedge: [{name: e, limit: sliding 100/"+window+", by: ip}]\n", Options{API: REST})
		if !strings.Contains(got, "EvaluationWindowSec: "+seconds+"\n") || !strings.Contains(got, "Limit: 100\n") {
			t.Errorf("sliding 100/%s: no window of %s s with a limit of 100", window, seconds)
		}
	}
}
