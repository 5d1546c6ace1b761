//go:build linux

package lambdalimit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/internal/dynalite"
)

func TestSpec_A15_TwelveRequestsUnderTheEmulator(t *testing.T) {
	f := start(t, "little-stage-lambda")
	began := time.Now()
	account := ownEvent(t, "v2-account")
	var statuses []int
	for i := range 12 {
		b := f.book(account)
		statuses = append(statuses, b.StatusCode)
		if b.StatusCode == 201 {
			if b.Headers["x-ratelimit-limit"] != "10" || !strings.Contains(b.Body, "confirmed") || b.Headers["retry-after"] != "" {
				t.Errorf("call %d: %+v", i, b)
			}
			continue
		}
		wait := "2 seconds" // of which a second may be over on a machine that is busy
		if time.Since(began) >= time.Second && b.Headers["retry-after"] == "1" {
			wait = "1 second"
		}
		if b.Headers["retry-after"] != wait[:1] || b.Headers["x-ratelimit-remaining"] != "0" || b.Headers["content-type"] != "application/json" ||
			!strings.Contains(b.Body, `"error":"rate_limited"`) || !strings.Contains(b.Body, `"message":"Your plan allows 30 reservations per minute. Try again in `+wait+`."`) {
			t.Errorf("call %d: %+v", i, b)
		}
	}
	// Ten at once. A machine that is too busy adds what has refilled meanwhile, and
	// the calls that were served uncounted because the store took too long.
	extra := int(time.Since(began)/(2*time.Second)) + f.degraded()
	allowed := strings.Count(fmt.Sprint(statuses), "201")
	if allowed < 10 || allowed > 10+extra || extra == 0 && fmt.Sprint(statuses[10:]) != "[429 429]" {
		t.Errorf("%v within %v, %d extra", statuses, time.Since(began), extra)
	}
	t.Logf("%v within %v, %d writes", statuses, time.Since(began).Round(time.Millisecond), f.calls.of("UpdateItem"))
	// A refusal is remembered for a second, in which it costs no write.
	atMost := allowed
	if time.Since(began) >= time.Second {
		atMost = len(statuses)
	}
	if n := f.calls.of("UpdateItem"); n > atMost && f.degraded() == 0 {
		t.Errorf("%d writes for %d allowed calls, want at most %d", n, allowed, atMost)
	}

	// Nobody, an empty sub and forged fields are all the address.
	for _, name := range []string{"v2-anonymous", "v2-empty-sub", "v2-forged-headers"} {
		if b := f.book(ownEvent(t, name)); b.StatusCode != 201 {
			t.Errorf("%s: %+v", name, b)
		}
	}
	items := f.items()
	if len(items) != 2 || items["account#customer-42"] == 0 || items["ip#198.51.100.7"] == 0 {
		t.Errorf("items %v", items)
	}
	// Whole seconds: now, 20 s until the bucket is full, and an hour.
	for key, at := range items {
		if left := at - time.Now().Unix(); left < 3600-30 || left > 3620+5 {
			t.Errorf("%s expires in %d s", key, left)
		}
	}
	f.checkLines(statuses)
	f.checkOperations()
}

// checkOperations holds the function to the calls that its role allows: see
// TestSpec_A11.
func (f *function) checkOperations() {
	f.t.Helper()
	f.calls.mu.Lock()
	defer f.calls.mu.Unlock()
	for operation, n := range f.calls.n {
		if operation != "UpdateItem" && operation != "GetItem" {
			f.t.Errorf("%d calls of %s", n, operation)
		}
	}
}

// degraded is how many calls the function says to have served without its store.
func (f *function) degraded() int { return strings.Count(f.log.String(), `"Degraded":1`) }

// resolve is invoke for a limit that refuses what it cannot count: on a machine
// that is too busy the store may take longer than a decision may. Such a call may
// be counted for a while.
func (f *function) resolve(event []byte) (answer string) {
	f.t.Helper()
	f.await(func() bool {
		answer = string(f.invoke(event))
		unanswered := strings.Contains(answer, `"errorType":"LimitUnavailable"`)
		if unanswered {
			f.unanswered++
		}
		return !unanswered
	}, "the store does not answer")
	return answer
}

