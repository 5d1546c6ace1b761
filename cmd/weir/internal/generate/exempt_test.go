package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlabs/weir/internal/awscheck"
)

// atAPI is what an API of a template does with a call.
type atAPI struct {
	routes   [][2]string       // method and path
	settings map[string]string // rates, by method and path
	all      string            // the rate of all paths, or ""
	keyed    map[string]bool   // by method and path
}

func apiIn(t *testing.T, text string) atAPI {
	t.Helper()
	template, err := awscheck.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a := atAPI{settings: map[string]string{}, keyed: map[string]bool{}}
	refersTo := func(v any) string { s, _ := field(v, "Ref").(string); return s }
	paths := map[string]string{}
	for range template.Of("AWS::ApiGateway::Resource") { // as deep as there are resources
		for _, r := range template.Of("AWS::ApiGateway::Resource") {
			paths[r.ID] = paths[refersTo(r.Properties["ParentId"])] + "/" + word(r.Properties["PathPart"])
		}
	}
	for _, m := range template.Of("AWS::ApiGateway::Method") {
		path := paths[refersTo(m.Properties["ResourceId"])]
		if path == "" {
			path = "/"
		}
		method := word(m.Properties["HttpMethod"])
		a.routes = append(a.routes, [2]string{method, path})
		a.keyed[method+" "+path] = m.Properties["ApiKeyRequired"] == true
	}
	for _, s := range template.Of("AWS::ApiGateway::Stage") {
		for _, m := range items(s.Properties["MethodSettings"]) {
			path, rate := word(field(m, "ResourcePath")), fmt.Sprint(field(m, "ThrottlingRateLimit"))
			if path == "/*" {
				a.all = rate
				continue
			}
			a.settings[word(field(m, "HttpMethod"))+" /"+strings.ReplaceAll(strings.TrimPrefix(path[1:], "~1"), "~1", "/")] = rate
		}
	}
	for _, r := range template.Of("AWS::ApiGatewayV2::Route") {
		method, path, _ := strings.Cut(strings.Replace(word(r.Properties["RouteKey"]), "$default", "ANY $default", 1), " ")
		a.routes = append(a.routes, [2]string{method, path})
	}
	for _, s := range template.Of("AWS::ApiGatewayV2::Stage") {
		routes, _ := s.Properties["RouteSettings"].(map[string]any)
		for key, m := range routes {
			a.settings[strings.Replace(key, "$default", "ANY $default", 1)] = fmt.Sprint(field(m, "ThrottlingRateLimit"))
		}
	}
	return a
}

func word(v any) string { s, _ := v.(string); return s }

// specific tells how well a route's path fits one of a call: more is better, and ""
// is not at all.
func specific(route, path string) string {
	if route == "$default" {
		return "0"
	}
	have, want := strings.Split(route[1:], "/"), strings.Split(path[1:], "/")
	var out strings.Builder
	for i, part := range have {
		switch {
		case greedy(part):
			if len(want) <= i || want[i] == "" {
				return ""
			}
			return out.String() + "1"
		case i >= len(want) || part[:min(1, len(part))] != "{" && part != want[i]:
			return ""
		case strings.HasPrefix(part, "{"):
			out.WriteByte('2')
		default:
			out.WriteByte('3')
		}
	}
	if len(want) > len(have) {
		return ""
	}
	return out.String() + "4"
}

// find is the route that a call takes. Whether the path or the method is looked at
// first is not the same in every API.
func (a atAPI) find(method, path string, methodFirst bool) (found string) {
	best := ""
	for _, r := range a.routes {
		fit, own := specific(r[1], path), "0"
		if fit == "" || r[0] != "ANY" && r[0] != method {
			continue
		}
		if r[0] == method {
			own = "1"
		}
		if fit += own; methodFirst {
			fit = own + fit
		}
		if fit > best {
			best, found = fit, r[0]+" "+r[1]
		}
	}
	return found
}

// rate is the throttle of a call, or "".
func (a atAPI) rate(method, path string, methodFirst bool) string {
	route := a.find(method, path, methodFirst)
	_, at, _ := strings.Cut(route, " ")
	for _, key := range []string{method + " " + at, route} {
		if rate := a.settings[key]; rate != "" {
			return rate
		}
	}
	return a.all
}

