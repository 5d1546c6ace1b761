package policy

import "strconv"

// A Code names one kind of mistake or finding. Codes are part of the program's
// interface: a code keeps its meaning for ever, and one that is no longer used is
// not given to anything else. Those below WEIR2000 are errors, the others are
// findings. `weir help CODE` explains each.
type Code uint16

// String is the code as people see it: WEIR1007.
func (c Code) String() string { return "WEIR" + strconv.Itoa(int(c)) }

// MarshalText is [Code.String].
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Mistakes of the file itself.
const (
	codeUnreadable     Code = 1001 // the policy cannot be read
	codeEmptyFile      Code = 1002 // nothing is in it
	codeTooLarge       Code = 1003 // too many bytes, values or levels
	codeEncoding       Code = 1004 // not plain UTF-8
	codeSyntax         Code = 1005 // not YAML
	codeNoValue        Code = 1006 // a field without a value
	codeTwice          Code = 1007 // a field is given twice
	codeYAML           Code = 1008 // a part of YAML that policies do without
	codeSecondDocument Code = 1009
	codeNumber         Code = 1010 // 010, 0x10, 1_000
)

// Mistakes of one field.
const (
	codeUnknownField  Code = 1101
	codeMissingField  Code = 1102
	codeShape         Code = 1103 // a text where a list belongs
	codeEmptyText     Code = 1104
	codeEmptyList     Code = 1105
	codeWord          Code = 1106 // not one of the known words
	codeRange         Code = 1107 // not a whole number within bounds
	codeVersion       Code = 1108
	codeName          Code = 1109 // what cannot be a name
	codeRepeated      Code = 1110 // a word twice in one list
	codeNameTaken     Code = 1111
	codePriorityTaken Code = 1112
	codeInclude       Code = 1114
	codeEnvironment   Code = 1115
	codeStyles        Code = 1113 // none beside another header style
)

// Mistakes of limits, and of what they cost.
const (
	codeLimit       Code = 1201 // not a limit
	codeOneCounter  Code = 1202 // two limits of one list with one counter
	codeNeverHolds  Code = 1203 // one call costs more than the limit can hold
	codeShare       Code = 1204
	codeShareAlone  Code = 1205 // share: without on_store_error: local
	codeCost        Code = 1206
	codeTooMany     Code = 1207 // more limits match one request than can be asked
	codeStatusRange Code = 1208
	codeTerms       Code = 1209 // over:, debt: or notify_at: that no limit of the rule can have
)

// Mistakes of routes.
const (
	codePattern  Code = 1301 // of match:
	codePath     Code = 1302 // of path:
	codeConflict Code = 1303 // operations that match the same requests
)

// Mistakes of callers and their keys.
const (
	codeSource        Code = 1401 // of a caller
	codeCallerName    Code = 1402
	codeUnknownCaller Code = 1403
	codeKeyForm       Code = 1404 // a form of by: that cannot be
	codeUnproven      Code = 1405 // a counter that whoever calls chooses
	codeSameKeys      Code = 1406
	codeEdgeSees      Code = 1407 // a caller that the edge cannot know
	codePathPart      Code = 1408 // path.NAME that a pattern lacks
	codeHeaderName    Code = 1409
	codeNetwork       Code = 1410
	codeClientIP      Code = 1411 // client_ip: that contradicts itself
)

// Mistakes of plans.
const (
	codeUnknownOperation Code = 1501
	codePlanOrder        Code = 1502
	codeUnlisted         Code = 1503 // an operation without a limit under some plan
	codeNoPlan           Code = 1504
	codePlanVersion      Code = 1505 // pro@2 and its date
)

// Mistakes of what proves who calls, and of the store.
const (
	codeSecretName  Code = 1601
	codeKeySources  Code = 1602
	codeFile        Code = 1603 // a file that the policy names
	codePublicKey   Code = 1604
	codeKeySet      Code = 1605 // of jwks_url
	codeKeyHeader   Code = 1606
	codeKeyLine     Code = 1607 // a line of the file of API keys
	codeKeyHash     Code = 1608
	codeKeyTaken    Code = 1609
	codeUnknownPlan Code = 1610 // of an API key
	codeStore       Code = 1611
)

// Mistakes of expressions, and of what callers are told.
const (
	codeExpression    Code = 1701
	codeNoExpressions Code = 1702 // the program cannot compile them
	codeMessage       Code = 1703
	codeLink          Code = 1704
	codeOrigin        Code = 1705
)

// Findings about layers.
const (
	codeOneForAll      Code = 2001 // one limit for everything
	codeBusinessByIP   Code = 2002
	codeMessageAtEdge  Code = 2003
	codeProxyUnknown   Code = 2004 // by address behind a proxy that nobody trusts
	codeReceiver       Code = 2005 // a webhook or health check that a limit can catch
	codeGatewayPromise Code = 2006 // gateway plans promised as hard limits
	codeEdgeTooLow     Code = 2007 // below what legitimate callers may use
	codeWAF            Code = 2008 // what WAF cannot express
	codeGlobalItem     Code = 2009 // a high limit for everybody in one item
)

// Findings about what has no effect.
const (
	codeExemptLimit   Code = 2101 // a limit of which every path is exempt
	codeUnreachedForm Code = 2102 // a form of by: behind one that always holds
	codeNeverActs     Code = 2103 // another limit of the list always refuses first
	codeOverlap       Code = 2104 // another rule always refuses first
	codeAnonymous     Code = 2105
	codeAllExempt     Code = 2106
	codeReversed      Code = 2107 // a higher plan allows less
	codeNoEffect      Code = 2108
	codeShareRefuses  Code = 2109
	codeExceptAll     Code = 2110
	codeNeverMet      Code = 2111 // a condition that holds for no request of its rule
	codeAlwaysFails   Code = 2112 // an expression that fails for every request, or costs more than the limit holds
)

// Findings about callers, networks and the store.
const (
	codeNobody    Code = 2201 // whom auth: cannot verify
	codeNoAccount Code = 2202
	codeWideProxy Code = 2203
	codeHostBits  Code = 2204 // 10.0.0.1/8
	codeItemSize  Code = 2205
	codeBilling   Code = 2206
)
