package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A plan may stand in the file in several versions, free and free@2. What an
// operation may use is then said by editions: one for every version of every
// plan, each with the whole of its limits.

// edition is one version of one plan.
type edition struct {
	number int   // 1 for a plan without versions
	since  int64 // Unix ns from which accounts that are new have it
	at     int   // its place in rule.byPlan
}

// maxVersion bounds the numbers of versions.
const maxVersion = 1_000_000

// planKey reads the name of a plan, NAME or NAME@VERSION. The node that it
// returns is the name alone.
func (l *loader) planKey(n *node) (name *node, number int, versioned, ok bool) {
	if n.shape != scalar {
		return n, 1, false, l.checkName(n, "a plan")
	}
	base, version, versioned := strings.Cut(n.text, "@")
	alone := *n
	alone.text = base
	if !l.checkName(&alone, "a plan") {
		return n, 1, versioned, false
	}
	if !versioned {
		return &alone, 1, false, true
	}
	number, err := strconv.Atoi(version)
	if err != nil || number < 1 || number > maxVersion || version[0] == '0' || version[0] == '+' {
		l.wrong(n, codePlanVersion, "write "+base+"@2 for its second version", "%s is not a version of plan %s", show(n.text), base)
		return n, 1, true, false
	}
	return &alone, number, true, true
}

// since reads the instant from which a version is what new accounts have.
func (l *loader) since(n *node, p *planConf) {
	if !l.is(n, scalar, "since") {
		return
	}
	p.sinceAt = n
	if t, ok := instant(n.text); ok {
		p.since = t.UnixNano()
		return
	}
	l.wrong(n, codePlanVersion, "write a date, 2027-01-01, which begins at 00:00 UTC, or a time, 2027-01-01T00:00:00+01:00", "%s is not an instant", show(n.text))
}

func instant(text string) (time.Time, bool) {
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(form, text); err == nil && t.Year() >= 1970 && t.Year() < 2262 {
			return t, true
		}
	}
	return time.Time{}, false
}

func isInstant(n *node) bool {
	if n.shape != scalar && n.shape != integer {
		return false
	}
	_, ok := instant(n.text)
	return ok
}

// compileEditions files the versions of every plan in their order, and gives
// each its place in rule.byPlan.
func (k *compiler) compileEditions() {
	place := 0
	for _, name := range k.p.plans {
		var of []*planConf
		for i := range k.plans {
			if p := &k.plans[i]; p.name.text == name {
				of = append(of, p)
			}
		}
		slices.SortStableFunc(of, func(a, b *planConf) int { return a.number - b.number })
		k.checkVersions(name, of)
		if len(of) == 0 {
			of = []*planConf{{number: 1}} // of the order only: it has the limits of lower plans
		}
		var editions []edition
		versioned := len(of) > 1
		for _, p := range of {
			versioned = versioned || p.versioned
			editions = append(editions, edition{number: p.number, since: p.since, at: place})
			place++
		}
		k.p.editions = append(k.p.editions, editions)
		k.p.versioned = append(k.p.versioned, versioned)
		k.editions = append(k.editions, of)
	}
}

// checkVersions reports versions that contradict each other.
func (k *compiler) checkVersions(name string, of []*planConf) {
	for i, p := range of {
		switch {
		case i == 0 && k.misspelt(name):
			continue // the first is that one, which is reported
		case i == 0 && p.sinceAt != nil:
			k.wrong(p.sinceAt, codePlanVersion, "remove the line", "%s@%d is the first version of plan %s, and so has been in force since ever", name, p.number, name)
			continue
		case i == 0:
			continue
		}
		last := of[i-1]
		switch {
		case p.number == last.number:
			k.wrong(p.name, codePlanVersion, "keep one of the two", "version %d of plan %s stands twice in the file (%s)", p.number, name, k.placeOf(last.name, p.name))
		case p.since < last.since:
			k.wrong(p.at(), codePlanVersion, "give it a later date, or a lower number", "%s@%d comes after %s@%d, but began before it", name, p.number, name, last.number)
		}
	}
}

// misspelt reports whether a version stands under a name that is none of a plan, and
// must be this one's.
func (k *compiler) misspelt(plan string) bool {
	return slices.ContainsFunc(k.plans, func(p planConf) bool {
		return p.versioned && !slices.Contains(k.p.plans, p.name.text) && nearest(p.name.text, k.p.plans) == plan
	})
}

