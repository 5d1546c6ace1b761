package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/policy"
)

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), "weir: 1\nnonsense: 1\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	up := newRecorder(t, nil)
	for _, c := range []struct {
		args string
		want int
	}{
		{"", 0},
		{"--help", 0},
		{"check --help", 0},
		{"check ../../examples/little-stage/weir.yaml", 0},
		{"check " + bad, 1},
		{"check " + filepath.Join(dir, "none.yaml"), 2},
		{"nonsense", 2},
		{"check --nonsense", 2},
		{"proxy", 2},
		{"proxy --to " + up.URL + " -c " + filepath.Join(dir, "none.yaml"), 2},
		{"proxy --to " + up.URL + " -c " + bad, 2},
		{"proxy --to " + up.URL + " --limit 0/s", 2},
		{"proxy --to " + up.URL + " --limit 10/s --by nobody", 2},
		{"proxy --to " + up.URL + " --limit 10/s --store nonsense:", 2},
		{"proxy --to " + up.URL + " --limit 10/d --store memory:?max_ttl=1h", 2},
		{"proxy --to " + up.URL + " --limit 10/s --listen " + taken.Addr().String(), 3},
		{"proxy --to " + up.URL + " --limit 10/s --listen 127.0.0.1:0 --metrics " + taken.Addr().String(), 3},
		{"proxy --to " + up.URL + " --limit 10/s --tls-cert none.pem --tls-key none.pem", 3},
		{"proxy --to " + up.URL + " --limit 10/s --decision-log " + filepath.Join(dir, "none", "d.log"), 3},
		{"probe http://127.0.0.1:1/", 3},
		{"probe " + up.URL + " -n 1 --expect 200=1", 0},
		{"probe " + up.URL + " -n 1 --expect 200=2", 1},
		{"probe " + up.URL + " -n 1 -o " + filepath.Join(dir, "none", "out"), 3},
		{"demo --once -c " + bad, 2},
	} {
		var out, errs bytes.Buffer
		if got := run(context.Background(), strings.Fields(c.args), &out, &errs); got != c.want {
			t.Errorf("weir %s: exit %d, want %d\n%s", c.args, got, c.want, errs.String())
		}
		if c.want >= 2 && !strings.Contains(errs.String(), "weir: ") && !strings.Contains(errs.String(), ": error: ") {
			t.Errorf("weir %s says nothing: %q", c.args, errs.String())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got := run(ctx, []string{"demo", "--once"}, io.Discard, io.Discard); got != 130 {
		t.Errorf("interrupted: exit %d, want 130", got)
	}
}

func TestProxyFirstLineAndEquivalentPolicy(t *testing.T) {
	up := newRecorder(t, nil)
	out, err := os.Create(filepath.Join(t.TempDir(), "out.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := startWeir(t, nil, "proxy", "--to", up.URL, "--limit", "0.5/m burst 4", "--by", "ip", "--listen", "127.0.0.1:0", "-o", out.Name())
	if !regexp.MustCompile(`^weir: listening on http://127\.0\.0\.1:[1-9][0-9]*$`).MatchString(p.first) {
		t.Errorf("first line %q", p.first)
	}
	p.line("try: ")
	got := map[int]int{}
	for range 6 {
		res, _ := do(t, "GET", p.url+"/")
		got[res.StatusCode]++
	}
	if got[200] != 4 || got[429] != 2 {
		t.Errorf("answers %v, want 4 and 2", got)
	}
	// The YAML on stdout says the same as the flags.
	if _, err := loadPolicy(out.Name()); err != nil {
		t.Errorf("the equivalent policy does not load: %v", err)
	}
	if code := p.end(syscall.SIGINT); code != 130 {
		t.Errorf("SIGINT: exit %d, want 130", code)
	}
}

func TestCase_B230_ATerminationSignalDrains(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	up := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(began)
			<-release
			io.WriteString(w, "done")
		}
	})
	p := startWeir(t, nil, "proxy", "--to", up.URL, "--limit", "100/s", "--listen", "127.0.0.1:0", "-v")
	answer := make(chan string, 1)
	go func() {
		res, err := http.Get(p.url + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		answer <- string(b)
	}()
	<-began
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.line("draining")
	// The port is closed before the last request has ended.
	if c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://")); err == nil {
		c.Close()
		t.Error("a draining proxy still accepts")
	}
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("the request under way ended with %q", got)
	}
	for range p.lines {
	}
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v, want exit 0", err)
	}
}

