// Package cost says what a policy costs on AWS in a month, and at worst.
//
// Every figure is a product that a reader can check: how much of something there
// is, times its price. What an estimate has to assume it says in its notes, and
// prices stand in one dated file, prices.json, with their sources. Money is in
// US dollars, in floating point, because it is an estimate and no balance; it is
// rounded to cents when it is shown, never before.
//
// The three layers are priced where `weir generate` puts them. The edge is AWS
// WAF: a web ACL, its rules, and every request that they look at, refused or not.
// Gateway and application are items of a DynamoDB table on demand: a decision
// writes each of its items once, a refusal that the limiter remembers writes
// nothing, and one that it does not remember costs a failed conditional write,
// which is charged like any other.
package cost

import (
	"fmt"
	"math"
	"slices"

	"github.com/weirlabs/weir/policy"
)

// HoursAMonth is the month by which AWS prices are compared.
const HoursAMonth = 730

// Traffic is what a policy has to deal with.
type Traffic struct {
	RPS           float64 // requests a second, on average over the month, refused ones included
	Keys          int64   // callers that the store knows at a time
	DeniedShare   float64 // which part of the requests gateway and application limits refuse, 0 to 1
	IntegratorUSD float64 // what one integrator costs a month to look after without a gateway
}

// Report is the estimate for one policy.
type Report struct {
	SchemaVersion int      `json:"schema_version"`
	PricesAsOf    string   `json:"prices_as_of"`
	Region        string   `json:"region"`
	Traffic       Amounts  `json:"traffic"`
	Layers        []Layer  `json:"layers"`
	TotalUSD      Dollars  `json:"total_usd"`
	TotalUSDWorst Dollars  `json:"total_usd_worst"`
	Attack        []Item   `json:"attack"` // what every further million requests costs
	Stores        []Item   `json:"stores"` // the application's counters, elsewhere
	Gateway       Gateway  `json:"gateway"`
	Notes         []string `json:"notes"`
}

// Amounts are the traffic of a month.
type Amounts struct {
	RPS              float64 `json:"rps"`
	Hours            int     `json:"hours"`
	MillionRequests  float64 `json:"million_requests"`
	DeniedShare      float64 `json:"denied_share"`
	Keys             int64   `json:"keys"`
	ItemsADecision   int     `json:"items_a_decision"`
	ItemBytes        int     `json:"item_bytes"`
	WriteUnitsAnItem int     `json:"write_units_an_item"`
}

// Layer is what one layer of the policy costs.
type Layer struct {
	Layer    policy.Layer `json:"layer"`
	USD      Dollars      `json:"usd"`
	USDWorst Dollars      `json:"usd_worst"` // when no refusal is remembered and every call that counts success fails
	Items    []Item       `json:"items"`
}

// Item is one position of the bill with the product that it comes from.
type Item struct {
	Name     string  `json:"name"`
	Formula  string  `json:"formula"`
	USD      Dollars `json:"usd"`
	USDWorst Dollars `json:"usd_worst"`
	Source   string  `json:"source,omitempty"`
}

// Gateway compares usage plans of API Gateway with limits by partner in the
// store.
type Gateway struct {
	USD                  Dollars `json:"usd"`                    // usage plans, for the month's requests
	BreakEvenIntegrators int64   `json:"break_even_integrators"` // from so many on a gateway is cheaper, at these requests
	BreakEvenMillions    float64 `json:"break_even_million_requests"`
	Formula              string  `json:"formula"`
}

// Dollars is an amount of money. It is written with two decimals.
type Dollars float64

// Cents is the amount rounded to whole cents.
func (d Dollars) Cents() int64 { return int64(math.Round(float64(d) * 100)) }

// String is the amount as it stands in tables: 12.73.
func (d Dollars) String() string { return fmt.Sprintf("%.2f", float64(d.Cents())/100) }

// MarshalJSON writes the amount as a number with two decimals.
func (d Dollars) MarshalJSON() ([]byte, error) { return []byte(d.String()), nil }

// fiftyIntegrators is the number for which the requests at break-even are told,
// because of what people ask: five partners, or fifty?
const fiftyIntegrators = 50

// ecpuACall is what a script of one decision is taken to use of a Valkey server
// in processing units: one is a simple command with up to 1 KB.
const ecpuACall = 3

// itemOverhead is what DynamoDB charges for an item beside its attributes, and
// what a Redis key takes beside its fields.
const itemOverhead = 100

