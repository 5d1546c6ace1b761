package cost

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}, "keys": {Data: []byte("# none yet\n")}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func prices(t *testing.T) Prices {
	t.Helper()
	p, err := In("us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const head = `weir: 1
callers: {account: jwt.sub, tenant: jwt.tenant, ip: client_ip}
`

const edge = `edge:
  - {name: rate-all, limit: sliding 2000/5m, by: ip, priority: 40}
  - {name: rate-auth, limit: sliding 100/5m, by: ip, priority: 41, path: /api/auth/*}
  - {name: rate-api, limit: sliding 1000/5m, by: ip, priority: 42, path: /api/*}
`

const one = `application:
  limits:
    - {name: reservations, match: POST /reservations, by: [account, ip], limit: 0.5/s burst 10}
`

// TestSpec_C06_MonthToTheCent works the example out by hand: 3 requests a second
// for 730 h are 7.884 million; the edge is 5 + 3 + 7.884 x 0.60, the application
// 7.884 x 0.625 x 0.8, and at worst without the 0.8.
func TestSpec_C06_MonthToTheCent(t *testing.T) {
	r := Estimate(load(t, head+edge+one), Traffic{RPS: 3, Keys: 10_000, DeniedShare: 0.2, IntegratorUSD: 1}, prices(t))
	for what, c := range map[string]struct{ got, want string }{
		"edge":                 {r.Layers[0].USD.String(), "12.73"},
		"edge at worst":        {r.Layers[0].USDWorst.String(), "12.73"},
		"gateway":              {r.Layers[1].USD.String(), "0.00"},
		"application":          {r.Layers[2].USD.String(), "3.94"},
		"application at worst": {r.Layers[2].USDWorst.String(), "4.93"},
		"total":                {r.TotalUSD.String(), "16.67"},
		"usage plans":          {r.Gateway.USD.String(), "27.59"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s dollars, want %s", what, c.got, c.want)
		}
	}
	// 7.884 x (3.50 - 0.625) = 22.67 dollars: what 23 integrators cost at one each.
	if r.Gateway.BreakEvenIntegrators != 23 {
		t.Errorf("break-even at %d integrators, want 23", r.Gateway.BreakEvenIntegrators)
	}
}

// Records of accounts are read where plans depend on them: at most once for each
// request, and once for each account in max_age and process. A month has 2,628,000 s:
// 50 accounts every 30 s are 4.38 million reads, which cost 0.125 a million.
func TestRecordsAreRead(t *testing.T) {
	const plans = head + `accounts: {max_age: 30s}
application:
  plans: {from: account.plan, order: [free, pro], free: {render: quota 100/day}, pro: {render: quota 1000/day}}
  operations: {render: {match: POST /render}}
`
	for _, c := range []struct {
		text        string
		rps         float64
		keys        int64
		usd, worst  string
		total, most string
	}{
		{plans, 3, 50, "0.55", "0.99", "5.48", "5.91"},
		{plans, 3, 10_000, "0.99", "0.99", "5.91", "5.91"}, // each request is another account's
		{plans, 3, 0, "0.00", "0.99", "4.93", "5.91"},
		{plans, 0, 50, "0.00", "0.00", "0.00", "0.00"},
		{strings.Replace(plans, "30s", "1s", 1), 3, 1, "0.33", "0.99", "5.26", "5.91"}, // 2.628 million
		{head + "application: {limits: [{name: a, match: POST /a, by: account, limit: quota 100/month billing}]}\n", 3, 1, "0.07", "0.99", "4.99", "5.91"}, // every 5 s
		{head + one, 3, 50, "", "", "4.93", "4.93"},
		{head + "accounts: {max_age: 30s}\n" + one, 3, 50, "", "", "4.93", "4.93"},
	} {
		r := Estimate(load(t, c.text), Traffic{RPS: c.rps, Keys: c.keys, IntegratorUSD: 1}, prices(t))
		usd, worst := "", ""
		for _, i := range r.Layers[2].Items {
			if i.Name == "account records" {
				usd, worst = i.USD.String(), i.USDWorst.String()
			}
		}
		if usd != c.usd || worst != c.worst || r.TotalUSD.String() != c.total || r.TotalUSDWorst.String() != c.most {
			t.Errorf("%g/s of %d callers: records %s, at worst %s, total %s, at worst %s; want %s, %s, %s, %s", c.rps, c.keys, usd, worst, r.TotalUSD, r.TotalUSDWorst, c.usd, c.worst, c.total, c.most)
		}
	}
}

func TestItemsADecision(t *testing.T) {
	for name, c := range map[string]struct {
		text                 string
		gateway, application int
	}{
		"edge only":                     {head + edge, 0, 0},
		"one item, two limits":          {head + strings.Replace(one, "limit: 0.5/s burst 10", "limit: [0.5/s burst 10, quota 100/day]", 1), 0, 1},
		"two callers, one route":        {head + one + "    - {name: tenants, match: POST /reservations, by: tenant, limit: 5/s}\n", 0, 2},
		"two callers, two routes":       {head + one + "    - {name: tenants, match: POST /orders, by: tenant, limit: 5/s}\n", 0, 1},
		"a limit on every route":        {head + one + "    - {name: tenants, by: tenant, limit: 5/s}\n", 0, 2},
		"one that is off":               {head + one + "    - {name: tenants, match: POST /reservations, by: tenant, limit: 5/s, mode: off}\n", 0, 1},
		"a gateway for its own routes":  {gatewayOf("  match: GET /partner/{rest...}\n") + one, 0, 1},
		"a gateway before every route":  {gatewayOf("") + one, 1, 1},
		"anonymous callers have theirs": {head + strings.Replace(one, "}", ", anonymous: 1/s}", 1), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := itemsADecision(load(t, c.text))
			if n.of(policy.Gateway) != c.gateway || n.of(policy.Application) != c.application {
				t.Errorf("%d gateway and %d application items, want %d and %d", n.of(policy.Gateway), n.of(policy.Application), c.gateway, c.application)
			}
		})
	}
}

func gatewayOf(match string) string {
	return `weir: 1
auth: {api_keys: {header: x-api-key, file: keys}}
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
gateway:
` + match + `  plans: {basic: [10/s burst 20]}
`
}

// TestWorstIsWorst: no load makes the expected bill higher than the worst one,
// and the total is the sum of its layers.
func TestWorstIsWorst(t *testing.T) {
	text, err := os.ReadFile("../../../../examples/little-stage/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile("../../../../examples/little-stage/partners.keys")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: text}, "partners.keys": {Data: keys}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rps := range []float64{0, 0.001, 3, 1e4, 1e9} {
		for _, denied := range []float64{0, 0.2, 1} {
			for _, n := range []int64{0, 1e6, 1e12} {
				r := Estimate(p, Traffic{RPS: rps, Keys: n, DeniedShare: denied, IntegratorUSD: 1}, prices(t))
				var sum, worst Dollars
				for _, l := range r.Layers {
					if l.USD > l.USDWorst || math.IsNaN(float64(l.USDWorst)) || math.IsInf(float64(l.USDWorst), 0) {
						t.Errorf("rps %v, denied %v, keys %v: %s costs %v, at worst %v", rps, denied, n, l.Layer, l.USD, l.USDWorst)
					}
					sum, worst = sum+l.USD, worst+l.USDWorst
				}
				if sum != r.TotalUSD || worst != r.TotalUSDWorst {
					t.Errorf("rps %v: total %v and %v, the layers say %v and %v", rps, r.TotalUSD, r.TotalUSDWorst, sum, worst)
				}
			}
		}
	}
}

func TestPricesAreDatedAndHaveSources(t *testing.T) {
	p := prices(t)
	if _, err := time.Parse(time.DateOnly, p.AsOf); err != nil {
		t.Errorf("the date of the prices: %v", err)
	}
	for _, one := range []Price{p.WAFWebACLMonth, p.WAFRuleMonth, p.WAFMillionRequests, p.RESTMillionCalls,
		p.DynamoDBMillionWrites, p.DynamoDBGBMonth, p.ValkeyGBHour, p.ValkeyMillionECPU} {
		if one.USD <= 0 || one.Unit == "" || one.Source == "" {
			t.Errorf("a price is not complete: %+v", one)
		}
	}
	if _, err := In("eu-nowhere-9"); err == nil || !strings.Contains(err.Error(), "us-east-1") {
		t.Errorf("an unknown region: %v; want an error that names the known ones", err)
	}
}

// TestTrafficOfALog: limits of one route meet the same requests, refusals are
// counted, a sample stands for what it says, and too little is refused.
func TestTrafficOfALog(t *testing.T) {
	p := load(t, head+strings.Replace(one, "limit: 0.5/s burst 10", "limit: [0.5/s burst 10, quota 100/day]", 1)+
		"    - {name: orders, match: POST /orders, by: account, limit: 5/s}\n")
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	line := func(i int, limit string, allowed bool, weight float64) *engine.Record {
		return &engine.Record{Time: start.Add(time.Duration(i) * time.Second), Layer: policy.Application, Limit: limit,
			KeyHash: fmt.Sprint(i % 7), Allowed: allowed, Weight: weight}
	}
	var o Observed
	for i := range 3601 { // an hour, first to last
		o.Add(line(i, "reservations", i%5 != 0, 1))
		if i%5 != 0 {
			o.Add(line(i, p.Rules()[1].Name, true, 1)) // the second limit of the same requests
		}
		o.Add(line(i, "orders", true, 1))
		o.Add(&engine.Record{Time: start, Layer: policy.Edge, Limit: "rate-all", Weight: 1e6}) // no item of the store
	}
	got := Traffic{IntegratorUSD: 1}
	if err := o.Traffic(p, &got); err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.RPS-2*3601/3600.) > 1e-9 || math.Abs(got.DeniedShare-721./7202) > 1e-9 || got.Keys != 7 {
		t.Errorf("%+v; want 2 requests a second, a tenth refused, 7 callers", got)
	}

	var short Observed
	short.Add(line(0, "orders", true, 1))
	short.Add(line(5, "orders", true, 1))
	var thin Observed
	for i := range 50 {
		thin.Add(line(i*60, "orders", true, 100))
	}
	for name, o := range map[string]*Observed{"empty": {}, "short": &short, "thin": &thin} {
		if err := o.Traffic(p, &got); err == nil {
			t.Errorf("%s: a month was made of it", name)
		}
	}
}
