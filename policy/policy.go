package policy

import (
	"github.com/gaissmai/bart"

	"cmp"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlabs/weir"
)

// Options are what the file does not say of itself.
type Options struct {
	// File is how messages name the policy file; the name given to Load when
	// empty.
	File string

	// Environment names the part of `environments:` that is laid over the file; none
	// when empty.
	Environment string

	// TrustedProxies are trusted beside those that the file names: see
	// trusted_proxies. Whoever calls from there can claim any address.
	TrustedProxies []netip.Prefix

	// CheckStore, when set, says whether a store can be what `store:` names, for
	// it is not known here which stores there are. It is asked once, with the URL
	// and all limits that the store has to keep, and must not open anything. Its
	// error, in one line and without credentials, becomes a mistake at `store:`.
	CheckStore func(url string, limits []weir.Limit) error

	// Expressions compiles the expressions of the file, as those of `when:` and
	// `cost:`. Hand in Compile of package expression where a policy has some; an
	// expression is a mistake without it. It is not built in because it adds some
	// 5 MiB to a function with the AWS SDK, which every cold start would load.
	Expressions Compiler

	// OnlyAuth says that callers are known by `auth:` only, as to `weir proxy`. A
	// caller whom it cannot verify is then a finding also in a policy without
	// `auth:`, which other edges that know their callers do without.
	OnlyAuth bool
}

// Policy is a checked and compiled policy. It never changes, and is safe for
// concurrent use.
type Policy struct {
	name, store, logKeys string
	revision             uint32
	environment          string
	environments         []string
	files                []string // beside the policy itself
	edgeShared           bool
	origins              []string
	auth                 Auth
	warnings             []Problem
	exemptions           []Exemption
	rules                []*Rule
	limits               []weir.Limit
	keep                 map[string]time.Duration // by the kinds of an item's key
	longest              time.Duration            // of all limits
	itemBytes            int                      // of the largest item, about

	addresses addressing
	callers   []caller
	account   int // index of the caller `account`; -1 without one

	trie    trie
	targets []target
	always  []int32 // targets that every path matches
	sole    *Op     // all that any request asks; see [Policy.Sole]

	gateway      map[string]*rule // by plan
	gatewayKind  string           // kind of an API key's owner in keys
	gatewayMatch bool             // gateway.match: names the routes
	plans        []string         // lowest first
	editions     [][]edition      // by plan, the lowest version first
	versioned    []bool           // by plan: the file says which versions there are
	plansFrom    caller
	needsRecords bool
	allNeeds     uint64 // rule.needs of all operations and limits
	accountsAge  time.Duration
	jitter       time.Duration
	onceLimit    weir.Limit // that remembers ids; zero where no rule asks for one
}

// target is what a pattern belongs to.
type target struct {
	kind targetKind
	name string // of an exemption
	*rule
}

type targetKind uint8

const (
	exemption targetKind = iota
	edgeRule
	gatewayRoute
	operation
	limit
)

// rule is one compiled entry of the policy that limits.
type rule struct {
	by      sharing
	full    []*Rule
	anon    []*Rule   // of callers known by address; nil: full
	byPlan  [][]*Rule // of an operation: by the edition of the caller's plan
	bare    []*Rule   // likewise, what stands for an operation without a limit
	cost    cost
	when    Expression
	shadow  bool
	onError string // "" and "apply", "skip" or "deny"
	onFail  weir.FailureMode
	except  *bart.Lite
	exact   bool
	needs   uint64 // callers whose records it depends on

	once     onceSource
	onceName string // of the operation or the limit
}

// Load reads, checks and compiles the policy in a file of fsys, which also
// serves the files that the policy names. The error is [Problems], with every
// mistake that was found.
func Load(fsys fs.FS, name string, o Options) (*Policy, error) {
	if o.File == "" {
		o.File = name
	}
	l := &loader{document: document{page: &page{file: o.File}}, fsys: fsys, name: name, proxies: o.TrustedProxies, checkStore: o.CheckStore, expressions: o.Expressions, onlyAuth: o.OnlyAuth, environment: o.Environment}
	text, err := readAll(fsys, name)
	if err != nil {
		l.report(Error, codeUnreadable, 0, 0, 0, beginning, "the policy cannot be read: %v", err)
		return nil, l.problems
	}
	return l.load(text)
}