// Estimate prices a policy under a load.
func Estimate(p *policy.Policy, t Traffic, prices Prices) Report {
	e := estimate{policy: p, traffic: t, prices: prices}
	e.millions = t.RPS * HoursAMonth * 3600 / 1e6
	e.bytes = max(p.ItemBytes(), 1)
	e.units = (e.bytes + 1023) / 1024
	e.items = itemsADecision(p)
	r := Report{
		SchemaVersion: 1, PricesAsOf: prices.AsOf, Region: prices.Region,
		Traffic: Amounts{
			RPS: t.RPS, Hours: HoursAMonth, MillionRequests: e.millions, DeniedShare: t.DeniedShare, Keys: t.Keys,
			ItemsADecision: e.items.of(policy.Gateway) + e.items.of(policy.Application), ItemBytes: e.bytes, WriteUnitsAnItem: e.units,
		},
		Layers: []Layer{e.edge(), e.stored(policy.Gateway), e.stored(policy.Application)},
		Attack: e.attack(), Stores: e.stores(), Gateway: e.gateway(), Notes: e.notes(),
	}
	for _, l := range r.Layers {
		r.TotalUSD += l.USD
		r.TotalUSDWorst += l.USDWorst
	}
	return r
}

type estimate struct {
	policy   *policy.Policy
	traffic  Traffic
	prices   Prices
	millions float64 // of requests a month
	bytes    int     // of the largest item
	units    int     // write units of that
	items    items
}

// edge is AWS WAF.
func (e *estimate) edge() Layer {
	l := Layer{Layer: policy.Edge, Items: []Item{}}
	n := 0
	for _, r := range e.policy.Rules() {
		if r.Layer == policy.Edge && r.Mode != policy.Off {
			n++
		}
	}
	if n == 0 {
		l.add(Item{Name: "no rules"})
		return l
	}
	acl, rule, request := e.prices.WAFWebACLMonth, e.prices.WAFRuleMonth, e.prices.WAFMillionRequests
	l.add(same("web ACL", fmt.Sprintf("1 x %.2f", acl.USD), acl.USD, acl))
	l.add(same("rules", fmt.Sprintf("%d x %.2f", n, rule.USD), float64(n)*rule.USD, rule))
	l.add(same("requests inspected", fmt.Sprintf("%.3f million x %.2f", e.millions, request.USD), e.millions*request.USD, request))
	return l
}

// stored is a layer whose limits are items of the table. All its requests are
// taken to meet the limits of the route with the most items.
func (e *estimate) stored(layer policy.Layer) Layer {
	l := Layer{Layer: layer, Items: []Item{}}
	n := e.items.of(layer)
	switch {
	case n > 0:
	case slices.ContainsFunc(e.policy.Rules(), func(r *policy.Rule) bool { return r.Layer == layer }):
		l.add(Item{Name: "writes", Formula: "none beside those of the dearest route: its requests meet other limits"})
		return l
	default:
		l.add(Item{Name: "no limits"})
		return l
	}
	price := e.prices.DynamoDBMillionWrites
	allowed := 1 - e.traffic.DeniedShare
	units := float64(n * e.units)
	times := ""
	if n*e.units > 1 {
		times = fmt.Sprintf(" x %d", n*e.units)
	}
	l.add(Item{
		Name:    "writes",
		Formula: fmt.Sprintf("%.3f million x %.3g allowed%s x %.3f", e.millions, allowed, times, price.USD),
		USD:     Dollars(e.millions * allowed * units * price.USD),
		// A refusal that nobody remembers is a failed conditional write, which costs
		// what a write costs. At the broad one of several items, the narrow ones are
		// written twice: taken, and given back.
		USDWorst: Dollars(e.millions * float64(e.units) * price.USD * e.worst(layer, n)),
		Source:   price.Source,
	})
	if layer == policy.Application {
		if e.policy.ReadsRecords() {
			l.add(e.records())
		}
		l.add(e.storage())
	}
	return l
}

// records is what is read of accounts on whose records their limits depend: a process
// reads an account's at most once in accounts.max_age, and only when it calls. How
// many processes there are an estimate cannot know; each call may be the first of
// its process.
func (e *estimate) records() Item {
	price := e.prices.DynamoDBMillionReads
	return Item{
		Name: "account records",
		Formula: fmt.Sprintf("%.3f million reads x %.3f: for each process one of %d callers every %s, at worst one a request",
			e.reads(), price.USD, e.traffic.Keys, e.policy.AccountsAge()),
		USD: Dollars(e.reads() * price.USD), USDWorst: Dollars(e.millions * price.USD), Source: price.Source,
	}
}

// reads is how many millions of records one process reads in a month, of callers who
// all call all the time.
func (e *estimate) reads() float64 {
	return min(e.millions, float64(e.traffic.Keys)*e.ages()/1e6)
}

