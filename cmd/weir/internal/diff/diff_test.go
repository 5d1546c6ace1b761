package diff

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

const base = `weir: 1
name: shop
trusted_proxies: [10.0.0.0/8]
callers: {account: jwt.sub, ip: client_ip}
exempt:
  - {name: hooks, path: /hooks/*}
edge:
  - {name: flood, limit: sliding 100/5m, by: ip}
gateway:
  plans: {basic: 10/s burst 20}
application:
  plans:
    order: [free, paid]
    free: {orders: quota 50/hour}
    paid: {orders: quota 500/hour}
  operations:
    orders: {match: POST /orders, count: on_success}
  limits:
    - {name: seats, match: POST /seats, by: [account, ip], limit: 0.5/s burst 10, anonymous: 0.2/s burst 3}
    - {name: quiet, match: GET /quiet, by: account, limit: 5/s, mode: shadow}
`

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{Expressions: expression.Compile})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func edited(t *testing.T, pairs ...string) *policy.Policy {
	t.Helper()
	text := base
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the policy has no %q", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return load(t, text)
}

// The whole kind: every part of a policy, its change, whom it concerns and whether
// somebody is refused sooner.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		edit []string
		want string // KIND LAYER NAME FIELD EFFECT WHO, joined by ;
	}{
		"nothing":                    {nil, ""},
		"another spelling":           {[]string{"by: ip}", "by: [ip]}", "sliding 100/5m", "sliding 100/300s", "quota 50/hour", "quota 50/60m", "0.5/s burst 10", "30/m burst 10", "limit: 5/s, mode", "limit: 5/s burst 5, mode"}, ""},
		"a burst":                    {[]string{"0.5/s burst 10", "0.5/s burst 5"}, "changed application seats limit tighter callers by account, ip"},
		"a rate":                     {[]string{"0.5/s burst 10", "1/s burst 10"}, "changed application seats limit looser callers by account, ip"},
		"more at once, less later":   {[]string{"0.5/s burst 10", "0.1/s burst 20"}, "changed application seats limit other callers by account, ip"},
		"a quota for a bucket":       {[]string{"0.5/s burst 10", "quota 5/hour"}, "changed application seats limit tighter callers by account, ip"},
		"anonymous":                  {[]string{"0.2/s burst 3", "0.2/s burst 4"}, "changed application seats limit looser callers known by their address only"},
		"no anonymous":               {[]string{", anonymous: 0.2/s burst 3", ""}, "removed application seats limit looser callers known by their address only"},
		"a plan":                     {[]string{"quota 50/hour", "quota 5/hour"}, "changed application orders limit tighter accounts on the plan free"},
		"a plan that is inherited":   {[]string{"    paid: {orders: quota 500/hour}\n", ""}, "changed application orders limit tighter accounts on the plan paid"},
		"a plan without limit":       {[]string{"quota 500/hour", "unlimited"}, "removed application orders limit looser accounts on the plan paid"},
		"a plan more":                {[]string{"[free, paid]", "[free, paid, top]"}, "added application orders limit tighter accounts on the plan top;changed settings plans plans  accounts"},
		"a partner's plan":           {[]string{"10/s burst 20", "10/s burst 10"}, "changed gateway basic limit tighter API keys of the plan basic"},
		"an edge rule":               {[]string{"sliding 100/5m", "sliding 200/5m"}, "changed edge flood limit looser every address"},
		"an edge rule's path":        {[]string{"by: ip}", "by: ip, path: /a}"}, "changed edge flood match looser every address"},
		"an office":                  {[]string{"by: ip}", "by: ip, except_ips: [203.0.113.0/24]}"}, "changed edge flood except_ips looser every address"},
		"a priority":                 {[]string{"by: ip}", "by: ip, priority: 4}"}, "changed edge flood priority  every address"},
		"shadow to enforce":          {[]string{", mode: shadow", ""}, "changed application quiet mode tighter callers by account"},
		"enforce to off":             {[]string{"anonymous: 0.2/s burst 3}", "mode: off}"}, "changed application seats mode looser callers by account, ip;removed application seats limit looser callers known by their address only"},
		"what only watches":          {[]string{"limit: 5/s, mode", "limit: 4/s, mode"}, "changed application quiet limit  callers by account"},
		"where":                      {[]string{"match: POST /seats", "match: [POST /seats, PUT /seats]"}, "match tighter"},
		"case":                       {[]string{"match: GET /quiet", "case: exact, match: GET /quiet"}, "changed application quiet match  callers by account"},
		"who":                        {[]string{"match: GET /quiet, by: account", "match: GET /quiet, by: everyone"}, "changed application quiet by  all callers together"},
		"a condition":                {[]string{"by: [account, ip]", "by: [account, ip], when: 'method == \"POST\"'"}, "when other"},
		"a cost":                     {[]string{"by: [account, ip]", "by: [account, ip], cost: 2"}, "cost other"},
		"what counts":                {[]string{", count: on_success", ""}, "changed application orders count other accounts on the plan free;changed application orders count other accounts on the plan paid"},
		"a store that fails":         {[]string{"by: [account, ip]", "by: [account, ip], on_store_error: deny"}, "on_store_error  callers"},
		"a message":                  {[]string{"by: [account, ip]", "by: [account, ip], denied: {message: no}"}, "denied  callers"},
		"an upgrade":                 {[]string{"by: [account, ip]", "by: [account, ip], denied: {upgrade_url: /b}"}, "denied.upgrade_url  callers"},
		"what is beyond a quota":     {[]string{"count: on_success", "over: charge"}, "orders over looser accounts on the plan free"},
		"charged anyway":             {[]string{"count: on_success", "over: charge", "quota 50/hour", "quota 5/hour"}, "orders over looser accounts on the plan free"},
		"an expression's failure":    {[]string{"by: [account, ip]", "by: [account, ip], when: 'method == \"POST\"', on_error: deny"}, "when other"},
		"a debt":                     {[]string{"count: on_success", "count: on_success, debt: 2"}, "orders debt other accounts on the plan free"},
		"a notice":                   {[]string{"count: on_success", "count: on_success, notify_at: 80"}, "orders notify_at  accounts on the plan free"},
		"what a call cost":           {[]string{"by: [account, ip]", "by: [account, ip], settle: header.X-Units"}, "seats settle other callers"},
		"a repetition":               {[]string{"by: [account, ip]", "by: [account, ip], once: header.Idempotency-Key"}, "seats once other callers"},
		"a language":                 {[]string{"by: [account, ip]", "by: [account, ip], denied: {message: no, locales: {de: nein}}"}, "denied.locales  callers"},
		"a body":                     {[]string{"by: [account, ip]", "by: [account, ip], denied: {body: '<p>no</p>', content_type: text/html}"}, "denied.body  callers by account, ip;changed application seats denied.content_type"},
		"a clock":                    {[]string{"by: [account, ip]", "by: [account, ip], denied: {zone: jwt.zone}"}, "denied.zone  callers"},
		"how old a record may be":    {[]string{"name: shop", "name: shop\naccounts: {max_age: 10s}"}, "settings accounts.max_age"},
		"an exemption":               {[]string{"exempt:\n", "exempt:\n  - {name: health, path: /healthz}\n"}, "added exempt health path looser whoever calls /healthz"},
		"an exemption less":          {[]string{"exempt:\n  - {name: hooks, path: /hooks/*}\n", ""}, "removed exempt hooks path tighter whoever calls /hooks/*"},
		"an exemption's path":        {[]string{"path: /hooks/*", "path: [/hooks/*, /h]"}, "changed exempt hooks path looser whoever calls /hooks/*"},
		"a name":                     {[]string{"name: seats", "name: places"}, "removed application seats limit looser callers by account, ip;"},
		"callers":                    {[]string{"account: jwt.sub", "account: jwt.oid"}, "changed settings callers callers  everybody"},
		"proxies":                    {[]string{"10.0.0.0/8", "10.0.0.0/9"}, "changed settings client_ip client_ip  callers known by their address"},
		"tokens":                     {[]string{"callers:", "auth: {jwt: {hs256_secret_env: A}}\ncallers:"}, "added settings auth.jwt auth.jwt  callers with a token"},
		"a store":                    {[]string{"name: shop", "name: shop\nstore: 'memory:'"}, "added settings store store  everybody"},
		"where edge rules are held":  {[]string{"name: shop", "name: shop\nedge_store: shared"}, "changed settings edge_store edge_store  every address"},
		"a revision":                 {[]string{"name: shop", "name: shop\nrevision: 7"}, "changed settings revision revision  whoever runs it"},
		"styles":                     {[]string{"name: shop", "name: shop\nheader_styles: [x]"}, "changed edge flood header_styles  every address;"},
		"logs":                       {[]string{"name: shop", "name: shop\nlog_keys: none"}, "changed settings log_keys log_keys  whoever runs it"},
		"where plans come from":      {[]string{"order: [free", "from: jwt.tier\n    order: [free"}, "changed settings plans plans  accounts"},
		"everything at once is told": {[]string{"0.5/s burst 10", "1/s burst 20", "quota 50/hour", "quota 60/hour", "name: shop", "name: store"}, "orders limit looser accounts on the plan free;changed application seats limit looser callers by account, ip;changed settings name"},
	} {
		var got []string
		for _, one := range Compare(load(t, base), edited(t, c.edit...)) {
			got = append(got, strings.Join([]string{one.Kind, one.Layer, one.Name, one.Field, one.Effect, one.Who}, " "))
			if one.Old == one.New {
				t.Errorf("%s: %q becomes the same", name, one.Old)
			}
		}
		if all := strings.Join(got, ";"); !strings.Contains(all, c.want) || c.want == "" && all != "" {
			t.Errorf("%s: got  %s\nwant %s", name, all, c.want)
		}
	}
}

