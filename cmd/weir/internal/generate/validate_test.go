package generate

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir/internal/awscheck"
	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

const root = "../../../.."

func load(t testing.TB, fsys fs.FS) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fsys, "weir.yaml", policy.Options{Expressions: expression.Compile})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func loadText(t testing.TB, text string) *policy.Policy {
	t.Helper()
	return load(t, fstest.MapFS{"weir.yaml": {Data: []byte(text)}})
}

// everything has at least one of all that can be generated for a REST API.
const everything = `
weir: 1
name: everything
auth: {api_keys: {header: x-partner, file: keys}}
cors: {origins: ["https://shop.example", "https://admin.example"]}
exempt:
  - {name: hooks, path: [/hooks/*, /partner/hooks/*]}
  - {name: up, path: /up}
edge:
  - {name: all, limit: sliding 2000/5m, by: ip, except_ips: [0.0.0.0/0, "2001:db8::/32"]}
  - {name: login, limit: sliding 20/1m, by: ip, priority: 3, path: [/login, /api/auth/*]}
  - {name: watch, limit: sliding 500/10m, by: everyone, priority: 1, mode: shadow}
gateway:
  match: ["GET /partner/{rest...}", "POST /import/{kind}"]
  plans:
    small: [10/s burst 20, quota 1000/day calendar]
    large: [0.5/s burst 5, quota 9000/week calendar UTC]
    wide: quota 100000/month calendar
application:
  limits:
    - {name: sale, match: [POST /sale, "GET /items/"], by: everyone, limit: 500/s burst 1000}
    - {name: searches, match: GET /search, by: ip, limit: 2/s burst 5}
`

func everythingPolicy(t testing.TB) *policy.Policy {
	t.Helper()
	keys := "acme small " + strings.Repeat("ab", 32) + "\nacme large " + strings.Repeat("cd", 32) + "\nbolt - " + strings.Repeat("ef", 32) + "\n"
	return load(t, fstest.MapFS{"weir.yaml": {Data: []byte(everything)}, "keys": {Data: []byte(keys)}})
}

// overHTTP is for an HTTP API, and overAppSync for AppSync with tokens of OIDC.
const (
	overHTTP = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
exempt: [{name: hooks, path: /hooks/*}]
application:
  limits:
    - {name: book, match: ["POST /book/{event}", "GET /book/{event}/"], by: account+path.event, limit: 1/s burst 2}
    - {name: sale, match: POST /sale, by: everyone, limit: 500/s burst 1000}
    - {name: rest, by: ip, limit: 5/s}
`
	overAppSync = `
weir: 1
callers: {account: jwt.sub}
edge: [{name: all, limit: sliding 2000/5m, by: ip, except_ips: [203.0.113.0/24]}]
application:
  plans: {free: {render: quota 3/hour}}
  operations: {render: {match: [POST /Mutation/render, POST /Query/preview]}}
`
)

// templates are what is generated from every example and from policies that have
// all there is.
func templates(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(name string, p *policy.Policy, o Options) {
		got, err := CloudFormation(p, o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range got.Files {
			if f.Name == "template.yaml" {
				out[name] = string(f.Text)
			}
		}
	}
	all := everythingPolicy(t)
	add("little-stage", load(t, os.DirFS(root+"/examples/little-stage")), Options{Approximate: true})
	add("everything", all, Options{})
	add("everything without data", all, Options{LoseData: true})
	add("http", loadText(t, overHTTP), Options{Open: []string{"GET /open", "GET /book/{event}/"}, Environment: []Variable{{"LIMIT", "3"}}})
	add("appsync", loadText(t, overAppSync), Options{API: AppSync})
	add("appsync-quotas", load(t, os.DirFS(root+"/examples/appsync-quotas")), Options{})
	err := filepath.WalkDir(root+"/examples", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "template.yaml" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// invariants are what our own rules find in a template.
func invariants(text string) []awscheck.Finding {
	parsed, err := awscheck.Parse([]byte(text))
	if err != nil {
		return []awscheck.Finding{{Rule: "parse", Problem: err.Error()}}
	}
	return awscheck.Check(parsed)
}

// Every template of the examples, and of policies that have all there is, passes
// AWS's own validator and our invariants with no finding; and every planted
// mistake is caught by one of the two. Only what our invariants do not see is
// shown to the validator, which is the slower one.
func TestSpec_A11_TemplatesAreSound(t *testing.T) {
	t.Parallel()
	sound := templates(t)
	dir := t.TempDir()
	var names, files []string
	validate := func(name, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%03d.yaml", len(files)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names, files = append(names, name), append(files, file)
	}
	for name, text := range sound {
		for _, f := range invariants(text) {
			t.Errorf("%s: %s", name, f)
		}
		validate(name, text)
	}
	for _, m := range mistakes {
		old, all := strings.CutPrefix(m.old, everywhere)
		text := sound[m.in]
		if !strings.Contains(text, old) || old == m.new {
			t.Errorf("%s: %q does not hold %q: nothing is planted", m.name, m.in, old)
			continue
		}
		n := 1
		if all {
			n = -1
		}
		if text = strings.Replace(text, old, m.new, n); len(invariants(text)) == 0 {
			validate(m.name, text)
		}
	}
	found, err := awscheck.Validate(t.Context(), files...)
	if err != nil {
		t.Fatal(err)
	}
	for i, findings := range found {
		if sound[names[i]] == "" {
			if len(findings) == 0 {
				t.Errorf("%s: nobody sees it", names[i])
			}
			continue
		}
		for _, f := range findings {
			t.Errorf("%s: %s", names[i], f)
		}
	}
	t.Logf("%d planted mistakes, of which our invariants see %d, and AWS's validator the other %d", len(mistakes), len(mistakes)-len(files)+len(sound), len(files)-len(sound))
}
