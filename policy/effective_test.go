package policy

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir"
)

// What a policy says of itself, with every default, means the same, and says the same
// of itself.
func TestEffectiveMeansTheSame(t *testing.T) {
	docs, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := append(examplesOf(string(docs), "yaml"), little, places)
	for _, text := range texts {
		if fileOf(text) != "" {
			continue
		}
		for _, env := range []string{"", "staging"} {
			fsys := docFiles(t, string(docs))
			fsys["weir.yaml"] = &fstest.MapFile{Data: []byte(text)}
			o := Options{Expressions: Expressions, Environment: env}
			p, err := Load(fsys, "weir.yaml", o)
			if err != nil {
				if env == "" {
					t.Fatalf("%v\n%s", err, text)
				}
				continue
			}
			whole, err := Effective(fsys, "weir.yaml", o)
			if err != nil {
				t.Fatal(err)
			}
			fsys["weir.yaml"] = &fstest.MapFile{Data: whole}
			q, err := Load(fsys, "weir.yaml", Options{Expressions: Expressions})
			if err != nil {
				t.Errorf("%v\n%s", err, whole)
				continue
			}
			if len(p.rules) != len(q.rules) {
				t.Fatalf("%d rules, and written out %d:\n%s", len(p.rules), len(q.rules), whole)
			}
			for i := range p.rules {
				a, b := *p.rules[i], *q.rules[i]
				// Where it stands is not what it says, and messages are compared by their words.
				a.Line, b.Line = 0, 0
				if x, y := wordsSaid(&a.Denied), wordsSaid(&b.Denied); x != y {
					t.Errorf("%s: %s, and written out %s", a.Name, x, y)
				}
				if written(a.Limit) != written(b.Limit) {
					t.Errorf("%s: %s, and written out %s", a.Name, a.Limit, b.Limit)
				}
				a.Limit, b.Limit = weir.Limit{}, weir.Limit{}
				for _, d := range []*Denied{&a.Denied, &b.Denied} {
					d.Message, d.Body, d.Locales = nil, nil, nil
				}
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%+v\nwritten out:\n%+v\n%s", a, b, whole)
				}
			}
			again, err := Effective(fsys, "weir.yaml", Options{Expressions: Expressions})
			if err != nil || string(again) != string(whole) {
				t.Errorf("written out twice it differs: %v\n%s\n%s", err, whole, again)
			}
			if !strings.Contains(string(whole), "log_keys: ") || !strings.Contains(string(whole), "ipv6_prefix: ") {
				t.Errorf("defaults are missing:\n%s", whole)
			}
		}
	}
}

// written is all that a limit says of itself: its burst, too.
func written(l weir.Limit) string {
	n, scale := l.Rate()
	return fmt.Sprint(l.Name(), n, scale, l.Max(), l.Period(), l.IsBucket(), l.IsQuota(), l.OnCalendar(), l.Horizon())
}

// wordsSaid is what a refusal says, in every language.
func wordsSaid(d *Denied) string {
	text := func(m *Message) string {
		if m == nil {
			return "none"
		}
		return m.Text(&MessageData{Limit: "L", Count: 1, Unit: "U", Name: "N", Operation: "O", Plan: "P", Wait: "W", At: "A", UpgradeURL: "R"})
	}
	said := text(d.Message) + "|" + text(d.Body)
	for _, language := range slices.Sorted(maps.Keys(d.Locales)) {
		said += "|" + language + ": " + text(d.Locales[language])
	}
	return said
}

// The whole kind: however long a text is, what is written out loads again and is the
// same text.
func TestEffectiveOfLongTexts(t *testing.T) {
	for name, line := range map[string]string{
		"words": "some words and more of them", "blanks": strings.Repeat(" ", 50) + "x", "quotes": `"a" 'b' \\ \n {{.Wait}}`, "letters": "äöü 漢字 😀",
		"brackets": "<p class='x'>{[()]}</p> # no: comment", "dashes": "- - - ? : x", "one word": strings.Repeat("x", 71),
	} {
		for _, lines := range []int{1, 50, 90, 300} {
			body := ""
			for range lines {
				body += "          " + line + "\n"
			}
			text := "weir: 1\napplication:\n  limits:\n    - name: a\n      match: GET /a\n      by: account\n      limit: 1/s\n      denied:\n        content_type: text/html\n        body: |\n" + body
			fsys := fstest.MapFS{"weir.yaml": {Data: []byte(text)}}
			p, err := Load(fsys, "weir.yaml", Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			whole, err := Effective(fsys, "weir.yaml", Options{})
			if err != nil {
				t.Fatal(err)
			}
			q, err := Load(fstest.MapFS{"weir.yaml": {Data: whole}}, "weir.yaml", Options{})
			if err != nil {
				t.Errorf("%s, %d lines: %v", name, lines, err)
				continue
			}
			if x, y := wordsSaid(&p.rules[0].Denied), wordsSaid(&q.rules[0].Denied); x != y {
				t.Errorf("%s, %d lines: %q, and written out %q", name, lines, x, y)
			}
		}
	}
}