// at is where a finding on a version's date points to.
func (p *planConf) at() *node {
	if p.sinceAt != nil {
		return p.sinceAt
	}
	return p.name
}

// listed is what a version says of an operation, or nil.
func (p *planConf) listed(operation string) *planLimits {
	for i := range p.operations {
		if p.operations[i].name.text == operation {
			return &p.operations[i]
		}
	}
	return nil
}

// label names a version to people.
func (p *planConf) label(plan string, versioned bool) string {
	if !versioned {
		return "plan " + show(plan)
	}
	return "plan " + show(plan+"@"+strconv.Itoa(p.number))
}

// byEdition finds the limits of an operation under every edition. What a version
// does not list it has from the version before it, and a first version from the
// next lower plan, as long as all versions of that say the same: else somebody's
// limit would change with another plan's version. It answers false, with a
// finding, when an edition has none.
func (k *compiler) byEdition(c *ruleConf) (all []*planLimits, ok bool) {
	name := c.name.text
	anywhere := slices.ContainsFunc(k.plans, func(p planConf) bool { return p.listed(name) != nil })
	if !anywhere {
		k.wrong(c.name, codeUnlisted, "list it in a plan, for example "+name+": quota 100/day, or "+name+": unlimited", "no plan lists the operation %s", show(name))
		return nil, false
	}
	var below []*planLimits // what the next lower plan says, each once
	for i, plan := range k.p.plans {
		var before *planLimits
		var here []*planLimits
		for _, p := range k.editions[i] {
			own := p.listed(name)
			if own == nil {
				own = before
			}
			if own == nil && len(below) > 1 {
				k.wrong(p.nameOr(c.name), codeUnlisted, "list it, for example "+name+": quota 100/day", "%s does not list the operation %s, and the versions of the next lower plan differ in it", p.label(plan, k.p.versioned[i]), show(name))
				return nil, false
			}
			if own == nil && len(below) == 1 {
				own = below[0]
			}
			if own == nil {
				k.wrong(c.name, codeUnlisted, "add it to that plan, for example "+name+": quota 100/day, or "+name+": unlimited", "%s does not list the operation %s, and no lower plan does", p.label(plan, k.p.versioned[i]), show(name))
				return nil, false
			}
			before = own
			all = append(all, own)
			if !slices.Contains(here, own) {
				here = append(here, own)
			}
		}
		below = here
	}
	return all, true
}

func (p *planConf) nameOr(n *node) *node {
	if p.name != nil {
		return p.name
	}
	return n
}

// editionAt is the version of a plan that an account has: the one that it was
// given, else the newest that has begun. A version that is no more in the file
// goes on as the next newer one.
func (p *Policy) editionAt(plan int, pins map[string]int, now int64) *edition {
	of := p.editions[plan]
	if len(of) == 1 {
		return &of[0]
	}
	if pin := pins[p.plans[plan]]; pin > 0 {
		for i := range of {
			if of[i].number >= pin {
				return &of[i]
			}
		}
		return &of[len(of)-1]
	}
	best := 0
	for i := range of {
		if of[i].since <= now {
			best = i
		}
	}
	return &of[best]
}

// VersionsOf are the versions that the file has of a plan, lowest first. It is
// nil for a plan without versions, and for one that the file does not have.
func (p *Policy) VersionsOf(plan string) []int {
	i := slices.Index(p.plans, plan)
	if i < 0 || !p.versioned[i] {
		return nil
	}
	var out []int
	for _, e := range p.editions[i] {
		out = append(out, e.number)
	}
	return out
}

// VersionSince is the instant from which new accounts have a version of a plan.
// It is zero for the first one, which is in force since ever, and for one that the
// file does not have.
func (p *Policy) VersionSince(plan string, version int) time.Time {
	if i := slices.Index(p.plans, plan); i >= 0 {
		for _, e := range p.editions[i] {
			if e.number == version && e.since != 0 {
				return time.Unix(0, e.since)
			}
		}
	}
	return time.Time{}
}

// Plans are the application's plans, lowest first.
func (p *Policy) Plans() []string { return slices.Clone(p.plans) }