// ages is how often what is known of an account grows too old in a month.
func (e *estimate) ages() float64 {
	return HoursAMonth * 3600 / e.policy.AccountsAge().Seconds()
}

// worst is how many items one request writes on average, at worst. One that is
// refused at the last of n items wrote n, and gave n-1 back; one that was allowed
// and failed gave all back.
func (e *estimate) worst(layer policy.Layer, n int) float64 {
	allowed := float64(n)
	for _, r := range e.policy.Rules() {
		if r.Layer == layer && r.OnSuccess {
			allowed = float64(2 * n)
			break
		}
	}
	return allowed*(1-e.traffic.DeniedShare) + float64(2*n-1)*e.traffic.DeniedShare
}

func (e *estimate) storage() Item {
	const free = 25 // GB of each account and region
	price := e.prices.DynamoDBGBMonth
	gb := float64(e.traffic.Keys) * float64(e.bytes+itemOverhead) / (1 << 30)
	return same("storage", fmt.Sprintf("(%.3f GB - %d GB free, at least 0) x %.2f", gb, free, price.USD), max(0, gb-free)*price.USD, price)
}

// attack is what every further million requests costs, which is what somebody
// can make the owner pay who sends them.
func (e *estimate) attack() []Item {
	var list []Item
	if waf := e.prices.WAFMillionRequests; slices.ContainsFunc(e.policy.Rules(), func(r *policy.Rule) bool { return r.Layer == policy.Edge }) {
		list = append(list, same("a million requests refused at the edge", fmt.Sprintf("1 million x %.2f", waf.USD), waf.USD, waf))
	}
	n := e.items.of(policy.Gateway) + e.items.of(policy.Application)
	if n == 0 {
		return list
	}
	write := e.prices.DynamoDBMillionWrites
	worst := write.USD * float64(e.units) * max(e.worst(policy.Application, n), float64(2*n-1))
	return append(list, Item{
		Name:    "a million requests that reach the application, from one caller over its limit",
		Formula: "refusals are remembered: about one write a second and process, in the worst case one for each request and item",
		USD:     0, USDWorst: Dollars(worst), Source: write.Source,
	}, e.strangers(n))
}

// strangers is what a million requests cost of callers that no process knows, each
// with n items.
func (e *estimate) strangers(n int) Item {
	write, read := e.prices.DynamoDBMillionWrites, e.prices.DynamoDBMillionReads
	formula, usd := fmt.Sprintf("1 million x %d x %.3f", n*e.units, write.USD), float64(n*e.units)*write.USD
	if e.policy.ReadsRecords() {
		formula, usd = formula+fmt.Sprintf(" + 1 million records x %.3f", read.USD), usd+read.USD
	}
	return same("a million requests that reach the application, each from a caller never seen before", formula, usd, write)
}

// stores is what the counters of gateway and application cost on each store.
func (e *estimate) stores() []Item {
	dynamo := Item{Name: "DynamoDB on demand", Formula: "as above"}
	for _, layer := range []policy.Layer{policy.Gateway, policy.Application} {
		l := e.stored(layer)
		dynamo.USD += l.USD
		dynamo.USDWorst += l.USDWorst
	}
	const least = 0.1 // GB
	gb := max(least, float64(e.traffic.Keys)*float64(e.bytes+itemOverhead)/(1<<30))
	room, unit := e.prices.ValkeyGBHour, e.prices.ValkeyMillionECPU
	calls := e.millions * ecpuACall * float64(max(1, e.items.of(policy.Gateway)+e.items.of(policy.Application)))
	valkey := Item{
		Name: "ElastiCache Serverless for Valkey",
		Formula: fmt.Sprintf("%.3f GB x %d h x %.3f + %.3f million units x %.4f (%d a call and item, refused ones too)",
			gb, HoursAMonth, room.USD, calls, unit.USD, ecpuACall),
		USD:    Dollars(gb*HoursAMonth*room.USD + calls*unit.USD),
		Source: room.Source,
	}
	valkey.USDWorst = valkey.USD
	file := Item{Name: "bolt: or memory:", Formula: "no service; one process only"}
	return []Item{dynamo, valkey, file}
}

// gateway finds from how many integrators on usage plans pay. A call of a REST
// API costs more than the write that it saves; looking after integrators by hand
// costs money as well.
func (e *estimate) gateway() Gateway {
	call, write := e.prices.RESTMillionCalls.USD, e.prices.DynamoDBMillionWrites.USD*float64(e.units)
	each := e.traffic.IntegratorUSD
	return Gateway{
		USD:                  Dollars(e.millions * call),
		BreakEvenIntegrators: int64(math.Ceil(e.millions * (call - write) / each)),
		BreakEvenMillions:    fiftyIntegrators * each / (call - write),
		Formula:              fmt.Sprintf("%.3f million x (%.2f - %.3f) / %.2f an integrator and month", e.millions, call, write, each),
	}
}