// checkLines reads the lines of the function: one metric for each call, in the
// form that CloudWatch takes, and one warning for each refusal.
func (f *function) checkLines(statuses []int) {
	f.t.Helper()
	metrics, refused := 0, 0
	for s := bufio.NewScanner(strings.NewReader(f.log.String())); s.Scan(); {
		var line struct {
			AWS       json.RawMessage `json:"_aws"`
			Service   string
			ColdStart int
			Msg, Key  string
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal(s.Bytes(), &line) != nil {
			continue // the emulator's own
		}
		switch {
		case line.AWS != nil:
			if metrics++; line.Service != "little-stage-lambda" || line.RequestID == "" || (line.ColdStart == 1) != (metrics == 1) {
				f.t.Errorf("metric %d: %s", metrics, s.Text())
			}
		case line.Msg == "rate limited":
			if refused++; len(line.Key) != 24 || line.RequestID == "" {
				f.t.Errorf("line %s", s.Text())
			}
		}
	}
	if metrics != len(statuses)+3 || refused != strings.Count(fmt.Sprint(statuses), "429") || strings.Contains(f.log.String(), "customer-42") {
		f.t.Errorf("%d metric lines, %d refusals", metrics, refused)
	}
}

func TestSpec_A10_SettingsComeFromTheEnvironment(t *testing.T) {
	f := start(t, "little-stage-lambda", "REFILL_PER_SECOND=1", "BUCKET_CAPACITY=3")
	account := ownEvent(t, "v2-account")
	refused := time.Time{}
	for i := 0; refused.IsZero(); i++ {
		switch b := f.book(account); {
		case b.StatusCode == 429:
			if refused = time.Now(); b.Headers["retry-after"] != "1" || b.Headers["x-ratelimit-limit"] != "3" {
				t.Errorf("%+v", b)
			}
		case i > 1000:
			t.Fatal("nothing is refused")
		}
	}
	// After the advertised wait it passes.
	f.await(func() bool { return time.Since(refused) >= time.Second }, "the clock stands still")
	if b := f.book(account); b.StatusCode != 201 {
		t.Errorf("after the wait: %+v", b)
	}
}

// R31: a container is frozen between two calls, and thaws.
func TestAFrozenFunctionGoesOn(t *testing.T) {
	f := start(t, "little-stage-lambda")
	account := ownEvent(t, "v2-account")
	for i := range 3 {
		if b := f.book(account); b.StatusCode != 201 {
			t.Fatalf("call %d: %+v", i, b)
		}
		child := f.child()
		syscall.Kill(child, syscall.SIGSTOP)
		f.await(func() bool { return state(child) == "T" }, "the function does not stop")
		syscall.Kill(child, syscall.SIGCONT)
	}
	if b := f.book(account); b.StatusCode != 201 || f.calls.of("UpdateItem") > 6 {
		t.Errorf("%+v, %d writes", b, f.calls.of("UpdateItem"))
	}
}

// child is the process of the function itself.
func (f *function) child() int {
	f.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", f.cmd.Process.Pid))
	var pids []string
	for _, task := range tasks { // a child is listed with the thread that started it
		b, _ := os.ReadFile(task) // a thread may have ended
		pids = append(pids, strings.Fields(string(b))...)
	}
	if len(pids) != 1 {
		f.t.Fatalf("the emulator has the children %v: %v", pids, err)
	}
	pid, err := strconv.Atoi(pids[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return pid
}

func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	s, _, _ := strings.Cut(rest, " ")
	return s
}

func TestSpec_B02_PlansAndOperationsUnderTheEmulator(t *testing.T) {
	f := start(t, "appsync-quotas")
	field := func(parent, name, sub, groups, prompt string) []byte {
		return fmt.Appendf(nil, `{"arguments":{"prompt":%q},"identity":{"sub":%q,"claims":{"sub":%q,"cognito:groups":%s}},"request":{"headers":{}},"info":{"fieldName":%q,"parentTypeName":%q}}`,
			prompt, sub, sub, groups, name, parent)
	}
	// B1: other fields pass without a store call.
	if got := f.resolve(field("Query", "ping", "u", "[]", "")); got != `{"data":"pong"}` {
		t.Error(got)
	}
	if f.calls.of("UpdateItem") != 0 {
		t.Error("a field without limit was counted")
	}
	// B8: what fails is not counted.
	for range 3 {
		if got := f.resolve(field("Mutation", "generate", "u", "[]", "")); !strings.Contains(got, `"errorType":"BadRequest"`) {
			t.Fatal(got)
		}
	}
	served := 0
	for i := range 12 { // B2: ten a minute
		got := f.resolve(field("Mutation", "generate", "u", `["unheard-of"]`, "p"))
		if got == `{"data":"generate: p"}` {
			served++
		} else if !strings.Contains(got, `"errorType":"LimitExceeded","errorInfo":{"operation":"generate","limit":10,"used":10,`) ||
			!strings.HasPrefix(got, `{"data":null,"errorMessage":"Your plan allows 10 generations per minute. Try again in `) {
			t.Errorf("call %d: %s", i, got)
		}
		if served > 10 || served < min(i+1, 10)-f.unanswered {
			t.Errorf("%d of %d calls were served, %d times the store did not answer", served, i+1, f.unanswered)
		}
	}
	// B3: of several entitlements the highest counts, and what was used stays.
	if got := f.resolve(field("Mutation", "generate", "u", `["free","advanced"]`, "p")); got != `{"data":"generate: p"}` {
		t.Error(got)
	}
	// B5: usage tells, and takes nothing.
	usage := f.resolve(field("Query", "usage", "u", `["advanced"]`, ""))
	told := false
	for used := served + 1; used <= served+1+f.unanswered; used++ {
		told = told || strings.Contains(usage, fmt.Sprintf(`"name":"generate","operation":"generate","plan":"advanced","limit":100,"used":%d,"remaining":%d,"period":"minute"`, used, 100-used))
	}
	if !told {
		t.Errorf("%d calls were served: %s", served+1, usage)
	}
	if items := f.items(); len(items) != 1 || items["account#u"] == 0 {
		t.Errorf("items %v", items)
	}
	// A batch, of which every element has its own answer.
	batch := "[" + string(field("Query", "analyze", "v", "[]", "1")) + "," + string(field("Query", "ping", "v", "[]", "")) + "," + string(field("Query", "analyze", "w", "[]", "")) + "]"
	if got := f.resolve([]byte(batch)); got != `[{"data":"analyze: 1"},{"data":"pong"},{"data":null,"errorMessage":"prompt is missing","errorType":"BadRequest"}]` {
		t.Error(got)
	}
	f.checkOperations()
}

func TestAFunctionThatCannotStartSaysWhy(t *testing.T) {
	builtBinaries.Store(true)
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	for want, env := range map[string][]string{
		"BUCKET_TABLE is not set":                                  {"AWS_REGION=eu-central-1"},
		`BUCKET_CAPACITY is \"lots\": it must be a number above 0`: {"AWS_REGION=eu-central-1", "BUCKET_TABLE=t", "BUCKET_CAPACITY=lots"},
		"REFILL_PER_SECOND":                                        {"AWS_REGION=eu-central-1", "BUCKET_TABLE=t", "REFILL_PER_SECOND=-1"},
		"set AWS_REGION":                                           {"BUCKET_TABLE=t"},
	} {
		c := exec.Command(filepath.Join(dir, "little-stage-lambda-amd64", "bootstrap"))
		c.Env = append([]string{"HOME=" + t.TempDir()}, env...)
		out, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v\n%s", env, err, out)
		}
	}
}

// R31: what a process knew before it was suspended is old when it goes on.
func TestASuspendOf15MinutesIsAClockStep(t *testing.T) {
	server := dynalite.Start(t, dynalite.Options{})
	client, err := dynamostore.NewClient(context.Background(), "us-east-1", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	store, err := dynamostore.New(client, dynamostore.Options{Table: "limits", Now: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(context.Background()); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, strings.Replace(simple, "quota 2/h", "0.01/s burst 2", 1), func(o *engine.Options) {
		o.Store, o.Now, o.Deadline = store, now.Load, 5*time.Second
	})
	f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, e, Options{})
	status := func() int {
		out, err := f(context.Background(), httpEvent("GET", "/", "a"))
		return answerOf(t, out, err).StatusCode
	}
	expect := func(when string, want ...int) {
		t.Helper()
		for i, w := range want {
			if got := status(); got != w {
				t.Errorf("%s: call %d: %d, want %d", when, i, got, w)
			}
		}
	}
	expect("at first", 200, 200, 429, 429)
	now.Add(int64(15 * time.Minute)) // 9 would have refilled; the bucket holds 2
	expect("after the suspend", 200, 200, 429, 429)
	now.Add(-int64(15 * time.Minute)) // a clock that is set back refills nothing
	expect("set back", 429, 429)
}
