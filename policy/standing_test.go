package policy

import (
	"strings"
	"testing"
	"testing/fstest"
)

func codesOf(t *testing.T, text string) string {
	t.Helper()
	p, err := Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range p.Warnings() {
		all = append(all, w.Code.String())
	}
	return strings.Join(all, " ")
}

// The whole kind: nobody is told to remove a limit while the other one charges,
// forgives repetitions, gives back or lets through when the store fails.
func TestALimitThatOnlySeemsToBeCovered(t *testing.T) {
	const advice = "WEIR2104"
	for _, c := range []struct {
		a, b   string
		advice bool
	}{
		{"", "", true},
		{"", ", over: charge", false},
		{"", ", once: header.X-Id", false},
		{", once: header.X-Id", ", once: header.X-Id", true},
		{"", ", settle: header.X-Units", false},
		{", settle: header.X-Units", "", false},
		{", on_store_error: deny", "", false},
		{", on_store_error: deny", ", on_store_error: deny", true},
		{", notify_at: 80%", "", false},
		{"", ", notify_at: 80%", true},
	} {
		text := "weir: 1\napplication:\n  limits:\n" +
			"    - {name: a, match: POST /a, by: [account, ip], limit: quota 10/day calendar" + c.a + "}\n" +
			"    - {name: b, match: POST /, by: [account, ip], limit: quota 10/day calendar" + c.b + "}\n"
		text = strings.Replace(text, "match: POST /,", "match: \"POST /{any...}\",", 1)
		if got := codesOf(t, text); strings.Contains(got, advice) != c.advice {
			t.Errorf("a%s, b%s: %q", c.a, c.b, got)
		}
	}
}

func TestAQuotaThatChargesRefusesNobodyInAList(t *testing.T) {
	const text = "weir: 1\napplication: {limits: [{name: a, match: POST /a, by: [account, ip], limit: [quota 5/day, 100/day]}]}\n"
	if got := codesOf(t, text); !strings.Contains(got, "WEIR2103") {
		t.Errorf("a quota that refuses: %q", got)
	}
	if got := codesOf(t, strings.Replace(text, "100/day]", "100/day], over: charge", 1)); strings.Contains(got, "WEIR2103") {
		t.Errorf("a quota that charges: %q", got)
	}
}

// The whole kind: a mistake that points at another place names its file too.
func TestAnEarlierPlaceInAnotherFile(t *testing.T) {
	for name, parts := range map[string][2]string{
		"limits": {"application:\n  limits:\n    - {name: l, match: /a, by: [account, ip], limit: 1/s}\n", "edge:\n  - {name: l, limit: sliding 100/5m, by: ip}\n"},
	} {
		_, err := Load(fstest.MapFS{
			"weir.yaml": {Data: []byte("weir: 1\ninclude: [a.yaml, b.yaml]\n")},
			"a.yaml":    {Data: []byte(parts[0])}, "b.yaml": {Data: []byte(parts[1])},
		}, "weir.yaml", Options{})
		if err == nil || !strings.Contains(err.Error(), ".yaml, line ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