func (e *estimate) notes() []string {
	notes := []string{
		"Every request is taken to meet the limits of the route with the most items; exempt and unlimited ones cost nothing in the store.",
		"Refusals are taken to be remembered (memo on): they write nothing. Writes for one hot key are joined, which costs less than shown.",
	}
	if e.policy.EdgeShared() {
		notes = append(notes, "edge_store: shared: edge rules that weir counts itself write one more item for each request; the figures price them as AWS WAF.")
	} else if slices.ContainsFunc(e.policy.Rules(), func(r *policy.Rule) bool { return r.Layer == policy.Edge }) {
		notes = append(notes, "The edge is priced as AWS WAF. weir proxy and the middleware count the same rules in memory, for nothing.")
	}
	if slices.ContainsFunc(e.policy.Rules(), func(r *policy.Rule) bool { return r.OnSuccess }) {
		notes = append(notes, "count: on_success: a call that fails is given back, which is one more write. The worst case has every call fail.")
	}
	if e.items.of(policy.Gateway)+e.items.of(policy.Application) > 0 {
		notes = append(notes, fmt.Sprintf("What is said of single callers (weir accounts, weir keys) is read too: while nothing is, one record for each process every %s, at most %s dollars a month; when something is, one more of each caller that a request names.",
			e.policy.AccountsAge(), Dollars(min(e.millions, e.ages()/1e6)*e.prices.DynamoDBMillionReads.USD)))
	}
	if e.policy.ReadsRecords() {
		notes = append(notes, "The first call of an account also writes which version of a plan it keeps, where plans have versions.")
	}
	notes = append(notes,
		"A gateway (usage plans, REST APIs only) is one more hop, ends a call after 29 s by default, and is best effort.",
		fmt.Sprintf("Redis or Valkey is the better store above about %.1f writes a second on this bill, for keys of more than 1,000 writes a second, and where a decision may take less than a millisecond.", e.redisPays()))
	return notes
}

// redisPays is from how many writes a second on the smallest serverless cache
// costs less than DynamoDB.
func (e *estimate) redisPays() float64 {
	room, unit := e.prices.ValkeyGBHour.USD, e.prices.ValkeyMillionECPU.USD*ecpuACall
	gb := max(0.1, float64(e.traffic.Keys)*float64(e.bytes+itemOverhead)/(1<<30))
	millions := gb * HoursAMonth * room / (e.prices.DynamoDBMillionWrites.USD*float64(e.units) - unit)
	return millions * 1e6 / (HoursAMonth * 3600)
}

func (l *Layer) add(i Item) {
	l.Items = append(l.Items, i)
	l.USD += i.USD
	l.USDWorst += i.USDWorst
}

// same is a position that nothing makes dearer.
func same(name, formula string, usd float64, p Price) Item {
	return Item{Name: name, Formula: formula, USD: Dollars(usd), USDWorst: Dollars(usd), Source: p.Source}
}

// items counts the items that one decision writes, by layer.
type items map[policy.Layer]int

func (i items) of(l policy.Layer) int { return i[l] }

// itemsADecision looks for the route whose limits are spread over the most items:
// the different callers, or sets of them, by whom its limits count.
func itemsADecision(p *policy.Policy) items {
	type kind struct {
		layer policy.Layer
		by    string
	}
	routes := map[string]map[kind]bool{"": {}}
	var everywhere []kind
	for _, r := range p.Rules() {
		if r.Layer == policy.Edge || r.Mode == policy.Off || r.Anonymous {
			continue
		}
		k := kind{r.Layer, r.By}
		if r.Patterns == nil {
			everywhere = append(everywhere, k)
		}
		for _, pattern := range r.Patterns {
			if routes[pattern] == nil {
				routes[pattern] = map[kind]bool{}
			}
			routes[pattern][k] = true
		}
	}
	most := items{}
	for _, kinds := range routes {
		for _, k := range everywhere {
			kinds[k] = true
		}
		n := items{}
		for k := range kinds {
			n[k.layer]++
		}
		switch total, best := n.of(policy.Gateway)+n.of(policy.Application), most.of(policy.Gateway)+most.of(policy.Application); {
		case total > best, total == best && n.of(policy.Application) > most.of(policy.Application):
			most = n
		}
	}
	return most
}
