package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir"
)

// little is the example of the running text, as short as it may be.
const little = `
weir: 1
callers_per_address: 12
name: little-stage
callers:
  account: jwt.sub
  tenant:  jwt.tenant
  partner: api_key.owner
  ip:      client_ip
trusted_proxies: [10.0.0.0/8]
exempt:
  - {name: webhooks, path: /webhooks/*, because: "signature-authenticated; a retry is the protocol working"}
  - {name: health,   path: /healthz}
edge:
  - {name: rate-all,  limit: sliding 2000/5m, by: ip, priority: 40, except_ips: [203.0.113.0/24]}
  - {name: rate-auth, limit: sliding 100/5m,  by: ip, priority: 41, path: /api/auth/*, except_ips: [203.0.113.0/24]}
gateway:
  plans:
    partner-basic: [10/s burst 20, quota 100000/month]
application:
  plans:
    order: [free, advanced, enterprise]
    free:       {analyze: quota 100/day,   generate: quota 10/minute}
    advanced:   {analyze: quota 1000/day,  generate: quota 100/minute}
    enterprise: {analyze: quota 1000/hour, generate: quota 100/second}
  operations:
    analyze:  {match: POST /analyze,  count: on_success}
    generate: {match: POST /generate, count: on_success}
  limits:
    - name: reservations
      match: POST /reservations
      by: [account, ip]
      limit: 0.5/s burst 10
      on_store_error: allow
      denied:
        message: "Your plan allows {{.Limit}} reservations. Try again in {{.Wait}}, or upgrade."
        upgrade_url: /billing
    - name: seats
      match: POST /events/{event}/seats
      by: account+path.event
      limit: 0.5/s burst 10
      anonymous: 1/s burst 2
`

func load(t testing.TB, text string, files ...string) *Policy {
	t.Helper()
	p, err := loadText(text, files...)
	if err != nil {
		t.Fatalf("the policy does not load:\n%v", err)
	}
	return p
}

func loadText(text string, files ...string) (*Policy, error) {
	fsys := fstest.MapFS{"weir.yaml": {Data: []byte(text)}}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return Load(fsys, "weir.yaml", Options{Expressions: Expressions})
}

func get(method, path string) *Attributes {
	return &Attributes{Method: method, Path: path, Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.44")}
}

// ask runs a request through the policy and renders what comes of it: one
// "name key cost" for each op.
func ask(t testing.TB, p *Policy, a *Attributes, id Identity) string {
	t.Helper()
	m, err := p.Match(a)
	if err != nil {
		return err.Error()
	}
	if m.Exempt != "" {
		return "exempt " + m.Exempt
	}
	ops, err := p.Ops(&m, a, id)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, op := range append(p.AppendEdge(nil, &m, a), ops...) {
		s := op.Limit.Name() + " " + op.Key.String()
		if op.Shadow {
			s += " shadow"
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestLittleStage(t *testing.T) {
	p := load(t, little)
	someone := Identity{Claims: map[string]any{"sub": "customer-42", "plans": "advanced"}}
	for _, c := range []struct {
		name string
		a    *Attributes
		id   Identity
		want string
	}{
		{"webhook", get("POST", "/webhooks/stripe"), Identity{}, "exempt webhooks"},
		{"health", get("GET", "/healthz"), Identity{}, "exempt health"},
		{"account", get("POST", "/reservations"), someone, "rate-all ip#192.0.2.44; reservations account#customer-42"},
		{"anonymous", get("POST", "/reservations"), Identity{}, "rate-all ip#192.0.2.44; reservations ip#192.0.2.44"},
		{"another method", get("GET", "/reservations"), someone, "rate-all ip#192.0.2.44"},
		{"login", get("POST", "/API/Auth/login"), Identity{}, "rate-all ip#192.0.2.44; rate-auth ip#192.0.2.44"},
		{"seat", get("POST", "/events/E1/seats"), someone, "rate-all ip#192.0.2.44; seats account#customer-42|event#e1"},
		{"anonymous seat", get("POST", "/events/12/seats"), Identity{}, "rate-all ip#192.0.2.44; seats ip#192.0.2.44|event#12"},
		{"partner", get("GET", "/shows"), Identity{KeyOwner: "acme", KeyPlan: "partner-basic"}, "rate-all ip#192.0.2.44; partner-basic partner#acme; partner-basic.quota-month partner#acme"},
		{"operation", get("POST", "/analyze"), someone, "rate-all ip#192.0.2.44; analyze account#customer-42"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ask(t, p, c.a, c.id); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Which stores there are, and what they can keep, is told by whoever opens them.
func TestTheStoreIsChecked(t *testing.T) {
	text := "weir: 1\nstore: STORE\nedge: [{name: rate, limit: 1/s, by: ip}]\napplication:\n  limits: [{name: a, match: POST /a, by: account, limit: [1/s, quota 5/day]}]\n"
	for _, c := range []struct {
		store string
		fails error
		want  string // of the error, nothing of which may be the password
	}{
		{"memory:?prefix=p", nil, ""},
		{"foo:bar", errors.New("store scheme \"foo\" is unknown"), "weir.yaml:2:8: error: store scheme \"foo\" is unknown [WEIR1611]\n    2 | store: foo:bar\n      |        ^^^^^^^"},
		{"memory:?max_ttl=1h", errors.New("weir: limit \"a.quota-day\" needs an item to be kept"), "weir.yaml:2:8: error: limit \"a.quota-day\" needs an item to be kept"},
		{"rediss://me:hunter2@host", errors.New("store rediss: names a user twice"), "weir.yaml:2:8: error: store rediss: names a user twice"},
	} {
		asked := 0
		fsys := fstest.MapFS{"weir.yaml": {Data: []byte(strings.Replace(text, "STORE", c.store, 1))}}
		p, err := Load(fsys, "weir.yaml", Options{CheckStore: func(url string, limits []weir.Limit) error {
			asked++
			if url != c.store || len(limits) != 2 || limits[1].Name() != "a.quota-day" {
				t.Errorf("asked of %q with %v", url, limits)
			}
			return c.fails
		}})
		switch {
		case asked != 1:
			t.Errorf("%s: asked %d times", c.store, asked)
		case c.fails == nil && (err != nil || p.Store() != c.store):
			t.Errorf("%s: %v", c.store, err)
		case c.fails != nil && (p != nil || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v", c.store, err)
		}
	}
	for _, text := range []string{"weir: 1\n", "weir: 1\nstore: \"\"\n", "weir: 1\nstore: [a]\n"} {
		_, _ = Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", Options{CheckStore: func(string, []weir.Limit) error {
			t.Errorf("%q: a store is asked for that is not named", text)
			return nil
		}})
	}
}