// The whole kind: whatever is wrong with a new policy, the good one stays.
func TestCase_B163_ReloadKeepsTheLastGoodPolicyAndTheCounters(t *testing.T) {
	up := newRecorder(t, nil)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	text := func(limit string) string {
		return "weir: 1\napplication:\n  limits:\n    - {name: all, match: GET /, by: ip, limit: " + limit + "}\n"
	}
	writeFile(t, file, text("quota 5/hour"))
	p := startWeir(t, nil, "proxy", "--to", up.URL, "-c", file, "--listen", "127.0.0.1:0")
	get := func() int {
		res, _ := do(t, "GET", p.url+"/")
		return res.StatusCode
	}
	for i := range 4 {
		if got := get(); got != 200 {
			t.Fatalf("call %d: %d", i+1, got)
		}
	}
	for _, bad := range []string{"", "weir: 1\nlimts: []\n", text("quota 0/hour"), "weir: 1\napplication: {", "weir: 1\nauth: {jwt: {hs256_secret_env: NOT_SET_ANYWHERE}}\n"} {
		writeFile(t, file, bad)
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.line("the policy was not reloaded; the one in force stays")
	}
	os.Remove(file)
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.line("the policy was not reloaded; the one in force stays")
	if got := get(); got != 200 {
		t.Errorf("the fifth of five calls under the last good policy: %d", got)
	}
	if got := get(); got != 429 {
		t.Errorf("the sixth of five: %d", got)
	}
	writeFile(t, file, text("quota 7/hour"))
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.line("the policy was reloaded")
	got := []int{get(), get(), get()}
	if fmt.Sprint(got) != "[200 200 429]" {
		t.Errorf("after 5 of a quota raised to 7: %v, want two more", got)
	}
	p.end(syscall.SIGTERM)

	if code := startFails(t, "proxy", "--to", up.URL, "-c", writeFile(t, file, "weir: 1\nlimts: []\n")); code != 2 {
		t.Errorf("a start with an unknown key: exit %d, want 2", code)
	}
}

func startFails(t *testing.T, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return run(ctx, args, io.Discard, io.Discard)
}

func TestTwoProcessesKeepOneLimitAndARestartKeepsIt(t *testing.T) {
	db := dynalite.Start(t, dynalite.Options{})
	up := newRecorder(t, nil)
	// Under deny no call passes uncounted.
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), `weir: 1
application:
  limits:
    - {name: all, match: GET /, by: ip, limit: quota 40/hour, on_store_error: deny}
`)
	args := []string{"proxy", "--to", up.URL, "-c", file, "--listen", "127.0.0.1:0", "-q",
		"--store", "dynamodb:shared?region=us-east-1&create=true&endpoint=" + db.URL}
	one, two := startWeir(t, nil, args...), startWeir(t, nil, args...)
	var ok, refusals atomic.Int64
	call := func(url string) {
		res, err := http.Get(url + "/")
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
		switch res.StatusCode {
		case 200:
			ok.Add(1)
		case 429:
			refusals.Add(1)
		default:
			t.Errorf("status %d", res.StatusCode)
		}
	}
	var wg sync.WaitGroup
	for _, p := range []*process{one, two} {
		for range 4 {
			wg.Go(func() {
				for range 6 {
					call(p.url)
				}
			})
		}
	}
	wg.Wait()
	if ok.Load() != 40 || refusals.Load() != 8 {
		t.Errorf("two processes: %d allowed, %d refused; want 40 and 8", ok.Load(), refusals.Load())
	}
	one.end(syscall.SIGTERM)
	two.end(syscall.SIGTERM)
	three := startWeir(t, nil, args...)
	refusals.Store(0)
	if call(three.url); refusals.Load() != 1 {
		t.Error("a restart forgot the limit")
	}
}

