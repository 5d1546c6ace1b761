package policy

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// A Compiler checks and compiles one expression of a policy, such as
// `plan == "free"`. Package expression has one: [Options.Expressions] says when
// it is needed.
//
// env is a pointer to a struct of the type that the expression will be run
// with: its fields with an `expr` tag are the names that the expression may use,
// those of functions included. want is the kind of the result: reflect.Bool,
// reflect.Float64 for every number, reflect.String, or reflect.Interface for any.
// The expression must depend on env alone, so there is no clock and nothing random
// in it.
//
// A mistake of the expression's author is an [*ExpressionError].
type Compiler func(text string, env any, want reflect.Kind) (Expression, error)

// An Expression computes its result, of the kind that was wanted or what the
// types of env leave open, from a value of the type that it was compiled for. It
// keeps nothing of it, and is safe for concurrent use.
type Expression func(env any) (any, error)

// ExpressionError is a mistake in an expression, and where it is.
type ExpressionError struct {
	Line    int    // from 1; 0 when the mistake is the whole expression
	Column  int    // in characters, from 0
	Message string // what is wrong, in one line
	Hint    string // what to write instead, or ""
	Unknown string // the name that is not known, if that is the mistake
}

func (e *ExpressionError) Error() string { return e.Message }

// facts is what `when:` and `cost:` expressions know of a request. Its fields
// are the names that expressions use.
type facts struct {
	Method string                   `expr:"method"`
	Host   string                   `expr:"host"`
	Path   string                   `expr:"path"` // in lower case, dot segments resolved
	IP     string                   `expr:"ip"`
	Plan   string                   `expr:"plan"`   // of the application; "" without plans
	Claims map[string]any           `expr:"claims"` // of a verified token
	Header func(name string) string `expr:"header"`
	Query  func(name string) string `expr:"query"`

	sent     map[string][]string // headers
	rawQuery string
	values   url.Values // of rawQuery, once it is asked for
}

// The functions are made once for each value of facts, so that a request makes
// none.
var factsPool = sync.Pool{New: func() any {
	f := new(facts)
	f.Header = func(name string) string {
		return strings.Join(f.sent[http.CanonicalHeaderKey(name)], ", ")
	}
	f.Query = func(name string) string {
		if f.values == nil {
			f.values, _ = url.ParseQuery(f.rawQuery)
		}
		return f.values.Get(name)
	}
	return f
}}

func newFacts(a *Attributes, path string, client netip.Addr, plan string, claims map[string]any) *facts {
	f := factsPool.Get().(*facts)
	f.Method, f.Host, f.Path = strings.ToUpper(a.Method), normalHost(a.Host), strings.ReplaceAll(path, inner, "/")
	if f.Path == "" {
		f.Path = "/"
	}
	f.IP, f.Plan, f.Claims = "", plan, claims
	if client.IsValid() {
		f.IP = client.String()
	}
	f.sent, f.rawQuery, f.values = a.Header, a.RawQuery, nil
	return f
}

func (f *facts) free() {
	f.Claims, f.sent, f.values = nil, nil, nil
	factsPool.Put(f)
}

// cost is what one call counts: a constant, a header's number or an
// expression's.
type cost struct {
	fixed   int64
	header  string
	program Expression
}

// units is what a call counts, and whether the rule holds for it at all. When an
// expression fails, the rule's on_error decides. The error is a *RequestError. tr
// hears what failed.
func (r *rule) units(f *facts, tr *trace) (n int64, holds bool, err error) {
	failed := false
	if r.when != nil {
		switch v, err := r.when(f); {
		case err != nil:
			failed = true
			tr.failed(r, "when", err)
		case v == false:
			return 0, false, nil
		}
	}
	n, bad := r.cost.of(f)
	if bad != nil {
		failed = true
		tr.failed(r, "cost", bad)
	}
	if !failed {
		return n, true, nil
	}
	switch r.onError {
	case "skip":
		return 0, true, nil
	case "deny":
		return 0, true, &RequestError{http.StatusBadRequest, "bad_request", "This request can't be judged: what it says is not what is expected here."}
	}
	return n, true, nil // a limit is not escaped by a request that its author did not think of
}

// noCost is a result that no call can cost.
type noCost struct{ result any }

func (e noCost) Error() string { return fmt.Sprintf("its result is %v, which is no cost", e.result) }