// beginning is what helps those who have no policy yet.
const beginning = "begin with `weir init`, or with what `weir proxy --to http://localhost:3000 --limit 10/s` prints"

func readAll(fsys fs.FS, name string) ([]byte, error) {
	return readAtMost(fsys, name, maxFile+1)
}

// readAtMost reads the beginning of a file. The error says why without the name,
// which stands where the file is named.
func readAtMost(fsys fs.FS, name string, most int64) (text []byte, err error) {
	f, err := fsys.Open(name)
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, most))
	}
	var pe *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fs.ErrNotExist // as every system says it
	case errors.As(err, &pe):
		return nil, pe.Err
	}
	return text, err
}

func (l *loader) load(text []byte) (*Policy, error) {
	root := l.parse(text)
	if root == nil {
		return nil, l.sorted()
	}
	if root.shape == object {
		root = l.inForce(l.include(root))
	}
	p := l.compile(l.read(root))
	p.environment, p.environments, p.files = l.environment, l.envNames, l.files
	l.withOthers()
	problems := l.sorted()
	if l.failed() {
		return nil, problems
	}
	p.warnings = problems
	return p, nil
}

// sorted is what was found, in the order of the file; what was found in another
// file follows.
func (l *loader) sorted() Problems {
	place := map[string]int{l.file: -1}
	for _, p := range l.problems {
		if _, ok := place[p.File]; !ok {
			place[p.File] = len(place)
		}
	}
	slices.SortStableFunc(l.problems, func(a, b Problem) int {
		return cmp.Or(place[a.File]-place[b.File], a.Line-b.Line, a.Col-b.Col)
	})
	return l.problems
}

// Name is the policy's name, or "".
func (p *Policy) Name() string { return p.name }

// Environment is the one that is laid over the file, or "".
func (p *Policy) Environment() string { return p.environment }

// Environments are those that the file knows.
func (p *Policy) Environments() []string { return slices.Clone(p.environments) }

// Files are the files that the policy was made of, beside its own: those that it
// includes, of API keys, and of public keys, as it names them.
func (p *Policy) Files() []string { return slices.Clone(p.files) }

// Revision is raised by its author when limits change.
func (p *Policy) Revision() uint64 { return uint64(p.revision) }

// Store is the URL of the default store, or "".
func (p *Policy) Store() string { return p.store }

// EdgeShared reports whether edge rules are counted in the store, instead of in
// this process: edge_store: shared.
func (p *Policy) EdgeShared() bool { return p.edgeShared }

// RetryAfterJitter is by how much at most a wait that callers are told is to be made
// longer at random; 0 for not at all.
func (p *Policy) RetryAfterJitter() time.Duration { return p.jitter }

// LogKeys says how key material appears in logs: hash, plain or none.
func (p *Policy) LogKeys() string { return p.logKeys }

// CORS lists the origins whose pages may read a refusal, in lower case.
func (p *Policy) CORS() []string { return slices.Clone(p.origins) }

// PlansClaim is the claim of a token that names a caller's plans, by plans: from;
// "" when something else does. An edge whose tokens reach it as texts needs to
// know which claim may be a list.
func (p *Policy) PlansClaim() string {
	if p.plansFrom.from != fromClaim {
		return ""
	}
	return p.plansFrom.claim
}

// Auth says how callers prove who they are.
func (p *Policy) Auth() Auth { return p.auth }

// CallerSources are the entries of `callers:`, and where each is taken from.
func (p *Policy) CallerSources() []CallerSource {
	var out []CallerSource
	for _, c := range p.callers {
		out = append(out, CallerSource{c.name, c.text()})
	}
	return out
}

// Limits are all limits that may share an item in the store.
func (p *Policy) Limits() []weir.Limit { return slices.Clone(p.limits) }

// ItemBytes is about how many bytes the largest item of a caller takes in a
// store: its key with an id of usual length, and the fields of all its limits. It
// is 0 when no limit is counted in the store.
func (p *Policy) ItemBytes() int { return p.itemBytes }

// Rules are all limits of the policy, from the outside in.
func (p *Policy) Rules() []*Rule { return slices.Clone(p.rules) }

// Exemptions are what is never limited.
func (p *Policy) Exemptions() []Exemption { return slices.Clone(p.exemptions) }

// Warnings are findings that do not keep the policy from loading.
func (p *Policy) Warnings() []Problem { return slices.Clone(p.warnings) }
