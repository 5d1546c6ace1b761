package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir/policy"
)

// Kind is what an episode looks like.
type Kind string

// The kinds of episodes.
const (
	CredentialStuffing Kind = "credential stuffing" // many tries to sign in
	Scraper            Kind = "scraper"             // many different pages, fast
	RetryLoop          Kind = "retry loop"          // a program that does not wait as long as it was told
	MonitoringBot      Kind = "monitoring bot"      // one page, at a fixed pace
	PlanLimit          Kind = "plan limit"          // a customer who has used what the plan allows
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

// agent holds what a client's own word for itself, and the path, hint at. Both
// can be forged: they only help to guess.
type agent uint8

const (
	agentWatches agent = 1 << iota
	agentCollects
	pathSignsIn
)

func agentOf(s string) agent {
	s = strings.ToLower(s)
	switch {
	case s == "":
		return 0
	case containsAny(s, "monitor", "uptime", "pingdom", "statuscake", "healthcheck", "health-check", "synthetic", "probe", "nagios", "zabbix", "datadog", "site24x7", "blackbox"):
		return agentWatches
	case containsAny(s, "scrapy", "spider", "crawl", "scrape", "headless", "python-requests", "httrack", "wget"):
		return agentCollects
	}
	return 0
}

func pathHints(path string) agent {
	if signsIn(path) {
		return pathSignsIn
	}
	return 0
}

// signsIn reports whether a name or a path is about signing in.
func signsIn(s string) bool {
	return containsAny(strings.ToLower(s), "auth", "login", "signin", "sign-in", "sign_in", "password", "credential", "oauth", "token", "otp", "mfa", "session")
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// From how many refusals on a run says something.
const (
	fewTries  = 10 // to sign in
	fewPages  = 10 // different ones
	fewAgain  = 20 // calls that came again
	fewTicks  = 10 // at a fixed pace
	longPause = time.Minute
)

// guess looks at the shape of a run of refusals, and says what it saw.
func guess(layer policy.Layer, limit string, plan bool, run []hit) (Kind, string) {
	s := shapeOf(run)
	if layer == policy.Edge {
		return s.abuse(limit)
	}
	// Who comes back at once, again and again, is a program. Who was told to wait
	// for an hour and tries a few times is a person.
	if s.n >= fewAgain && s.median < longPause && (s.retry == 0 || s.median < s.retry) {
		reason := fmt.Sprintf("%d refusals, one every %s", s.n, short(s.median))
		if s.retry > 0 {
			reason += fmt.Sprintf(" although told to wait %s", short(s.retry))
		}
		return RetryLoop, reason
	}
	what := "a business limit"
	if plan {
		what = "the plan's limit"
	}
	return PlanLimit, fmt.Sprintf("%s at %s", times(s.n), what)
}

// abuse guesses what an address did at the edge.
func (s *shape) abuse(limit string) (Kind, string) {
	signing := s.signIn*2 > s.n || s.paths == 0 && signsIn(limit)
	switch {
	case signing && s.n >= fewTries && s.reads*2 <= s.n:
		return CredentialStuffing, fmt.Sprintf("%d refused tries to sign in within %s", s.n, short(s.length))
	case s.paths >= fewPages && s.watches*2 <= s.n:
		return Scraper, fmt.Sprintf("%d refused requests for %d different paths within %s", s.n, s.paths, short(s.length))
	case s.n >= fewTicks && (s.watches*2 > s.n || s.paths <= 2 && s.steady && s.collects*2 <= s.n && (s.paths > 0 || s.slow())):
		what := "one path"
		if s.paths == 0 {
			what = "this limit"
		}
		if s.watches*2 > s.n {
			return MonitoringBot, fmt.Sprintf("%d refused requests for %s; the client calls itself a monitor", s.n, what)
		}
		return MonitoringBot, fmt.Sprintf("%d refused requests for %s, one every %s", s.n, what, short(s.median))
	case s.n >= fewAgain:
		return Scraper, fmt.Sprintf("%d refused requests within %s", s.n, short(s.length))
	}
	return Unclear, fmt.Sprintf("%s within %s", times(s.n), short(s.length))
}

// shape is what a run looks like from afar.
type shape struct {
	n                 int
	length, median    time.Duration
	retry             time.Duration // what clients were told to wait, the median
	steady            bool          // most gaps are about the median
	paths             int           // different ones; 0 when unknown
	signIn, reads     int
	watches, collects int
}

func shapeOf(run []hit) shape {
	s := shape{n: len(run), length: time.Duration(run[len(run)-1].at - run[0].at)}
	seen := map[uint64]bool{}
	gaps := make([]int64, 0, len(run))
	waits := make([]int64, 0, len(run))
	for i, h := range run {
		if h.path != 0 && len(seen) < 1000 {
			seen[h.path] = true
		}
		if i > 0 {
			gaps = append(gaps, h.at-run[i-1].at)
		}
		waits = append(waits, int64(h.retry))
		count(&s.signIn, h.agent&pathSignsIn != 0)
		count(&s.watches, h.agent&agentWatches != 0)
		count(&s.collects, h.agent&agentCollects != 0)
		count(&s.reads, h.method == methodReads)
	}
	s.paths = len(seen)
	s.retry = time.Duration(middle(waits)) * time.Second
	s.median = time.Duration(middle(gaps))
	near := 0
	for _, g := range gaps {
		count(&near, math.Abs(float64(g-int64(s.median))) <= 0.25*float64(s.median))
	}
	s.steady = s.median > 0 && near*5 >= len(gaps)*4
	return s
}

// slow reports a pace that a log without paths shows to be no collecting: a bot
// that watches asks once a second or less, or for hours.
func (s *shape) slow() bool { return s.median >= time.Second || s.length >= 2*time.Hour }

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
