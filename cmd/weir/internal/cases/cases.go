// Package cases runs the tests of a policy: requests at virtual time, through the
// engine that decides in production, with what is expected of them.
//
//	cases:
//	  - name: ten clicks in a row are fine, a script is slowed
//	    at: 0s
//	    request: {method: POST, path: /reservations, token: {sub: maya}}
//	    times: 12
//	    expect: {allowed: 10, denied: 2, first_denial: {status: 429, retry_after: 2}}
//
// The cases of one file share one stretch of time and one set of counters, which
// begin unused: a case that comes later meets what earlier ones have used. Those
// who call are said to be who they are, by the claims of a token or the owner of
// an API key; no key and no secret is needed.
package cases

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"github.com/weirlabs/weir/cmd/weir/internal/curl"
	"github.com/weirlabs/weir/cmd/weir/internal/nesting"
)

// File is one file of cases.
type File struct {
	Policy string    `yaml:"policy"` // relative to the file; "" for the one of the command line
	Start  time.Time `yaml:"start"`  // what 0s is; default 2026-01-01T00:00:00Z
	Cases  []Case    `yaml:"cases"`
}

// Case is one test.
type Case struct {
	Name    string  `yaml:"name"`
	At      string  `yaml:"at"`    // since the start: 0s, 1m30s, 2d; default: that of the case before
	Every   string  `yaml:"every"` // between two calls; default 0s: all at once
	Times   *int    `yaml:"times"` // default 1
	Request Request `yaml:"request"`
	Service *int    `yaml:"service"` // the status with which the service answers; default 200
	Expect  Expect  `yaml:"expect"`

	Line int `yaml:"-"` // of the file, from 1

	at, every      time.Duration
	times, service int
}

// Request is what is sent, and who sends it.
type Request struct {
	Method  string            `yaml:"method"` // default GET
	Path    string            `yaml:"path"`   // with a query, if it has one; default /
	Host    string            `yaml:"host"`
	From    string            `yaml:"from"`    // the peer's address; default 192.0.2.1
	Token   any               `yaml:"token"`   // claims, or the word invalid
	APIKey  any               `yaml:"api_key"` // its owner, {owner, plan}, or the word invalid
	Headers map[string]string `yaml:"headers"`
}

// Expect is what must come of it. What is not said is not looked at.
type Expect struct {
	Allowed     *int    `yaml:"allowed"`
	Denied      *int    `yaml:"denied"`
	Remaining   *int64  `yaml:"remaining"` // of the limit that speaks, after the last call
	FirstDenial *Denial `yaml:"first_denial"`
}

// Denial is the answer to the first call that is refused.
type Denial struct {
	Status     int               `yaml:"status"`
	RetryAfter *int64            `yaml:"retry_after"` // whole seconds
	Limit      string            `yaml:"limit"`       // its name
	Headers    map[string]string `yaml:"headers"`     // those that must be there, with their values
	Body       map[string]any    `yaml:"body"`        // fields that must be there, with their values
}

// parseSpan reads a time such as 0s, 1m30s or 2d.
func parseSpan(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	bad := fmt.Errorf("%q is no time; write 0s, 1m30s or 2d", text)
	if text == "" || text == "0" {
		return 0, nil
	}
	var days time.Duration
	if head, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseInt(head, 10, 64)
		if err != nil || n < 0 || n > 36_500 {
			return 0, bad
		}
		days = time.Duration(n) * 24 * time.Hour
		if text = rest; text == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxSpan {
		return 0, bad
	}
	return days + d, nil
}

// The bounds of a file.
const (
	maxSpan  = 100 * 365 * 24 * time.Hour
	MaxFile  = 4 << 20
	maxCalls = 1_000_000 // of all cases of a file
)

// Mistakes are what is wrong with a file of cases: one line for each.
type Mistakes []string

func (m Mistakes) Error() string { return strings.Join(m, "\n") }