// What the policy exempts is not throttled at a stage, whatever limit it lies in,
// and needs no key; all else is. What an API cannot tell from exempt paths is left
// to the application, and said.
func TestSpec_A14_ExemptIsNotThrottled(t *testing.T) {
	t.Parallel()
	const all, below = "{name: all, by: everyone, limit: 5/s burst 9}", "{name: x, match: \"POST /x/{rest...}\", by: everyone, limit: 1/s burst 2}"
	for _, c := range []struct {
		exempt, gateway string
		limits          []string
		calls           string // call=rate
		gaps            string // of a REST API
	}{
		{"[/healthz, /x/hooks/*]", "", []string{all, below}, "GET /healthz=, POST /healthz=, POST /x/hooks/a=, GET /x/hooks/a/b=, POST /x/y=1, GET /x/y=5, GET /other=5, GET /=5, GET /healthz/more=5", ""},
		{"[/healthz, /x/hooks/*]", "", []string{below}, "POST /x/hooks/a=, POST /x/y=1, GET /x/y=", ""},
		{"[/x/one]", "", []string{"{name: id, match: \"POST /x/{id}\", by: everyone, limit: 2/s}"}, "POST /x/one=, POST /x/two=2", ""},
		{"[/x/hooks/*]", "", []string{"{name: in, match: [\"POST /x/hooks/a\", \"/x/hooks/{more...}\"], by: everyone, limit: 2/s}", all}, "POST /x/hooks/a=, PUT /x/hooks/b=, GET /y=5", ""},
		{"[/*]", "", []string{all, below}, "GET /=, GET /a=, POST /x/y=", ""},
		{"[/x/*]", "", []string{"{name: id, match: \"GET /x/{id}\", by: everyone, limit: 2/s}", all}, "GET /x/a=, GET /x/a/b=, GET /y=5", ""},
		// With a plan's keys.
		{"[/partner/up, /partner/hooks/*]", "\"GET /partner/{rest...}\"", []string{all}, "GET /partner/up=, GET /partner/hooks/a=, GET /partner/a=5!, POST /partner/a=5, GET /b=5", ""},
		{"[/partner/*]", "[\"GET /partner/a/b\", \"GET /c\"]", []string{all}, "GET /partner/a/b=, GET /partner/c=, GET /c=5!", ""},
		// An API has a variable there and nothing else.
		{"[/partner/*]", "\"GET /partner/{id}\"", []string{all}, "GET /partner/a=, GET /partner/a/b=, GET /=5",
			"e: API Gateway cannot have /partner/* beside a variable; nearest: no throttle at the stage for what /partner/* may be among; the application keeps the limits (looser)"},
		{"[/partner/*]", "[\"GET /partner/{id}\", \"GET /{rest...}\"]", []string{below}, "GET /partner/a=, GET /partner/a/b=!, POST /x/y=1",
			"e: API Gateway cannot have /partner/* beside a variable; nearest: ask for a key there too (stricter)"},
		{"[/caf%C3%A9]", "", []string{all, below}, "GET /caf%C3%A9=, GET /y=, POST /x/y=1",
			"e: API Gateway cannot have caf%C3%A9 in a path; nearest: no throttle at the stage for what /caf%C3%A9 may be among; the application keeps the limits (looser)"},
	} {
		for _, api := range []API{REST, HTTP} {
			text := "weir: 1\nexempt: [{name: e, path: " + c.exempt + "}]\n"
			if c.gateway != "" {
				text += "gateway: {match: " + c.gateway + ", plans: {p: 10/s burst 10}}\n"
			}
			p := loadText(t, text+"application:\n  limits:\n    - "+strings.Join(c.limits, "\n    - ")+"\n")
			if api == HTTP && (c.gateway != "" || c.gaps != "") {
				continue
			}
			out, err := CloudFormation(p, Options{API: api, Approximate: true})
			if err != nil {
				t.Fatal(err)
			}
			template := string(out.Files[1].Text)
			var gaps []string
			for _, g := range out.Gaps {
				gaps = append(gaps, strings.TrimPrefix(g.String(), "line 2: "))
				if !strings.Contains(template, "# - "+g.String()) {
					t.Errorf("the template does not say %s", g)
				}
			}
			if got := strings.Join(gaps, "|"); got != c.gaps {
				t.Errorf("%s: %s: gaps\n%s\nwant\n%s", c.exempt, api, got, c.gaps)
			}
			for _, f := range invariants(template) {
				if c.gateway == "" || !strings.Contains(f.Problem, "no method needs a key") {
					t.Errorf("%s: %s: %s", c.exempt, api, f)
				}
			}
			a := apiIn(t, template)
			for _, methodFirst := range []bool{false, true}[:map[API]int{REST: 1, HTTP: 2}[api]] {
				for call := range strings.SplitSeq(c.calls, ", ") {
					call, want, _ := strings.Cut(call, "=")
					want, key := strings.CutSuffix(want, "!")
					method, path, _ := strings.Cut(call, " ")
					route := a.find(method, path, methodFirst)
					// An HTTP API has the policy's routes alone.
					if route == "" && api == HTTP && want == "" {
						continue
					}
					if got := a.rate(method, path, methodFirst); got != want || route == "" || a.keyed[route] != key {
						t.Errorf("%s, %s: %s: %s takes the route %q, rate %q, key %v; want %q, %v", c.exempt, c.limits, api, call, route, got, a.keyed[route], want, key)
					}
				}
			}
			tf, err := Terraform(p, Options{API: api, Approximate: true})
			if err != nil {
				t.Fatal(err)
			}
			problems, _ := checkTerraform(readProvider(t), tf.Files[0].Text)
			if len(problems) > 0 || !slices.Equal(tf.Gaps, out.Gaps) {
				t.Errorf("%s: %s: Terraform: %q, gaps %v", c.exempt, api, problems, tf.Gaps)
			}
		}
	}
}
