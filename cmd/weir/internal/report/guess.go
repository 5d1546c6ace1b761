package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirlabs/weir/policy"
)

// Kind is what an episode looks like.
type Kind string

// The kinds of episodes.
const (
	CredentialStuffing Kind = "credential stuffing" // many tries to sign in
	Scraper            Kind = "scraper"             // many different pages, fast
	RetryLoop          Kind = "retry loop"          // a program that comes back sooner than it was told
	MonitoringBot      Kind = "monitoring bot"      // a page or a few, over and over
	PlanLimit          Kind = "plan limit"          // a customer who has used what a business limit allows
	StoreOutage        Kind = "store outage"        // a fail-closed limit whose store did not answer
	Unclear            Kind = "unclear"             // too little to tell
)

type method uint8

const (
	methodUnknown method = iota
	methodReads          // GET, HEAD, OPTIONS
	methodWrites         // the others
)

func methodOf(m string) method {
	switch strings.ToUpper(m) {
	case "":
		return methodUnknown
	case "GET", "HEAD", "OPTIONS":
		return methodReads
	}
	return methodWrites
}

// hint is what a client's own word for itself, and the path, say. Both can be
// forged: they only help to guess.
type hint uint8

const (
	hintWatches hint = 1 << iota // the client calls itself a monitor
	hintSignsIn                  // the path is about signing in
)

func hintsOf(agent, path string) (h hint) {
	if containsAny(strings.ToLower(agent), "monitor", "uptime", "pingdom", "statuscake", "healthcheck", "health-check", "synthetic", "probe", "nagios", "zabbix", "datadog", "site24x7", "blackbox") {
		h |= hintWatches
	}
	if signsIn(path) {
		h |= hintSignsIn
	}
	return h
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// signsIn reports whether one of the words of a name or a path is about signing
// in: /api/auth/login is, /authors is not.
func signsIn(s string) bool {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) })
	return slices.ContainsFunc(words, func(w string) bool {
		switch w {
		case "auth", "authenticate", "authentication", "login", "logon", "signin", "password", "passwords", "passwd", "credential", "credentials", "oauth", "token", "otp", "mfa", "session", "sessions":
			return true
		}
		return false
	})
}

// From how many refusals on a run says something.
const (
	fewTries  = 10 // to sign in
	fewPages  = 10 // different ones
	manyPages = 20 // more than there are to sign in
	fewTicks  = 10 // for one page
	fewAgain  = 20 // calls that came again
	mashing   = 60 // that a person makes who does not believe it
)

// In a log without paths only the pace is left. Between these two it may be a scraper
// as well as a monitor.
const (
	fastest = 200 * time.Millisecond // at which something watches
	slowest = 5 * time.Second        // at which something collects
)

// maxPages is how many different pages of a run are told apart.
const maxPages = 1000

// guess looks at the shape of a run of refusals, and says what it saw.
func guess(g *group, plan bool, run []hit) (Kind, string) {
	s := shapeOf(run)
	switch {
	case g.outage:
		return StoreOutage, fmt.Sprintf("%s because the store could not be asked", times(s.n))
	case g.client == "":
		return Unclear, fmt.Sprintf("%s; the log does not tell clients apart", times(s.n))
	case g.layer == policy.Edge:
		return s.abuse(g.limit)
	}
	// A program comes back again and again, sooner than it was told. A person
	// who was told to wait for an hour tries a few times.
	many := fewAgain
	if g.layer == policy.Application && plan {
		many = mashing
	}
	if s.n >= many && (s.retry == 0 || 2*s.median < s.retry) {
		reason := fmt.Sprintf("%d refusals, one every %s", s.n, short(s.median))
		if s.retry > 0 {
			reason += fmt.Sprintf(" although told to wait %s", short(s.retry))
		}
		return RetryLoop, reason
	}
	switch {
	case plan:
		return PlanLimit, fmt.Sprintf("%s at the plan's limit", times(s.n))
	case g.layer == policy.Gateway:
		return Unclear, fmt.Sprintf("%s of a client without a plan", times(s.n))
	}
	return PlanLimit, fmt.Sprintf("%s at a business limit", times(s.n))
}