// of returns the cost of a call: 0 skips the limit. What a client controls,
// and what goes wrong, counts at least 1. The error is that of an expression.
func (c *cost) of(f *facts) (n int64, err error) {
	switch {
	case c.program != nil:
		v, err := c.program(f)
		x, ok := v.(float64)
		switch {
		case err != nil:
			return 1, err
		case !ok || math.IsNaN(x) || x < 0:
			return 1, noCost{v}
		case x > maxCost:
			return maxCost, nil
		}
		return int64(math.Ceil(x)), nil
	case c.header != "":
		sent := f.sent[c.header]
		if len(sent) != 1 {
			return 1, nil
		}
		n, err := strconv.ParseInt(strings.TrimSpace(sent[0]), 10, 64)
		if err != nil {
			return 1, nil
		}
		return min(max(n, 1), maxCost), nil
	}
	return c.fixed, nil
}

// maxCost is more than any limit can hold.
const maxCost = 1 << 53

// cost reads a number, header.NAME or an expression.
func (l *loader) costOf(n *node) cost {
	c := cost{fixed: 1}
	if n == nil || !l.is(n, scalar, "cost") {
		return c
	}
	if strings.TrimSpace(n.text) == "" {
		l.wrong(n, codeCost, "write a number, header.NAME or an expression", "cost is empty")
		return c
	}
	if v, err := strconv.ParseInt(n.text, 10, 64); err == nil {
		if v < 0 || v > maxCost {
			l.wrong(n, codeCost, "write 0 to skip the limit, else 1 or more; to give back, write count: on_success", "a cost of %s is not possible", n.text)
			return c
		}
		c.fixed = v
		return c
	}
	if _, err := strconv.ParseFloat(n.text, 64); err == nil {
		l.wrong(n, codeCost, "count in smaller units, and raise the limit", "a cost is a whole number, not %s", n.text)
		return c
	}
	if name, ok := strings.CutPrefix(n.text, "header."); ok {
		c.header = l.headerName(n, name)
		return c
	}
	if c.program = l.expression(n, "cost", &facts{}, reflect.Float64); c.program != nil {
		l.fold(n, &c)
	}
	return c
}

// fold makes a number of an expression that is one: `60 * 24` is 1440.
func (l *loader) fold(n *node, c *cost) {
	v, err, ok := l.constant(n.text, reflect.Float64)
	x, _ := v.(float64)
	switch {
	case !ok:
		return
	case err != nil:
		l.wrong(n, codeCost, "write a number, header.NAME or an expression", "the cost cannot be computed: %s", firstLine(err))
	case math.IsNaN(x) || x < 0 || x > maxCost:
		l.wrong(n, codeCost, "write 0 to skip the limit, else 1 or more; to give back, write count: on_success", "a cost of %v is not possible", x)
	case x != math.Trunc(x):
		l.wrong(n, codeCost, "count in smaller units, and raise the limit", "a cost is a whole number, not %v", x)
	}
	c.fixed, c.program = int64(x), nil
}

// condition reads a when: expression.
func (l *loader) condition(n *node) Expression {
	if n == nil || !l.is(n, scalar, "when") {
		return nil
	}
	if strings.TrimSpace(n.text) == "" {
		l.wrong(n, codeEmptyText, "write a condition such as plan == \"free\", or remove the line", "when is empty")
		return nil
	}
	return l.expression(n, "when", &facts{}, reflect.Bool)
}

// expression compiles an expression, which is for what and will be run with
// values like env. It reports what is wrong and returns nil.
func (l *loader) expression(n *node, what string, env any, want reflect.Kind) Expression {
	if l.expressions == nil {
		l.wrong(n, codeNoExpressions, `in Go: policy.Options{Expressions: expression.Compile}, with import "github.com/weirlabs/weir/policy/expression"`,
			"%s is an expression, and this program is built without the package that compiles them", what)
		return nil
	}
	run, err := l.expressions(n.text, env, want)
	if err == nil {
		return run
	}
	names, shown := namesOf(env)
	at, message, hint := n, err.Error(), "known here: "+strings.Join(shown, ", ")
	if e, ok := err.(*ExpressionError); ok {
		if e.Line == 1 {
			at = l.inside(n, e.Column, 1)
		}
		if e.Hint != "" {
			hint = e.Hint
		}
		if best := nearest(e.Unknown, names); e.Unknown != "" && best != "" {
			hint = "did you mean " + show(best) + "?"
		}
	}
	l.wrong(at, codeExpression, hint, "%s: %s", what, message)
	return nil
}

// namesOf lists the names that an environment has, and how they are written.
func namesOf(env any) (names, shown []string) {
	t := reflect.TypeOf(env).Elem()
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("expr")
		if name == "" {
			continue
		}
		names, shown = append(names, name), append(shown, name)
		if t.Field(i).Type.Kind() == reflect.Func {
			shown[len(shown)-1] += "(name)"
		}
	}
	return names, shown
}
