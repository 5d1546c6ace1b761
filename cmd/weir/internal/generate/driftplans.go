package generate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// livePlan is a usage plan with what weir does not generate.
type livePlan struct {
	UsagePlan
	stages  int
	offset  int64    // of the quota: how much the first period has less
	methods []string // throttles of single methods
}

// readPlans reads pages of get-usage-plans and single plans; all is false when
// there are single ones only.
func readPlans(exports [][]byte) (have []livePlan, all bool, err error) {
	for _, export := range exports {
		var single map[string]any
		if err := json.Unmarshal(export, &single); err == nil && single["name"] != nil {
			have = append(have, readPlan(single))
			continue
		}
		page, err := exported(export, "items")
		if err != nil {
			return nil, false, fmt.Errorf("usage plans: %w", err)
		}
		all = true
		for _, one := range items(page) {
			have = append(have, readPlan(one))
		}
	}
	return have, all, nil
}

func readPlan(v any) livePlan {
	p := livePlan{UsagePlan: usagePlan(v), offset: integer(field(v, "Quota", "Offset"))}
	for _, stage := range items(field(v, "ApiStages")) {
		p.stages++
		throttles, _ := field(stage, "Throttle").(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(throttles)) {
			one := usagePlan(map[string]any{"Throttle": throttles[method]})
			p.methods = append(p.methods, fmt.Sprintf("%s: %v", method, list(one.limits())))
		}
	}
	return p
}

// comparePlans compares plans by their names. Unless all that are live are in
// have, those of the policy that are missing there are not compared.
func comparePlans(want []UsagePlan, have []livePlan, all bool) (found []Disagreement) {
	add := func(plan, what, policy, live, stricter string) {
		found = append(found, Disagreement{"gateway", plan, what, policy, live, stricter})
	}
	for _, w := range want {
		n := 0
		for _, h := range have {
			if h.Name == w.Name {
				n++
				comparePlan(w, h, add)
			}
		}
		switch {
		case n == 0 && all:
			add(w.Name, "plan", list(w.limits()), "no usage plan of this name", "policy")
		case n > 1:
			add(w.Name, "plan", "one plan", fmt.Sprintf("%d usage plans of this name", n), "")
		}
	}
	for _, h := range have {
		if !slices.ContainsFunc(want, func(w UsagePlan) bool { return h.Name == w.Name }) {
			add(h.Name, "plan", "no plan of this name", list(h.limits()), "live")
		}
	}
	return found
}

func comparePlan(w UsagePlan, h livePlan, add func(plan, what, policy, live, stricter string)) {
	if w.Rate != h.Rate {
		add(w.Name, "rate", per(w.Rate), per(h.Rate), lower(number(w.Rate), number(h.Rate)))
	}
	if w.Burst != h.Burst {
		add(w.Name, "burst", fmt.Sprint(w.Burst), fmt.Sprint(h.Burst), lower(count(w.Burst), count(h.Burst)))
	}
	if w.Quota != h.Quota || w.Period != h.Period {
		add(w.Name, "quota", quotaOf(w), quotaOf(h.UsagePlan), lower(perDay(w), perDay(h.UsagePlan)))
	}
	if h.stages == 0 {
		add(w.Name, "stages", "a stage of the API", "none, so that the plan limits nothing", "policy")
	}
	if h.offset != 0 {
		add(w.Name, "quota", "of which nothing is used at first", fmt.Sprintf("%d of the first period are used at first", h.offset), "live")
	}
	for _, m := range h.methods {
		add(w.Name, "rate", "one rate for all methods", m, "")
	}
}

func per(rate string) string {
	if rate == "" {
		return "none"
	}
	return rate + "/s"
}

func quotaOf(u UsagePlan) string {
	if u.Quota == 0 {
		return "none"
	}
	return u.quota()
}

// number reads a rate; nil is none.
func number(rate string) *big.Rat {
	r, ok := new(big.Rat).SetString(rate)
	if !ok {
		return nil
	}
	return r
}

func count(n int64) *big.Rat {
	if n == 0 {
		return nil
	}
	return new(big.Rat).SetInt64(n)
}

func perDay(u UsagePlan) *big.Rat {
	for _, c := range calendarOf {
		if u.Period == c.name && u.Quota > 0 {
			return big.NewRat(u.Quota, c.days)
		}
	}
	return nil
}

// lower says which of two bounds is the stricter; nil is no bound.
func lower(policy, live *big.Rat) string {
	switch {
	case policy == nil && live == nil:
		return ""
	case live == nil, policy != nil && policy.Cmp(live) < 0:
		return "policy"
	case policy == nil, policy.Cmp(live) > 0:
		return "live"
	}
	return ""
}
