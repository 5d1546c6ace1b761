package report

import (
	"fmt"

	"github.com/weirlabs/weir/cmd/weir/internal/cost"
	"github.com/weirlabs/weir/policy"
)

// Costs says at which prices the layers worked.
type Costs struct {
	Prices cost.Prices
	WAF    bool // the edge was AWS WAF; weir's own edge costs nothing
	Rules  int  // in the web ACL; 0: as many as refused something
	REST   bool // the gateway was API Gateway; otherwise it was items of the store
}

// price fills in what the months of a layer cost.
func (c Costs) price(l *Layer, seen int) {
	each := func(m *Month) cost.Dollars {
		return cost.Dollars(m.Requests / 1e6 * c.Prices.DynamoDBMillionWrites.USD)
	}
	l.Formula = fmt.Sprintf("decisions in the log x %.3f a million writes, refused ones too", c.Prices.DynamoDBMillionWrites.USD)
	switch {
	case l.Layer == policy.Edge && !c.WAF:
		each = func(*Month) cost.Dollars { return 0 }
		l.Formula = "counted in the process: nothing"
	case l.Layer == policy.Edge:
		rules := c.Rules
		if rules == 0 {
			rules = seen
		}
		base := c.Prices.WAFWebACLMonth.USD + float64(rules)*c.Prices.WAFRuleMonth.USD
		each = func(m *Month) cost.Dollars {
			return cost.Dollars(base + m.Requests/1e6*c.Prices.WAFMillionRequests.USD)
		}
		l.Formula = fmt.Sprintf("for each month begun %.2f for the web ACL + %d rules x %.2f, and %.2f a million requests in the log; those that a log filter left out cost as much",
			c.Prices.WAFWebACLMonth.USD, rules, c.Prices.WAFRuleMonth.USD, c.Prices.WAFMillionRequests.USD)
	case l.Layer == policy.Gateway && c.REST:
		each = func(m *Month) cost.Dollars { return cost.Dollars(m.Requests / 1e6 * c.Prices.RESTMillionCalls.USD) }
		l.Formula = fmt.Sprintf("%.2f a million calls in the log", c.Prices.RESTMillionCalls.USD)
	}
	for i := range l.Months {
		m := &l.Months[i]
		m.USD = each(m)
		l.Denied += m.Denied
		l.Requests += m.Requests
		l.USD += m.USD
	}
}