// abuse guesses what an address did at the edge.
func (s *shape) abuse(limit string) (Kind, string) {
	watches := s.watches*2 > s.n
	signing := s.signIn*2 > s.n && s.tries >= fewTries && s.paths <= manyPages || s.paths == 0 && s.n >= fewTries && signsIn(limit)
	switch {
	case signing && !watches:
		return CredentialStuffing, fmt.Sprintf("%s to sign in within %s", s.counted("refused try", "refused tries"), short(s.length))
	case watches && s.n >= fewTicks:
		return MonitoringBot, fmt.Sprintf("%d refused requests; the client calls itself a monitor", s.n)
	case s.paths >= fewPages:
		pages := fmt.Sprint(s.paths)
		if s.paths >= maxPages {
			pages += " or more"
		}
		return Scraper, fmt.Sprintf("%d refused requests for %s different pages within %s", s.n, pages, short(s.length))
	case s.paths > 0 && s.n >= fewAgain && s.reads*2 <= s.n:
		return RetryLoop, fmt.Sprintf("%d refused requests that change something, one every %s", s.n, short(s.median))
	case s.paths > 0 && s.n >= fewTicks, s.paths == 0 && s.n >= fewTicks && s.median >= slowest:
		return MonitoringBot, fmt.Sprintf("%d refused requests for %s, one every %s", s.n, s.pages(), short(s.median))
	case s.n >= fewAgain && s.median < fastest:
		return Scraper, fmt.Sprintf("%d refused requests, one every %s; the log shows no paths", s.n, short(s.median))
	case s.n >= fewAgain:
		return Unclear, fmt.Sprintf("%d refused requests, one every %s; the log shows no paths", s.n, short(s.median))
	}
	return Unclear, fmt.Sprintf("%s within %s", times(s.n), short(s.length))
}

// shape is what a run looks like from afar.
type shape struct {
	n              int
	length, median time.Duration
	retry          time.Duration // what clients were told to wait, the median
	paths          int           // different ones, up to maxPages; 0 when unknown
	signIn, reads  int
	tries          int // to sign in, with a method that can
	watches        int
}

func shapeOf(run []hit) shape {
	s := shape{n: len(run), length: time.Duration(run[len(run)-1].at - run[0].at)}
	seen := map[uint64]bool{}
	gaps := make([]int64, 0, len(run))
	waits := make([]int64, 0, len(run))
	for i, h := range run {
		if h.path != 0 && len(seen) < maxPages {
			seen[h.path] = true
		}
		if i > 0 {
			gaps = append(gaps, h.at-run[i-1].at)
		}
		waits = append(waits, int64(h.retry))
		count(&s.signIn, h.hints&hintSignsIn != 0)
		count(&s.tries, h.hints&hintSignsIn != 0 && h.method != methodReads)
		count(&s.watches, h.hints&hintWatches != 0)
		count(&s.reads, h.method == methodReads)
	}
	s.paths = len(seen)
	s.retry = time.Duration(middle(waits)) * time.Second
	s.median = time.Duration(middle(gaps))
	return s
}

func (s *shape) pages() string {
	switch s.paths {
	case 0:
		return "this limit"
	case 1:
		return "one page"
	}
	return fmt.Sprintf("%d pages", s.paths)
}

func (s *shape) counted(one, many string) string {
	if s.n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", s.n, many)
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
}

// middle is the median, 0 of nothing.
func middle(v []int64) int64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func times(n int) string {
	if n == 1 {
		return "1 refusal"
	}
	return fmt.Sprintf("%d refusals", n)
}

// short is a duration as people say it.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}
