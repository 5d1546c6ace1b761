package policy

import (
	"strings"
	"testing"
)

func TestMessage(t *testing.T) {
	d := MessageData{Limit: "50/hour", Count: 50, Unit: "hour", Name: "orders", Operation: "order", Plan: "free", Wait: "6 seconds", At: "15:00", UpgradeURL: "/billing"}
	for text, want := range map[string]string{
		"{{.Limit}} {{.Count}} {{.Unit}} {{.Name}} {{.Operation}} {{.Plan}} {{.Wait}} {{.At}} {{.UpgradeURL}}": "50/hour 50 hour orders order free 6 seconds 15:00 /billing",
		"{{ .Wait }}!":                         "6 seconds!",
		"{{.Wait}}{{.Wait}}":                   "6 seconds6 seconds",
		"no names":                             "no names",
		"{ {.Wait} }} stays":                   "{ {.Wait} }} stays",
		"Noch {{.Wait}}, höchstens {{.Count}}": "Noch 6 seconds, höchstens 50",
	} {
		l := &loader{document: document{page: &page{}}}
		if got := l.message(&node{text: text}).Text(&d); got != want || len(l.problems) > 0 {
			t.Errorf("%q: %q, want %q (%v)", text, got, want, l.problems)
		}
	}
}

// Nothing of a refusal is read as a message again.
func TestMessageIsFilledOnce(t *testing.T) {
	l := &loader{document: document{page: &page{}}}
	if got := l.message(&node{text: "{{.Name}}"}).Text(&MessageData{Name: "{{.Plan}}", Plan: "x"}); got != "{{.Plan}}" {
		t.Errorf("%q", got)
	}
}

// Whatever somebody writes, it loads and can be said, or it is a mistake.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"wait {{.Wait}}", "{{ .At }}}}", "{{", "{{}}", "{{.}}", "{{if .Plan}}x{{end}}", "{{{.Wait}}}", "ä{{.Nein}}\n{{.Wait"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := &loader{document: document{page: &page{lines: []string{text}}}}
		m := l.message(&node{line: 1, col: 1, text: text, plain: true})
		said := m.Text(&MessageData{})
		if len(l.problems) == 0 && strings.Contains(said, "{{") {
			t.Errorf("%q says %q", text, said)
		}
	})
}