// Parse reads a file. name is how messages call it. The error is [Mistakes].
func Parse(name string, text []byte) (*File, error) {
	f := &File{}
	if line := nesting.TooDeep(lexer.Tokenize(string(text))); line > 0 {
		return nil, Mistakes{fmt.Sprintf("%s:%d:1: nested deeper than %d levels; is this the right file?", name, line, nesting.Max)}
	}
	if err := yaml.UnmarshalWithOptions(text, f, yaml.Strict()); err != nil {
		return nil, Mistakes{unreadable(name, err)}
	}
	var m Mistakes
	if f.Start.IsZero() {
		f.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a Thursday
	}
	if len(f.Cases) == 0 {
		m = append(m, name+": there are no cases; begin with\ncases:\n  - {name: one, request: {method: GET, path: /}, expect: {allowed: 1}}")
	}
	lines := linesOf(text, len(f.Cases))
	var at time.Duration
	calls := 0
	for i := range f.Cases {
		c := &f.Cases[i]
		c.Line = lines[i]
		if c.At == "" {
			c.At = at.String()
		}
		c.times, c.service = orElse(c.Times, 1), orElse(c.Service, http.StatusOK)
		if c.Name == "" {
			c.Name = fmt.Sprintf("case %d", i+1)
		}
		calls += min(max(c.times, 0), maxCalls+1)
		for _, why := range c.wrong() {
			m = append(m, fmt.Sprintf("%s:%d: %s: %s", name, c.Line, c.Name, why))
		}
		at = c.at
	}
	if calls > maxCalls {
		m = append(m, fmt.Sprintf("%s: the cases make %d calls; at most %d are possible", name, calls, maxCalls))
	}
	if len(m) > 0 {
		return nil, m
	}
	return f, nil
}

func orElse(n *int, other int) int {
	if n == nil {
		return other
	}
	return *n
}

// unreadable says where a file is no file of cases.
func unreadable(name string, err error) string {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return name + ": " + err.Error()
	}
	_, excerpt, _ := strings.Cut(at.FormatError(false, true), "\n")
	pos := at.GetToken().Position
	return fmt.Sprintf("%s:%d:%d: %s\n%s", name, pos.Line, pos.Column, at.GetMessage(), strings.TrimRight(excerpt, "\n"))
}

// linesOf finds where each case begins.
func linesOf(text []byte, n int) []int {
	lines := make([]int, n)
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return lines
	}
	for i := range lines {
		path, err := yaml.PathString(fmt.Sprintf("$.cases[%d]", i))
		if err != nil {
			continue
		}
		if node, err := path.FilterFile(file); err == nil && node.GetToken() != nil {
			lines[i] = node.GetToken().Position.Line
		}
	}
	return lines
}

// wrong says what cannot be meant.
func (c *Case) wrong() (why []string) {
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	r, e := &c.Request, &c.Expect
	if c.times < 1 {
		say("times: %d is below 1", c.times)
	}
	var bad error
	if c.at, bad = parseSpan(c.At); bad != nil {
		say("at: %v", bad)
	}
	if c.every, bad = parseSpan(c.Every); bad != nil {
		say("every: %v", bad)
	}
	if c.times > 1 && c.every > maxSpan/time.Duration(c.times) {
		say("the last call would come after 100 years")
	}
	if c.service < 100 || c.service > 599 {
		say("service: %d is not a status", c.service)
	}
	if r.Method != "" && !curl.Token(r.Method) {
		say("method: %q is not a method", r.Method)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if !curl.Token(name) {
			say("headers: %q is not the name of a header", name)
		}
	}
	if r.Path != "" && !strings.HasPrefix(r.Path, "/") {
		say("path: %q does not begin with a slash", r.Path)
	}
	if r.From != "" {
		if _, err := netip.ParseAddr(r.From); err != nil {
			say("from: %q is not an address", r.From)
		}
	}
	if _, err := r.claims(); err != nil {
		say("%v", err)
	}
	if _, _, err := r.key(); err != nil {
		say("%v", err)
	}
	if e.Allowed == nil && e.Denied == nil && e.FirstDenial == nil && e.Remaining == nil {
		say("nothing is expected; write expect: {allowed: %d}", c.times)
	}
	if e.Allowed != nil && e.Denied != nil && *e.Allowed+*e.Denied != c.times {
		say("%d allowed and %d denied are not the %d calls", *e.Allowed, *e.Denied, c.times)
	}
	if e.FirstDenial != nil && e.Denied != nil && *e.Denied == 0 {
		say("a first denial is expected, and none that is denied")
	}
	return why
}

// invalid is how a case says that credentials cannot be verified.
const invalid = "invalid"

// claims are those of the token; nil without one, and for one that is invalid.
func (r *Request) claims() (map[string]any, error) {
	switch v := r.Token.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return v, nil
	case string:
		if v == invalid {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("token: write its claims, {sub: maya}, or the word %s", invalid)
}

// key is the owner and the plan of the API key; a plan of "" is that of the file.
func (r *Request) key() (owner, plan string, err error) {
	switch v := r.APIKey.(type) {
	case nil:
		return "", "", nil
	case string:
		return v, "", nil
	case map[string]any:
		owner, _ := v["owner"].(string)
		plan, hasPlan := v["plan"].(string)
		if owner != "" && (len(v) == 1 || len(v) == 2 && hasPlan) {
			return owner, plan, nil
		}
	}
	return "", "", fmt.Errorf("api_key: write its owner, acme, or {owner: acme, plan: partner}, or the word %s", invalid)
}
