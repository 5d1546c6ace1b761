package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// The clock of tests: 2026-11-30T12:00:00Z.
const noon = 1_796_040_000_000_000_000

func load(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatalf("policy: %v", err)
	}
	return p
}

// newEngine is an engine on a memory store whose clock stands still.
func newEngine(t testing.TB, text string, change ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	now := func() int64 { return noon }
	store := memstore.New(memstore.Options{Now: now})
	t.Cleanup(func() { store.Close() })
	o := engine.Options{Policy: load(t, text), Store: store, Now: now, LogKey: []byte("secret"), Logger: discard()}
	for _, f := range change {
		f(&o)
	}
	e, err := NewEngine(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

const goldenPolicy = `
weir: 1
callers: {account: jwt.sub, key: api_key.owner, ip: client_ip}
header_styles: [x]
application:
  plans: {order: [free, pro], free: {generate: quota 1/h}, pro: {generate: quota 2/h}}
  operations:
    generate: {match: [POST /generate, POST /Mutation/generate]}
  limits:
    - {name: others, match: [/reservations, "/my/{rest...}", "/hello/{rest...}", "/production/{rest...}", "/{$}", "/{a}/{b}/{c}"], by: [account, key, ip], limit: quota 1/h}
    - {name: open, match: POST /Mutation/open, by: key, limit: quota 1/h}
    - {name: personal, match: POST /Mutation/personal, by: account, limit: quota 1/h}
    - {name: everyone, match: POST /Query/everyone, by: everyone, limit: quota 1/h}
`

// fixtures is the folder of aws-lambda-go, whose tests have events of every
// trigger.
func fixtures(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-lambda-go").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func eventFiles(t testing.TB) []string {
	t.Helper()
	dir := fixtures(t)
	var names []string
	for pattern, least := range map[string]int{
		filepath.Join(dir, "events", "testdata", "*.json"): 100, filepath.Join(dir, "lambdaurl", "testdata", "*.json"): 4, "testdata/events/*.json": 40,
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < least {
			t.Fatalf("%s: %d files, at least %d are known: %v", pattern, len(found), least, err)
		}
		names = append(names, found...)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return names
}

var random = regexp.MustCompile(`("|\\")denialId("|\\"):("|\\")[0-9a-v]{13}`)

// TestGoldenDecisions writes what every event becomes: the attributes and the
// identity that a policy sees, and what the function answers until a limit
// refuses, which the handler's count of calls confirms.
func TestGoldenDecisions(t *testing.T) {
	var got bytes.Buffer
	for _, file := range eventFiles(t) {
		payload, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "== %s\n", strings.TrimSuffix(filepath.Base(file), ".json"))
		o := Options{TrustForwardedFor: strings.Contains(file, "alb")}
		describe(&got, payload, o.withDefaults())
		served, keys := 0, ""
		e := newEngine(t, goldenPolicy, func(o *engine.Options) {
			o.Decided = func(_ context.Context, o *engine.Outcome) {
				for i := range o.Verdicts {
					keys += " " + o.Verdicts[i].Rule.Name + "=" + o.Verdicts[i].Key.String()
				}
			}
		})
		f := Wrap(func(ctx context.Context, in json.RawMessage) (any, error) {
			served++
			return map[string]any{"statusCode": 201, "body": "booked"}, nil
		}, e, o)
		for try := 0; try < 3; try++ {
			before := served
			keys = ""
			out, err := f(context.Background(), payload)
			if err != nil {
				fmt.Fprintf(&got, "error %s: %v\n", typeName(err), err)
				break
			}
			text, err := marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			verb := "refused"
			if served > before {
				verb = "served"
			}
			fmt.Fprintf(&got, "%s%s %s\n", verb, keys, random.ReplaceAll(text, []byte("${1}denialId${2}:${3}DENIAL")))
			if verb == "refused" {
				break
			}
		}
	}
	golden(t, "testdata/decisions.golden", got.Bytes())
}

func describe(w *bytes.Buffer, payload []byte, o Options) {
	e, err := read(payload)
	if err != nil {
		return
	}
	a, id := e.attributes(&o), e.identity([]string{"plans", "cognito:groups"})
	fmt.Fprintf(w, "%s %s%s host=%q peer=%v\n", a.Method, a.Path, strings.TrimSuffix("?"+a.RawQuery, "?"), a.Host, a.Peer)
	for _, name := range []string{"X-Forwarded-For", "Cookie"} {
		if v := a.Header[name]; v != nil {
			fmt.Fprintf(w, "%s: %q\n", name, v)
		}
	}
	if id.Claims != nil || id.KeyOwner != "" {
		claims, _ := json.Marshal(id.Claims)
		fmt.Fprintf(w, "claims=%s owner=%q\n", claims, id.KeyOwner)
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for i := range g {
			if i >= len(w) || g[i] != w[i] {
				t.Fatalf("%s:%d: got\n%s\nRun with -update and read what changed.", file, i+1, g[i])
			}
		}
		t.Fatalf("%s has %d lines, got %d", file, len(w), len(g))
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
