package cases

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

const shop = `
weir: 1
auth: {api_keys: {header: x-api-key, file: keys}}
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
exempt:
  - {name: hooks, path: /hooks/*}
gateway:
  match: GET /partner
  plans: {basic: quota 2/hour, gold: quota 3/hour}
application:
  plans:
    from: jwt.tier
    order: [free, pro]
    free: {orders: quota 2/hour}
    pro: {orders: quota 4/hour}
  operations:
    orders: {match: POST /orders, count: on_success}
  limits:
    - {name: seats, match: POST /seats, by: [account, ip], limit: 0.5/s burst 3, when: 'header("X-Test") != "skip"'}
    - {name: month, match: POST /month, by: ip, limit: quota 1/month calendar}
`

func load(t *testing.T) *policy.Policy {
	t.Helper()
	sum := strings.Repeat("ab", 32)
	p, err := policy.Load(fstest.MapFS{
		"weir.yaml": {Data: []byte(shop)},
		"keys":      {Data: []byte("acme basic " + sum + "\nbolt gold " + strings.Repeat("cd", 32) + "\nbolt basic " + strings.Repeat("ef", 32) + "\nfree - " + strings.Repeat("12", 32) + "\n")},
	}, "weir.yaml", policy.Options{Expressions: expression.Compile})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func runText(t *testing.T, text string) []Result {
	t.Helper()
	f, err := Parse("cases.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), load(t), f)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// The form of a case in full, and one stretch of time for a whole file.
func TestCasesShareTimeAndCounters(t *testing.T) {
	for _, r := range runText(t, `
start: 2026-01-31T23:59:00Z
cases:
  - {name: later first, at: 4s, request: {method: post, path: /seats?x=1, token: {sub: ann}}, times: 3, expect: {allowed: 2, denied: 1, remaining: 0}}
  - name: at once
    at: 0s
    request: {method: POST, path: /seats, token: {sub: ann}}
    times: 5
    expect:
      allowed: 3
      denied: 2
      first_denial: {status: 429, retry_after: 2, limit: seats, headers: {retry-after: "2", cache-control: no-store}, body: {error: rate_limited, retryAfterSeconds: 2}}
  - {name: at the time of the case before, request: {method: POST, path: /seats, token: {sub: ann}}, expect: {denied: 1}}
  - {name: spread out, at: 1h, every: 2s, request: {method: POST, path: /seats, token: {sub: ann}}, times: 50, expect: {allowed: 50}}
  - {name: a condition, at: 1h, request: {method: POST, path: /seats, token: {sub: ann}, headers: {x-test: skip}}, times: 9, expect: {allowed: 9}}
  - {name: a token without sub, at: 1h, request: {method: POST, path: /seats, token: {sub: ""}}, times: 4, expect: {allowed: 3}}
  - {name: is the address, at: 1h, request: {method: POST, path: /seats, from: 192.0.2.1}, expect: {denied: 1}}
  - {name: an IPv6 network, at: 1h, request: {method: POST, path: /seats, from: "2001:db8::1"}, times: 4, expect: {allowed: 3}}
  - {name: the same network, at: 1h, request: {method: POST, path: /seats, from: "2001:db8::2"}, expect: {denied: 1}}
  - {name: the plan, at: 0, request: {method: POST, path: /orders, token: {sub: ben, plan: pro}}, times: 5, expect: {allowed: 4, remaining: 0}}
  - {name: the claim itself wins, at: 0, request: {method: POST, path: /orders, token: {sub: cho, plan: pro, tier: [free]}}, times: 5, expect: {allowed: 2}}
  - {name: failures are free, at: 0, service: 404, request: {method: POST, path: /orders, token: {sub: dee}}, times: 50, expect: {allowed: 50}}
  - {name: success is not, at: 0, service: 201, request: {method: POST, path: /orders, token: {sub: dee}}, times: 3, expect: {allowed: 2}}
  - {name: a key by its owner, at: 0, request: {path: /partner, api_key: acme}, times: 5, expect: {allowed: 2, first_denial: {limit: basic}}}
  - {name: a key and a plan, at: 0, request: {path: /partner, api_key: {owner: bolt, plan: gold}}, times: 5, expect: {allowed: 3, first_denial: {limit: gold}}}
  - {name: a key without a plan, at: 0, request: {path: /partner, api_key: free}, times: 5, expect: {allowed: 5}}
  - {name: no key, at: 0, request: {path: /partner}, expect: {denied: 1, first_denial: {status: 401, body: {error: unauthorized}}}}
  - {name: an unknown key, at: 0, request: {path: /partner, api_key: invalid}, expect: {denied: 1, first_denial: {status: 401}}}
  - {name: a bad token, at: 0, request: {method: POST, path: /seats, token: invalid}, expect: {denied: 1, first_denial: {status: 401}}}
  - {name: a bad token where nothing applies, at: 0, request: {token: invalid}, expect: {allowed: 1}}
  - {name: an exemption, at: 0, request: {path: /hooks/x, token: invalid}, times: 1000, expect: {allowed: 1000, denied: 0}}
  - {name: a path that nobody can read, at: 0, request: {path: "/%zz"}, expect: {denied: 1, first_denial: {status: 400}}}
  - {name: January, at: 0s, request: {method: POST, path: /month}, times: 2, expect: {allowed: 1, first_denial: {retry_after: 60}}}
  - {name: February, at: 1m, request: {method: POST, path: /month}, times: 2, expect: {allowed: 1, denied: 1}}
  - {name: the last of February, at: 28d1m, request: {method: POST, path: /month}, expect: {allowed: 1}}
`) {
		if !r.OK() {
			t.Errorf("%s (line %d): %v\n%s", r.Name, r.Line, r.Differs, strings.Join(r.Timeline(), "\n"))
		}
	}
}

// What is not as expected is said, one line each, and nothing passes by mistake.
func TestEveryExpectationCanFail(t *testing.T) {
	for expect, want := range map[string]string{
		"{allowed: 2}":                                      "3 allowed, want 2",
		"{denied: 1}":                                       "2 denied, want 1",
		"{remaining: 1}":                                    "0 remain, want 1",
		"{first_denial: {status: 503}}":                     "first denial: status 429, want 503",
		"{first_denial: {retry_after: 3}}":                  `first denial: Retry-After "2", want 3`,
		"{first_denial: {retry_after: 0}}":                  `first denial: Retry-After "2", want 0`,
		"{first_denial: {limit: orders}}":                   `first denial: by the limit "seats", want "orders"`,
		"{first_denial: {headers: {retry-after: '3'}}}":     `first denial: header retry-after is "2", want "3"`,
		"{first_denial: {headers: {X-None: ''}}}":           "",
		"{first_denial: {headers: {X-None: a}}}":            `first denial: header X-None is "", want "a"`,
		"{first_denial: {body: {error: other}}}":            `first denial: the body's error is "rate_limited", want "other"`,
		"{first_denial: {body: {retryAfterSeconds: '2'}}}":  `first denial: the body's retryAfterSeconds is 2, want "2"`,
		"{first_denial: {body: {none: 1}}}":                 "first denial: the body has no none, want 1",
		"{first_denial: {body: {retryAfterSeconds: 2.0}}}":  "",
		"{allowed: 3, denied: 2, first_denial: {}}":         "",
		"{allowed: 4, first_denial: {status: 1, limit: x}}": `3 allowed, want 4|first denial: status 429, want 1|first denial: by the limit "seats", want "x"`,
	} {
		r := runText(t, "cases: [{at: 0s, request: {method: POST, path: /seats}, times: 5, expect: "+expect+"}]")[0]
		if got := strings.Join(r.Differs, "|"); got != want {
			t.Errorf("%s: %q, want %q", expect, got, want)
		}
	}
	r := runText(t, "cases: [{request: {path: /free}, expect: {first_denial: {status: 429}, remaining: 3}}]")[0]
	if got := strings.Join(r.Differs, "|"); got != "no limit says what remains, want 3|nothing was denied, and a first denial is expected" {
		t.Errorf("%q", got)
	}
}

func TestTimeline(t *testing.T) {
	r := runText(t, "cases: [{name: a, request: {method: POST, path: /seats}, times: 6, every: 500ms, expect: {allowed: 6}}]")[0]
	got := strings.Join(r.Timeline(), "\n")
	for _, want := range []string{"+0s        call 1           allowed: 2 of seats remain", "+1.5s      call 4           denied: 429 by seats, Retry-After 1: ", "+2s        call 5           allowed: 0 of seats remain"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	r = runText(t, "cases: [{name: a, request: {path: /hooks/x}, times: 600, expect: {allowed: 6}}]")[0]
	if got := r.Timeline(); len(got) != 1 || !strings.Contains(got[0], "calls 1 to 600   allowed: exempt as hooks") {
		t.Errorf("%q", got)
	}
}

func TestMistakesHaveTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "there are no cases",
		"cases: []":                    "there are no cases",
		"cases: {":                     "cases.yaml:",
		"cases:\n  - {nmae: a}":        `cases.yaml:2:6: unknown field "nmae"`,
		"cases:\n  - name: a\n":        "cases.yaml:2: a: nothing is expected; write expect: {allowed: 1}",
		"policy: a\npolicy: b\ncases:": "already defined",
		"cases:\n  - {times: x, expect: {allowed: 1}}":                                "cases.yaml:2:13: ",
		"cases:\n  - {times: 0, expect: {allowed: 0}}":                                "times: 0 is below 1",
		"cases:\n  - {service: 0, expect: {allowed: 1}}":                              "service: 0 is not a status",
		"cases:\n  - {request: {method: GE T}, expect: {allowed: 1}}":                 "\"GE T\" is not a method",
		"cases:\n  - {request: {headers: {a b: c}}, expect: {allowed: 1}}":            "\"a b\" is not the name of a header",
		"cases:\n  - {times: -1, expect: {allowed: 1}}":                               "times: -1 is below 1",
		"cases:\n  - {at: soon, expect: {allowed: 1}}":                                `cases.yaml:2: case 1: at: "soon" is no time`,
		"cases:\n  - {at: -1s, expect: {allowed: 1}}":                                 "is no time",
		"cases:\n  - {every: 99999999d, expect: {allowed: 1}}":                        "every: ",
		"cases:\n  - {every: 30000d, times: 3000, expect: {allowed: 1}}":              "after 100 years",
		"cases:\n  - {times: 2000000, expect: {allowed: 1}}":                          "at most 1000000 are possible",
		"cases:\n  - {service: 20, expect: {allowed: 1}}":                             "service: 20 is not a status",
		"cases:\n  - {request: {path: x}, expect: {allowed: 1}}":                      `path: "x" does not begin with a slash`,
		"cases:\n  - {request: {from: x}, expect: {allowed: 1}}":                      `from: "x" is not an address`,
		"cases:\n  - {request: {token: abc.def.ghi}, expect: {allowed: 1}}":           "token: write its claims",
		"cases:\n  - {request: {api_key: [1]}, expect: {allowed: 1}}":                 "api_key: write its owner",
		"cases:\n  - {request: {api_key: {owner: a, plna: b}}, expect: {allowed: 1}}": "api_key: write its owner",
		"cases:\n  - {times: 3, expect: {allowed: 1, denied: 1}}":                     "1 allowed and 1 denied are not the 3 calls",
		"cases:\n  - {expect: {denied: 0, first_denial: {status: 1}}}":                "none that is denied",
	} {
		if _, err := Parse("cases.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"cases: [{request: {api_key: nobody}, expect: {allowed: 1}}]": "line 1: case 1: api_key: no key of the policy's file is of nobody; write {owner: nobody, plan: PLAN}",
		"cases: [{request: {api_key: bolt}, expect: {allowed: 1}}]":   "the keys of bolt have the plans gold and basic",
	} {
		f, err := Parse("cases.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), load(t), f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("cases: [{at: 1d2h, request: {path: /, token: {sub: a}}, times: 3, expect: {allowed: 3}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if file, err := Parse("x", text); err == nil && len(file.Cases) == 0 {
			t.Errorf("%q has no cases", text)
		}
	})
}

// What nests deep is refused before the parser takes memory for it.
func TestDepthIsBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 5000), "cases:\n  - " + strings.Repeat("{a: ", 5000), strings.Repeat("- ", 5000)} {
		if _, err := Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "nested deeper than 1000 levels") {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}
