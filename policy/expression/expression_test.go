package expression_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

type env struct {
	Method string                   `expr:"method"`
	Size   int                      `expr:"size"`
	Claims map[string]any           `expr:"claims"`
	Header func(name string) string `expr:"header"`
}

func TestCompile(t *testing.T) {
	e := &env{Method: "GET", Size: 7, Claims: map[string]any{"org": "acme"}, Header: func(name string) string { return name + "!" }}
	for _, c := range []struct {
		text string
		kind reflect.Kind
		want any
	}{
		{`method == "GET" && size > 5`, reflect.Bool, true},
		{`size`, reflect.Float64, 7.0},
		{`size / 2`, reflect.Float64, 3.5},
		{`claims.org + ":" + method`, reflect.String, "acme:GET"},
		{`header("a")`, reflect.String, "a!"},
		{`claims.org`, reflect.String, "acme"},
	} {
		run, err := expression.Compile(c.text, e, c.kind)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got, err := run(e); got != c.want || err != nil {
			t.Errorf("%s: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		text string
		kind reflect.Kind
		want policy.ExpressionError
	}{
		{`method`, reflect.Bool, policy.ExpressionError{Message: "expected true or false, but got string"}},
		{`method`, reflect.Float64, policy.ExpressionError{Message: "expected a number, but got string"}},
		{`size > 1`, reflect.String, policy.ExpressionError{Message: "expected a text, but got bool"}},
		{`method = "GET"`, reflect.Bool, policy.ExpressionError{Line: 1, Column: 7, Message: "unexpected token =", Hint: "compare with =="}},
		{"true &&\n  metod == method", reflect.Bool, policy.ExpressionError{Line: 2, Column: 2, Message: "unknown name metod", Unknown: "metod"}},
		{`now().Hour() > 8`, reflect.Bool, policy.ExpressionError{Line: 1, Message: "unknown name now", Unknown: "now"}},
	} {
		run, err := expression.Compile(c.text, &env{}, c.kind)
		got := new(policy.ExpressionError)
		if run != nil || !errors.As(err, &got) || *got != c.want {
			t.Errorf("%s: %+v, want %+v", c.text, err, c.want)
		}
	}
}

// What a request makes fail is an error and no panic.
func TestFailsWithoutPanic(t *testing.T) {
	for _, text := range []string{`claims.org.deeper == 1`, `int(header("x")) > 1`, `claims.list[7] == 1`, `1 % size == 1`} {
		run, err := expression.Compile(text, &env{}, reflect.Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := run(&env{Claims: map[string]any{"org": 1, "list": []any{}}, Header: func(string) string { return "?" }}); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func BenchmarkExpression(b *testing.B) {
	e := &env{Method: "GET", Size: 7}
	run, err := expression.Compile(`method == "GET" && size > 5`, e, reflect.Bool)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v, err := run(e); v != true || err != nil {
			b.Fatal(v, err)
		}
	}
}