func TestMetrics(t *testing.T) {
	m := newMetrics()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("names: %v, %v", problems, err)
	}

	up := newRecorder(t, nil)
	p := startWeir(t, nil, "proxy", "--to", up.URL, "--limit", "quota 2/hour", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
	at := strings.TrimPrefix(p.line("metrics on "), "metrics on ")
	for range 3 {
		do(t, "GET", p.url+"/")
	}
	_, body := do(t, "GET", at)
	for _, want := range []string{
		`weir_requests_total{outcome="refused"} 1`, `weir_requests_total{outcome="served"} 2`,
		`weir_decisions_total{layer="application",limit="requests",result="allowed"} 2`,
		`weir_decisions_total{layer="application",limit="requests",result="denied"} 1`,
		"go_goroutines", "weir_degraded_requests_total 0",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if res, _ := do(t, "GET", p.url+"/metrics"); res.StatusCode != 429 {
		t.Errorf("/metrics on the service's port: %d, want it to be the service's", res.StatusCode)
	}
}

// What stands in front of a store in another process is counted where it can be
// looked at.
func TestMetricsOfAStore(t *testing.T) {
	up := newRecorder(t, nil)
	redis := "redis://" + redistest.Start(t, redistest.Options{}).Addr
	p := startWeir(t, nil, "proxy", "--to", up.URL, "--limit", "quota 2/hour", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--store", redis)
	at := strings.TrimPrefix(p.line("metrics on "), "metrics on ")
	var body string
	for range 50 { // what was refused less than a second before is refused without the store
		do(t, "GET", p.url+"/")
		if _, body = do(t, "GET", at); !strings.Contains(body, "\nweir_store_memo_refusals_total 0\n") {
			break
		}
	}
	for _, want := range []string{
		"\nweir_store_memo_refusals_total 1\n", "\nweir_store_breaker_open 0\n", "\nweir_store_clock_skew_seconds ", "\nweir_store_lost_replies_total 0\n",
		"\nweir_store_coalesced_calls_total 0\n", "\nweir_store_skipped_calls_total 0\n", "\nweir_store_throttled_trips_total 0\n", "\nweir_store_unknown_outcomes_total 0\n",
		"\nweir_policy_last_reload_successful 1\n", "\nweir_policy_reloads_total{result=\"failed\"} 0\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	if problems, err := promlint.New(strings.NewReader(body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("names: %v, %v", problems, err)
	}
}

// Without --store, counts of an hour or more are kept in a file, and a restart
// does not forget them.
func TestLongPeriodsOutlastARestart(t *testing.T) {
	up := newRecorder(t, nil)
	args := []string{"proxy", "--to", up.URL, "--limit", "quota 2/hour", "--listen", "127.0.0.1:0"}
	dir := t.TempDir()
	one := startWeirIn(t, dir, nil, args...)
	if l := one.line("no store is named"); !strings.Contains(l, "weir.db") || !strings.Contains(l, "--store redis://HOST:6379") {
		t.Errorf("it says %q", l)
	}
	for i, want := range []int{200, 200, 429} {
		if res, _ := do(t, "GET", one.url+"/"); res.StatusCode != want {
			t.Errorf("call %d: %d, want %d", i+1, res.StatusCode, want)
		}
	}
	// A second process is not given the file.
	second := exec.Command("weir", args...)
	second.Dir = dir
	said, _ := second.CombinedOutput()
	pid := fmt.Sprint(one.cmd.Process.Pid)
	if second.ProcessState.ExitCode() != 3 ||
		!strings.Contains(string(said), "weir.db is held by process "+pid) || !strings.Contains(string(said), "try: ps -fp "+pid) {
		t.Errorf("a second process: exit %d, %s", second.ProcessState.ExitCode(), said)
	}
	for _, args := range [][]string{{"store", "check"}, {"store", "compact"}, {"store", "ls"}} {
		c := exec.Command("weir", append(args, "--store", "bolt:weir.db")...)
		c.Dir = dir
		said, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 3 || !strings.Contains(string(said), "weir.db is held by process "+pid) {
			t.Errorf("%v of a file that is held: exit %d, %s", args, c.ProcessState.ExitCode(), said)
		}
	}
	if code := one.end(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	two := startWeirIn(t, dir, nil, args...)
	if res, _ := do(t, "GET", two.url+"/"); res.StatusCode != 429 {
		t.Errorf("after a restart: %d, want 429", res.StatusCode)
	}
	// Who names a store, on the line or in the policy, is not told that none is.
	named := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), "weir: 1\nstore: \"memory:\"\napplication: {limits: [{name: a, match: GET /, by: ip, limit: 0.001/s burst 100}]}\n")
	for text, want := range map[string]string{
		"--limit=0.001/s burst 100": "takes 27h47m0s to fill again", "--limit=10/s burst 20": "",
		"--limit=0.001/s burst 100 --store memory:": "", "--config=" + named: "",
	} {
		limit, store, _ := strings.Cut(text, " --store ")
		p := startWeir(t, nil, "proxy", "--to", up.URL, "--listen", "127.0.0.1:0", limit, "--store="+store)
		if want != "" {
			if l := p.line("no store is named"); !strings.Contains(l, want) || !strings.Contains(l, "--store bolt:weir.db") {
				t.Errorf("%s: it says %q", text, l)
			}
		} else if p.line("try: "); strings.Contains(p.log(), "no store is named") {
			t.Errorf("%s: it says %q", text, p.log())
		}
		p.end(syscall.SIGTERM)
	}
	for text, want := range map[string]string{"10/s burst 20": "memory:", "quota 5/59m": "memory:", "quota 5/60m": "bolt:weir.db", "100/d": "bolt:weir.db", "sliding 5/hour": "bolt:weir.db"} {
		q, _, err := policy.FromLimit(text, "ip")
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := defaultStore(q.Limits()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestDemoKeepsServing(t *testing.T) {
	cmd := exec.Command("weir", "demo", "--json")
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	var curl string
	for lines.Scan() && !strings.Contains(lines.Text(), "/webhooks/") {
		if strings.Contains(lines.Text(), "curl -i -X POST") && strings.Contains(lines.Text(), "/reservations -H") {
			curl = lines.Text()
		}
	}
	// The line to try works as it stands.
	parts := regexp.MustCompile(`(http://\S+) -H 'Authorization: (.*)'`).FindStringSubmatch(curl)
	if parts == nil {
		t.Fatalf("no curl line with a token: %q", curl)
	}
	if res, body := do(t, "POST", parts[1], "Authorization", parts[2]); res.StatusCode != 201 || res.Header.Get("RateLimit-Remaining") != "9" {
		t.Errorf("%s: %d %v %s", curl, res.StatusCode, res.Header, body)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, pipe)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("Ctrl-C: %v, want exit 130", err)
	}
	var doc struct {
		SchemaVersion int `json:"schema_version"`
		Scenarios     []result
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.SchemaVersion != 1 || len(doc.Scenarios) != 10 {
		t.Errorf("stdout: %v, %d scenarios", err, len(doc.Scenarios))
	}
}

// TestReadersOfTheProxyMayEnd: who reads what a proxy says may end, at once or after
// the first line, and the proxy goes on; another command ends as all programs do.
func TestReadersOfTheProxyMayEnd(t *testing.T) {
	up := newRecorder(t, nil)
	gone := func() *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		t.Cleanup(func() { w.Close() })
		return w
	}
	p := exec.Command("weir", "proxy", "--to", up.URL, "--limit", "2/h burst 2", "--listen", "127.0.0.1:0", "--store", "memory:")
	p.Stdout = gone() // of the equivalent policy
	pipe, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(pipe).ReadString('\n')
	pipe.Close()
	url, found := strings.CutPrefix(strings.TrimSpace(first), "weir: listening on ")
	if err != nil || !found {
		t.Errorf("first line %q, %v", first, err)
	}
	got := map[int]int{}
	for range 4 { // a refusal is said
		if res, err := http.Get(url + "/"); err == nil {
			got[res.StatusCode]++
			res.Body.Close()
		}
	}
	if got[200] != 2 || got[429] != 2 {
		t.Errorf("answers %v, want 2 and 2", got)
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Errorf("SIGTERM: %v, want exit 0", err)
	}

	help := exec.Command("weir", "help")
	help.Stdout = gone()
	if err := help.Run(); err == nil || help.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE {
		t.Errorf("weir help, with nobody who reads: %v, want an end by SIGPIPE", err)
	}
}
