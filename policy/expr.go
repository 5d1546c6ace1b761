package policy

import (
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

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

func newFacts(a *Attributes, path string, client netip.Addr, plan string, id Identity) *facts {
	f := factsPool.Get().(*facts)
	f.Method, f.Host, f.Path = strings.ToUpper(a.Method), normalHost(a.Host), strings.ReplaceAll(path, inner, "/")
	if f.Path == "" {
		f.Path = "/"
	}
	f.IP, f.Plan, f.Claims = "", plan, id.Claims
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
	program *vm.Program
}

// of returns the cost of a call: 0 skips the limit. What a client controls,
// and what goes wrong, counts at least 1.
func (c *cost) of(f *facts) int64 {
	switch {
	case c.program != nil:
		v, err := expr.Run(c.program, f)
		n, ok := v.(float64)
		switch {
		case err != nil || !ok || math.IsNaN(n) || n < 0:
			return 1
		case n > maxCost:
			return maxCost
		}
		return int64(math.Ceil(n))
	case c.header != "":
		sent := f.sent[c.header]
		if len(sent) != 1 {
			return 1
		}
		n, err := strconv.ParseInt(strings.TrimSpace(sent[0]), 10, 64)
		if err != nil {
			return 1
		}
		return min(max(n, 1), maxCost)
	}
	return c.fixed
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
		l.wrong(n, "write a number, header.NAME or an expression", "cost is empty")
		return c
	}
	if v, err := strconv.ParseInt(n.text, 10, 64); err == nil {
		if v < 0 || v > maxCost {
			l.wrong(n, "write 0 to skip the limit, else 1 or more; to give back, write count: on_success", "a cost of %s is not possible", n.text)
			return c
		}
		c.fixed = v
		return c
	}
	if _, err := strconv.ParseFloat(n.text, 64); err == nil {
		l.wrong(n, "count in smaller units, and raise the limit", "a cost is a whole number, not %s", n.text)
		return c
	}
	if name, ok := strings.CutPrefix(n.text, "header."); ok {
		c.header = l.headerName(n, name)
		return c
	}
	c.program = l.program(n, "cost", expr.AsFloat64())
	return c
}

// condition reads a when: expression.
func (l *loader) condition(n *node) *vm.Program {
	if n == nil || !l.is(n, scalar, "when") {
		return nil
	}
	if strings.TrimSpace(n.text) == "" {
		l.wrong(n, "write a condition such as plan == \"free\", or remove the line", "when is empty")
		return nil
	}
	return l.program(n, "when", expr.AsBool())
}

// program compiles and checks an expression. Without now() it depends on the
// request alone.
func (l *loader) program(n *node, what string, as expr.Option) *vm.Program {
	p, err := expr.Compile(n.text, expr.Env(&facts{}), expr.DisableBuiltin("now"), as)
	if err == nil {
		return p
	}
	hint := "known here: method, host, path, ip, plan, claims, header(name), query(name)"
	message := strings.TrimSpace(strings.SplitN(err.Error(), "\n", 2)[0])
	at := *n
	if fe, ok := err.(*file.Error); ok {
		message = fe.Message
		if n.width >= len(n.text) && fe.Line <= 1 { // on one line: point into it
			if at.col += fe.Column; !n.plain {
				at.col++
			}
			at.width = 1
		}
	}
	message = strings.NewReplacer("expected float64", "expected a number", "expected bool", "expected true or false", `Operator("=")`, "=").Replace(message)
	if strings.HasSuffix(message, "token =") {
		hint = "compare with =="
	}
	if rest, ok := strings.CutPrefix(message, "unknown name "); ok {
		if best := nearest(rest, []string{"method", "host", "path", "ip", "plan", "claims", "header", "query"}); best != "" {
			hint = "did you mean " + show(best) + "?"
		}
	}
	l.wrong(&at, hint, "%s: %s", what, message)
	return nil
}
