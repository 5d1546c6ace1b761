package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlabs/weir/policy"
)

type differ func(field, old, now, effect string)

// terms compares what is said of a limit beside the limit.
func (c *comparer) terms(differ differ, was, is *policy.Rule) {
	over := Tighter
	if is.Metered {
		over = Looser
	}
	if charges(was) == charges(is) { // the rate beside a quota refuses as before
		over = ""
	}
	differ("over", overOf(was), overOf(is), over)
	differ("debt", debtOf(was), debtOf(is), Other)
	differ("notify_at", percents(was.NotifyAt), percents(is.NotifyAt), "")
	differ("settle", was.Settle, is.Settle, Other)
	differ("once", was.Once, is.Once, Other)
}

func overOf(r *policy.Rule) string {
	if r.Metered {
		return "charge"
	}
	return "deny"
}

func debtOf(r *policy.Rule) string {
	if r.Debt < 0 {
		return "as much as the limit holds"
	}
	return fmt.Sprint(r.Debt)
}

func percents(list []int) string {
	var all []string
	for _, n := range list {
		all = append(all, fmt.Sprintf("%d %%", n))
	}
	return strings.Join(all, ", ")
}

// denied compares what a refusal says.
func (c *comparer) denied(differ differ, was, is *policy.Rule) {
	differ("denied", sample(was, was.Denied.Message), sample(is, is.Denied.Message), "")
	differ("denied.upgrade_url", was.Denied.UpgradeURL, is.Denied.UpgradeURL, "")
	differ("denied.locales", locales(was), locales(is), "")
	differ("denied.body", sample(was, was.Denied.Body), sample(is, is.Denied.Body), "")
	differ("denied.content_type", was.Denied.ContentType, is.Denied.ContentType, "")
	differ("denied.zone", zoneOf(was), zoneOf(is), "")
}

// sample is what a message says of one refusal.
func sample(r *policy.Rule, m *policy.Message) string {
	if m == nil {
		return ""
	}
	return m.Text(&policy.MessageData{
		Limit: r.Limit.String(), Count: r.Limit.Max(), Unit: r.Limit.Period().String(), Name: r.Name,
		Operation: r.Operation, Plan: r.Plan, Wait: "6 seconds", At: "15:00", UpgradeURL: r.Denied.UpgradeURL,
		Seconds: 6, Used: r.Limit.Max(), Code: "CODE", DenialID: "ID", Message: "MESSAGE",
	})
}

func locales(r *policy.Rule) string {
	var all []string
	for _, tag := range slices.Sorted(maps.Keys(r.Denied.Locales)) {
		all = append(all, tag+": "+sample(r, r.Denied.Locales[tag]))
	}
	return strings.Join(all, ", ")
}

func zoneOf(r *policy.Rule) string {
	switch z := r.Denied.Zone; {
	case z.Claim != "":
		return "jwt." + z.Claim
	case z.Header != "":
		return "header." + z.Header
	case z.Fixed != nil:
		return z.Fixed.String()
	}
	return ""
}
