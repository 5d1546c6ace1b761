package policy

import (
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
)

// config is the file as it was read, field by field, before it means anything.
type config struct {
	nameAt             *node
	store, logKeys     string
	revision           int64
	edgeStore          string
	storeAt            *node
	styles             []HeaderStyle
	origins            []string
	auth               authConf
	callers            []callerConf
	proxies            *bart.Lite
	client             clientConf
	exempt, edge       []*ruleConf
	gateway            ruleConf // what holds for all its plans
	gatewayPlans       []planLimits
	plansAt            *node
	from               *node
	order              []*node
	plans              []planConf
	operations, limits []*ruleConf
	accountsAge        time.Duration
	jitter             time.Duration
	mode               string // of all
	perAddress         int64
}

type authConf struct {
	jwt      *JWT
	header   string
	headerAt *node
	keyFile  *node
}

type callerConf struct{ name, source *node }

type planLimits struct {
	name      *node
	limits    []limitAt
	unlimited bool
}

// planConf is one version of a plan.
type planConf struct {
	name       *node
	operations []planLimits
	number     int  // of the version
	versioned  bool // the file says which
	since      int64
	sinceAt    *node
}

// ruleConf holds the fields of everything that limits: exemptions, edge rules,
// the gateway, operations and limits. Each has only some of them.
type ruleConf struct {
	at, name     *node
	matchAt      *node
	match, path  []*node
	by           *node
	limit, anon  []limitAt
	anonAt       *node
	priority     int64
	except       *bart.Lite
	exceptIPs    []netip.Prefix
	cost, when   *node
	mode         string
	onFail       string
	shareAt      *node
	share        int // 0: by the number of replicas
	count        string
	successAt    *node
	success      StatusRange
	styles       []HeaderStyle
	deniedAt     *node
	denied       Denied
	onError      string
	onErrorAt    *node
	letters      string // case: exact
	because      string
	priorityNode *node
	terms        termsConf
}
