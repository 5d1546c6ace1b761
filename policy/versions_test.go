package policy

import (
	"net/netip"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir"
)

func versioned(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const prices = `weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    order: [free, pro]
    free@3: {since: 2027-03-01T00:00:00+01:00, render: quota 3/h, export: quota 30/h}
    free: {render: quota 1/h, analyze: quota 10/h, export: quota 10/h}
    free@5: {since: 2027-05-01, render: quota 5/h}
    pro: {analyze: quota 100/h, render: unlimited, export: unlimited}
    pro@2: {}
  operations:
    render: {match: POST /render}
    analyze: {match: POST /analyze}
    export: {match: POST /export}
`

// What an account may use follows from its version, and that from what it keeps,
// else from the instant.
func TestSpec_B12_Versions(t *testing.T) {
	p := versioned(t, prices)
	if got := p.VersionsOf("free"); !slices.Equal(got, []int{1, 3, 5}) || p.VersionsOf("gold") != nil {
		t.Errorf("versions: %v", got)
	}
	at := func(text string) int64 {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixNano()
	}
	for _, c := range []struct {
		name, path string
		now        string
		plan       string
		pins       map[string]int
		want       string // VERSION LIMIT
	}{
		{"before the first date", "/render", "2027-02-28T22:59:59Z", "", nil, "1 quota 1/h"},
		{"at its instant", "/render", "2027-02-28T23:00:00Z", "", nil, "3 quota 3/h"},
		{"before the second", "/render", "2027-04-30T23:59:59Z", "", nil, "3 quota 3/h"},
		{"from then on", "/render", "2027-05-01T00:00:00Z", "", nil, "5 quota 5/h"},
		{"what it keeps", "/render", "2030-01-01T00:00:00Z", "", map[string]int{"free": 1}, "1 quota 1/h"},
		{"kept before it is new", "/render", "2026-01-01T00:00:00Z", "", map[string]int{"free": 5}, "5 quota 5/h"},
		{"one that is gone: the next", "/render", "2026-01-01T00:00:00Z", "", map[string]int{"free": 4}, "5 quota 5/h"},
		{"one that is yet unknown: the last", "/render", "2026-01-01T00:00:00Z", "", map[string]int{"free": 9}, "5 quota 5/h"},
		{"of another plan", "/render", "2026-01-01T00:00:00Z", "", map[string]int{"pro": 2}, "1 quota 1/h"},
		{"not listed: as in the version before", "/analyze", "2028-01-01T00:00:00Z", "", nil, "5 quota 10/h"},
		{"the version before changed it", "/export", "2028-01-01T00:00:00Z", "", nil, "5 quota 30/h"},
		{"a version that lists nothing", "/analyze", "2028-01-01T00:00:00Z", "pro", nil, "2 quota 100/h"},
		{"unlimited is inherited too", "/render", "2028-01-01T00:00:00Z", "pro", nil, ""},
	} {
		a := &Attributes{Method: "POST", Path: c.path, Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		id := Identity{Claims: map[string]any{"sub": "a", "plans": c.plan}, Now: at(c.now)}
		if c.pins != nil {
			id.Accounts = []*Account{{Kind: AccountKind, Pins: c.pins}}
		}
		ops, err := p.Ops(&m, a, id)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, op := range ops {
			got = string(rune('0'+op.Rule.Version)) + " " + op.Limit.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Of whom nothing is known the same holds as without records, and a pin is asked
// for only where one is missing.
func TestUnpinned(t *testing.T) {
	p := versioned(t, prices)
	for _, c := range []struct {
		name, path string
		id         Identity
		want       Pin
	}{
		{"a new account", "/render", Identity{Claims: map[string]any{"sub": "a"}, Now: 1}, Pin{"free", 1}},
		{"later", "/render", Identity{Claims: map[string]any{"sub": "a"}, Now: time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()}, Pin{"free", 5}},
		{"a higher plan", "/render", Identity{Claims: map[string]any{"sub": "a", "plans": "pro"}, Now: 1}, Pin{"pro", 2}},
		{"pinned", "/render", Identity{Claims: map[string]any{"sub": "a"}, Accounts: []*Account{{Kind: AccountKind, Pins: map[string]int{"free": 1}}}}, Pin{}},
		{"pinned in another plan", "/render", Identity{Claims: map[string]any{"sub": "a"}, Now: 1, Accounts: []*Account{{Kind: AccountKind, Pins: map[string]int{"pro": 1}}}}, Pin{"free", 1}},
		{"nobody", "/render", Identity{}, Pin{}},
		{"no operation", "/elsewhere", Identity{Claims: map[string]any{"sub": "a"}}, Pin{}},
	} {
		a := &Attributes{Method: "POST", Path: c.path, Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		if pin, ok := p.Unpinned(&m, &c.id); pin != c.want || ok != (c.want != Pin{}) {
			t.Errorf("%s: %v %v, want %v", c.name, pin, ok, c.want)
		}
	}
}

// A limit that is made for one account is made once, and never more than are
// worth remembering.
func TestAnAccountsLimitsAreBounded(t *testing.T) {
	p := versioned(t, "weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: a, match: /, by: account, limit: quota 5/month billing}\n")
	acct := &Account{Kind: AccountKind, Anchor: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)}
	op := func() Op {
		a := &Attributes{Method: "GET", Path: "/", Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, a, Identity{Claims: map[string]any{"sub": "a"}, Accounts: []*Account{acct}})
		if err != nil || len(ops) != 1 {
			t.Fatal(ops, err)
		}
		return ops[0]
	}
	if first, second := op(), op(); first.Limit != second.Limit || first.Limit == p.Limits()[0] || first.Overridden || !first.FromRecord {
		t.Errorf("%+v, then %+v", first, second)
	}
	for range 2 * maxMade {
		rule := *p.Rules()[0]
		if _, _, ok := acct.limitOf(&rule, 0); !ok {
			t.Fatal("no limit")
		}
	}
	if n := len(acct.made); n > maxMade {
		t.Errorf("%d limits are remembered", n)
	}
	if acct.Overrides = map[string]weir.Limit{"a": {}}; !acct.Overrides["a"].IsZero() || acct.overrides("a") {
		t.Error("unlimited is an override that limits")
	}
}
