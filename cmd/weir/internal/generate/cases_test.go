package generate

import (
	"regexp"
	"slices"
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

// B175: the service takes a throttle only for one path and one method, or for all
// of both: not for a part of one, nor for a path as it is read.
func TestCase_B175_AThrottleHasAPathThatTheServiceTakes(t *testing.T) {
	cloudFormation := regexp.MustCompile(`ResourcePath: "?([^"\n]*?)"?\n\s*HttpMethod: "?([^"\n]*?)"?\n`)
	terraform := regexp.MustCompile(`method_path\s*=\s*"([^"]*)"`)
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	// The part of a path stands as it is in the resources of the API.
	part := `(?:[A-Za-z0-9._:-]+|\{[A-Za-z0-9._-]+\+?\})`
	escaped, plain := regexp.MustCompile(`^(?:/|/~1`+part+`(?:~1`+part+`)*)$`), regexp.MustCompile(`^(?:`+part+`/)+$`)
	for _, match := range []string{
		"", "match: POST /sale", "match: /sale", "match: /sale/", "match: /", "match: GET /", "match: \"GET /{$}\"", "match: \"POST /shop/{id}/seats\"", "match: \"/shop/{rest...}\"",
		"match: [GET /a, POST /b/c]", "match: [\"GET /a/{x}\", \"GET /a/{y}/c\"]", "match: [\"GET /a/{x...}\", \"GET /a/{y...}\"]", "match: \"GET /a.b/c-d_e\"", "match: \"/x/{first}/{second}\"",
	} {
		policy := "weir: 1\nedge: [{name: e, limit: sliding 100/5m, by: ip}]\napplication:\n  limits:\n    - {name: a, " + match + strings.Repeat(", ", min(len(match), 1)) + "by: everyone, limit: 500/s burst 600}\n"
		o := Options{API: REST, Approximate: true}
		settings := cloudFormation.FindAllStringSubmatch(templateOf(t, policy, o), -1)
		if len(settings) == 0 {
			t.Errorf("%s: no throttle", match)
		}
		for _, s := range settings {
			path, method := s[1], s[2]
			switch {
			case match == "":
				if path != "/*" || method != "*" {
					t.Errorf("%s: %s %s", match, path, method)
				}
			case !escaped.MatchString(path) || !slices.Contains(methods, method):
				t.Errorf("%s: %s %s", match, path, method)
			}
		}
		out, err := Terraform(loadText(t, policy), o)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, f := range out.Files {
			text.Write(f.Text)
		}
		paths := terraform.FindAllStringSubmatch(text.String(), -1)
		if len(paths) != len(settings) {
			t.Errorf("%s: %d settings for CloudFormation, %d for Terraform", match, len(settings), len(paths))
		}
		for _, m := range paths {
			at := strings.LastIndexByte(m[1], '/')
			path, method := m[1][:at+1], m[1][at+1:]
			if m[1] == "*/*" && match == "" {
				continue
			}
			if path != "~1/" && !plain.MatchString(path) || !slices.Contains(methods, method) {
				t.Errorf("%s: method_path %s", match, m[1])
			}
		}
	}
}

// A rule for everybody counts every path, whatever stands before it, and needs no
// parameter for that.
func TestSpec_C01_EverybodyIsCountedOnEveryPath(t *testing.T) {
	known := readProvider(t)
	for _, api := range []API{REST, AppSync} {
		p := loadText(t, "weir: 1\nedge: [{name: all, limit: sliding 2000/5m, by: everyone}]\n")
		out, err := CloudFormation(p, Options{API: api})
		if err != nil {
			t.Fatal(err)
		}
		text := string(out.Files[1].Text)
		if strings.Contains(text, "PathPrefix") || !strings.Contains(text, "PositionalConstraint: STARTS_WITH\n") || !strings.Contains(text, "SearchString: /\n") {
			t.Errorf("%s: the rule does not count every path:\n%s", api, text)
		}
		for _, f := range invariants(text) {
			t.Errorf("%s: %s", api, f)
		}
		tf, err := Terraform(p, Options{API: api})
		if err != nil {
			t.Fatal(err)
		}
		found, _ := checkTerraform(known, tf.Files[0].Text)
		for _, problem := range found {
			t.Errorf("%s: %s", api, problem)
		}
		for _, prefix := range []string{"", "/prod"} {
			live := exportOf(t, p)
			live.PathPrefix = prefix
			if found, _, err := Drift(p, api, Live{WebACL: live.WebACL, PathPrefix: prefix}); err != nil || len(found) > 0 {
				t.Errorf("%s behind %q: %v %v", api, prefix, found, err)
			}
		}
	}
}