// logOf makes calls by a policy at virtual times and gives what the proxy would
// log of them.
func logOf(t *testing.T, p *policy.Policy, share float64, calls func(call func(at time.Duration, who, path string))) []engine.Record {
	t.Helper()
	var now int64
	clock := func() int64 { return now }
	var who string
	var out []engine.Record
	e, err := engine.New(engine.Options{
		Policy: p, Store: memstore.New(memstore.Options{Now: clock}), Now: clock, Logger: slog.New(slog.DiscardHandler), LogKey: []byte("k"),
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{Claims: map[string]any{"sub": who}}, nil
		},
		Decisions: func(r engine.Record) { out = append(out, r) }, AllowedShare: share,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	calls(func(at time.Duration, caller, path string) {
		now, who = start+int64(at), caller
		var o engine.Outcome
		e.Decide(t.Context(), &policy.Attributes{Method: "POST", Path: path, Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}, &o)
		o.Release()
	})
	return out
}

func replay(t *testing.T, was, is *policy.Policy, log []engine.Record) ([]Change, error) {
	t.Helper()
	changes := Compare(was, is)
	r := NewReplay(changes)
	for i := range log {
		if err := r.Add(t.Context(), &log[i]); err != nil {
			return nil, err
		}
	}
	return changes, r.End()
}

// What a replay says of a log is what the new policy does to the same calls.
func TestReplayIsWhatTheNewPolicyDoes(t *testing.T) {
	const seed = 11
	const shadow, charge = ", mode: shadow", ", over: charge"
	for _, limits := range [][2]string{
		{"0.5/s burst 10", "0.2/s burst 5"}, {"0.5/s burst 10", "1/s burst 30"}, {"0.5/s burst 10", "quota 20/5m"},
		{"quota 10/m", "quota 5/m"}, {"quota 10/m", "sliding 10/m"}, {"sliding 30/5m", "sliding 10/m"}, {"quota 10/m calendar", "quota 4/m calendar"},
		// Numbers and the mode in one edit.
		{"0.5/s burst 10" + shadow, "0.2/s burst 5"}, {"0.5/s burst 10" + shadow, "1/s burst 30"}, {"quota 10/m" + shadow, "sliding 10/m"},
		{"0.5/s burst 10", "0.2/s burst 5" + shadow}, {"quota 10/m", "quota 5/m" + shadow}, {"sliding 30/5m", "sliding 10/m, mode: off"},
		// over: alone, and with others.
		{"quota 10/m", "quota 10/m" + charge}, {"quota 10/m" + charge, "quota 10/m"}, {"quota 10/m", "quota 5/m" + charge}, {"quota 10/m" + charge, "quota 5/m"},
		{"quota 10/m" + charge + shadow, "quota 10/m"}, {"quota 10/m" + charge + shadow, "quota 5/m"},
	} {
		text := "weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: seats, match: POST /seats, by: account, limit: %s}\n"
		was, is := load(t, fmt.Sprintf(text, limits[0])), load(t, fmt.Sprintf(text, limits[1]))
		calls := func(call func(time.Duration, string, string)) {
			r := rand.New(rand.NewPCG(seed, seed))
			at := time.Duration(0)
			for range 1000 {
				at += time.Duration(r.ExpFloat64() * float64(300*time.Millisecond))
				call(at, fmt.Sprintf("caller-%d", r.IntN(1+r.IntN(6))), "/seats")
			}
		}
		refusals := func(log []engine.Record) (all int, by map[string]int) {
			by = map[string]int{}
			for _, r := range log {
				if !r.Allowed && !r.Shadow {
					all++
					by[r.KeyHash]++
				}
			}
			return all, by
		}
		log := logOf(t, was, 1, calls)
		changes, err := replay(t, was, is, log)
		if err != nil || len(changes) == 0 {
			t.Fatalf("%v: %v, %v", limits, changes, err)
		}
		before, byBefore := refusals(log)
		after, byAfter := refusals(logOf(t, is, 1, calls))
		hurt, helped := 0, 0
		for who := range byBefore {
			if byAfter[who] < byBefore[who] {
				helped++
			}
		}
		for who := range byAfter {
			if byAfter[who] > byBefore[who] {
				hurt++
			}
		}
		for i := range changes[1:] {
			if a := changes[1+i].Affected; a.Replayed || a.Callers > 0 || !strings.Contains(a.Note, "stands at its") {
				t.Errorf("%v: %s has figures of its own: %+v", limits, changes[1+i].Field, a)
			}
		}
		for i := range changes[:1] {
			a := changes[i].Affected
			if a.RefusedBefore != before || a.RefusedAfter != after || a.HurtCallers != hurt || a.HelpedCallers != helped || a.Requests != 1000 || a.Callers != 6 || !a.Replayed {
				t.Errorf("%v: %s: %+v, the policies refuse %d and %d, hurt %d, help %d", limits, changes[i].Field, a, before, after, hurt, helped)
			}
			together := map[string]bool{}
			for _, c := range changes {
				together[c.Field] = true
			}
			if (len(changes) > 1) != strings.Contains(a.Note, " together") || together["limit"] && together["mode"] && !strings.Contains(a.Note, "its mode") || together["over"] && len(changes) > 1 && !strings.Contains(a.Note, "its over:") {
				t.Errorf("%v: note %q", limits, a.Note)
			}
		}
	}
}

// The whole kind: a change by which nobody is refused who was not, or the reverse, has
// no effect, and one that refuses has.
func TestEffectsOfWhatRefuses(t *testing.T) {
	const text = "weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: a, match: GET /a, by: account, %s}\n"
	for _, c := range []struct{ was, is, want string }{ // FIELD EFFECT
		{"limit: quota 2/hour, over: charge", "limit: quota 1/hour, over: charge", "limit "},
		{"limit: quota 2/hour, over: charge", "limit: quota 3/hour, over: charge", "limit "},
		{"limit: quota 2/hour, over: charge", "limit: quota 2/hour, over: charge, mode: shadow", "mode "},
		{"limit: quota 2/hour, over: charge", "limit: quota 2/hour, over: charge, cost: 2", "cost "},
		{"limit: quota 2/hour, over: charge", "limit: quota 1/hour", "limit tighter;over tighter"},
		{"limit: quota 2/hour", "limit: quota 1/hour, over: charge", "limit tighter;over looser"},
		{"limit: quota 2/hour, mode: shadow", "limit: quota 2/hour, over: charge, mode: shadow", "over "},
		{"limit: [quota 2/hour, 5/s], over: charge", "limit: [quota 1/hour, 4/s], over: charge", "limit ;limit tighter"},
		{"limit: [quota 2/hour, 5/s]", "limit: [quota 2/hour, 5/s], over: charge", "over looser;over "},
		{"limit: 5/s, when: 'claims.a == 1'", "limit: 5/s, when: 'claims.a == 1', on_error: deny", "on_error tighter"},
		{"limit: 5/s, when: 'claims.a == 1', on_error: deny", "limit: 5/s, when: 'claims.a == 1', on_error: skip", "on_error looser"},
		{"limit: 5/s, when: 'claims.a == 1', on_error: skip", "limit: 5/s, when: 'claims.a == 1', on_error: apply", "on_error tighter"},
		{"limit: 5/s, mode: shadow, when: 'claims.a == 1', on_error: skip", "limit: 5/s, mode: shadow, when: 'claims.a == 1', on_error: apply", "on_error "},
		{"limit: quota 5/h, over: charge, when: 'claims.a == 1', on_error: skip", "limit: quota 5/h, over: charge, when: 'claims.a == 1', on_error: deny", "on_error tighter"},
	} {
		var got []string
		for _, one := range Compare(load(t, fmt.Sprintf(text, c.was)), load(t, fmt.Sprintf(text, c.is))) {
			got = append(got, one.Field+" "+one.Effect)
		}
		if strings.Join(got, ";") != c.want {
			t.Errorf("%s\n%s\n%q, want %q", c.was, c.is, got, c.want)
		}
	}
}

func TestReplayOfWhatCannotBeMadeAgain(t *testing.T) {
	burst := func(call func(time.Duration, string, string)) {
		for i := range 30 {
			call(time.Duration(i)*time.Millisecond, "ann", "/seats")
			call(time.Duration(i)*time.Millisecond, "ben", "/quiet")
		}
	}
	was := load(t, base)
	full := logOf(t, was, 1, burst)
	of := func(log []engine.Record, pairs ...string) (*Affected, error) {
		changes, err := replay(t, was, edited(t, pairs...), log)
		if err != nil {
			return nil, err
		}
		return changes[0].Affected, nil
	}
	// A sample is refused where calls must be made again, and only there.
	thin := logOf(t, was, 1, burst)
	for i := range thin {
		if thin[i].Allowed {
			thin[i].Weight = 100
		}
	}
	var none []engine.Record
	for _, r := range full {
		if !r.Allowed {
			none = append(none, r)
		}
	}
	var t1 *Thin
	if _, err := of(thin, "0.5/s burst 10", "0.5/s burst 5"); !errors.As(err, &t1) || t1.Weight != 100 || !strings.Contains(err.Error(), "one in 100") {
		t.Errorf("a sample: %v", err)
	}
	if _, err := of(none, "0.5/s burst 10", "0.5/s burst 5"); !errors.As(err, &t1) || t1.Weight != 0 {
		t.Errorf("refusals only: %v", err)
	}
	if a, err := of(thin, "by: [account, ip]", "by: [account, ip], cost: 2"); err != nil || a.Requests != 1020 || a.Callers != 1 || a.Replayed || !strings.Contains(a.Note, "does not say") {
		t.Errorf("a sample of what is merely counted: %+v, %v", a, err)
	}
	// Modes, and what goes and comes.
	if a, err := of(full, "anonymous: 0.2/s burst 3}", "anonymous: 0.2/s burst 3, mode: shadow}"); err != nil || a.RefusedBefore != 20 || a.RefusedAfter != 0 || a.HelpedCallers != 1 || a.HurtCallers != 0 {
		t.Errorf("enforce to shadow: %+v, %v", a, err)
	}
	shadow := strings.Replace(base, "match: GET /quiet", "match: POST /quiet", 1)
	was = load(t, shadow)
	full = logOf(t, was, 1, burst)
	changes, err := replay(t, was, load(t, strings.Replace(shadow, ", mode: shadow", "", 1)), full)
	if err != nil || changes[0].Affected.RefusedBefore != 0 || changes[0].Affected.RefusedAfter != 25 || changes[0].Affected.HurtCallers != 1 {
		t.Errorf("shadow to enforce: %+v, %v", changes[0].Affected, err)
	}
	changes, err = replay(t, was, load(t, strings.Replace(shadow, "name: seats", "name: places", 1)), full)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		switch {
		case c.Who == "callers known by their address only":
		case c.Kind == "removed" && (c.Affected.RefusedBefore != 20 || c.Affected.HelpedCallers != 1):
			t.Errorf("a limit that goes: %+v", c.Affected)
		case c.Kind == "added" && (c.Affected.Callers != 0 || !strings.Contains(c.Affected.Note, "mode: shadow")):
			t.Errorf("a limit that comes: %+v", c.Affected)
		}
	}
	// What the log cannot tell of one edit is said.
	if a, err := of(full, "by: [account, ip], limit: 0.5/s burst 10", "by: [account, ip], cost: 2, limit: 0.5/s burst 5"); err != nil || !a.Replayed || !strings.Contains(a.Note, "what its other changes (cost) do is not in it") {
		t.Errorf("numbers and cost: %+v, %v", a, err)
	}
	for i := range full {
		full[i].KeyHash = ""
	}
	if _, err := replay(t, was, edited(t, "0.5/s burst 10", "0.5/s burst 5"), full); err == nil || !strings.Contains(err.Error(), "log_keys: none") {
		t.Errorf("a log without callers: %v", err)
	}
}
