package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// A program that has no compiler refuses expressions at their line, and says
// which line of Go is missing. All else loads.
func TestExpressionWithoutACompiler(t *testing.T) {
	load := func(entry string, o Options) error {
		_, err := Load(fstest.MapFS{"weir.yaml": {Data: []byte("weir: 1\napplication:\n  limits:\n    - {name: a, by: ip, limit: 1/s burst 2, " + entry + "}\n")}}, "weir.yaml", o)
		return err
	}
	for _, entry := range []string{`when: 'method == "GET"'`, `cost: 'method == "GET" ? 1 : 2'`} {
		var ps Problems
		if err := load(entry, Options{}); !errors.As(err, &ps) || len(ps) != 1 {
			t.Fatalf("%s: %v", entry, err)
		}
		field, _, _ := strings.Cut(entry, ":")
		if p := ps[0]; p.Line != 4 || p.Col != 51 || !strings.HasPrefix(p.Message, field+" is an expression") ||
			!strings.Contains(p.Hint, "policy.Options{Expressions: expression.Compile}") || !strings.Contains(p.Hint, `"github.com/weirlabs/weir/policy/expression"`) {
			t.Errorf("%v", p)
		}
		if err := load(entry, Options{Expressions: Expressions}); err != nil {
			t.Errorf("%s with a compiler: %v", entry, err)
		}
	}
	for _, entry := range []string{"cost: 2", "cost: header.x-units", `denied: {message: "{{ .Wait }}"}`} {
		if err := load(entry, Options{}); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// A compiler of somebody else's may fail in its own way.
func TestErrorOfAnotherCompiler(t *testing.T) {
	other := func(text string, env any, want reflect.Kind) (Expression, error) {
		if _, ok := env.(*facts); !ok || text != "x" || want != reflect.Bool {
			t.Errorf("asked to compile %q of %T as %v", text, env, want)
		}
		return nil, errors.New("not today")
	}
	_, err := Load(fstest.MapFS{"weir.yaml": {Data: []byte("weir: 1\napplication: {limits: [{name: a, by: ip, limit: 1/s, when: x}]}\n")}}, "weir.yaml", Options{Expressions: other})
	if err == nil || !strings.Contains(err.Error(), "when: not today") || !strings.Contains(err.Error(), "known here: method, host, path, ip, plan, claims, header(name), query(name)") {
		t.Errorf("%v", err)
	}
}
