package httplimit_test

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/weirlabs/weir/httplimit"
)

// asked answers with the status that a request asks for; 502 gives everything back
// first, as a proxy does whose service cannot be reached.
var asked = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	status, err := strconv.Atoi(r.Header.Get("Test-Status"))
	if err != nil {
		status = 200
	}
	if status == 502 {
		_ = httplimit.Outcome(r.Context()).GiveBack(r.Context())
	}
	w.WriteHeader(status)
})

// A mark is told of when what stays has reached it, once: whatever of the calls
// before had come back, in whichever way, and in whatever process.
func TestNoticesTellOfWhatStays(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {broad: quota 5/day, twice: quota 5/day, fails: quota 5/day, one: quota 1/day, lost: quota 5/day calendar, both: quota 5/day}}
  operations:
    broad: {match: POST /broad, notify_at: [80%]}
    twice: {match: POST /twice, notify_at: [80%], once: header.Idempotency-Key}
    fails: {match: POST /fails, notify_at: [80%], count: on_success}
    one: {match: POST /one, notify_at: [100%], count: on_success}
    lost: {match: POST /lost, notify_at: [80%]}
    both: {match: POST /both, notify_at: [80%]}
  limits:
    - {name: all, match: POST full.example/broad, by: everyone, limit: quota 3/day}
    - {name: roomy, match: POST /both, by: everyone, limit: quota 1000/day}
`
	type call struct {
		path   string
		status string // what the service answers
		id     string
		want   int
		marks  int // told of by this call
	}
	ok := func(path string, marks int) call { return call{path, "", "", 200, marks} }
	cases := map[string][]call{
		"a broader limit refuses": {
			ok("http://full.example/broad", 0), ok("http://full.example/broad", 0), ok("http://full.example/broad", 0),
			{"http://full.example/broad", "", "", 429, 0}, {"http://full.example/broad", "", "", 429, 0},
			ok("/broad", 1), ok("/broad", 0),
		},
		"a repetition": {
			{"/twice", "", "k1", 200, 0}, {"/twice", "", "k2", 200, 0}, {"/twice", "", "k3", 200, 0},
			{"/twice", "", "k1", 200, 0}, {"/twice", "", "k2", 200, 0},
			{"/twice", "", "k4", 200, 1}, {"/twice", "", "k4", 200, 0}, {"/twice", "", "k5", 200, 0},
		},
		"a failure": {
			ok("/fails", 0), ok("/fails", 0), ok("/fails", 0),
			{"/fails", "500", "", 500, 0}, {"/fails", "404", "", 404, 0},
			ok("/fails", 1), {"/fails", "500", "", 500, 0}, ok("/fails", 0),
		},
		"nothing but failures": {
			{"/one", "500", "", 500, 0}, {"/one", "500", "", 500, 0}, {"/one", "500", "", 500, 0},
			ok("/one", 1), {"/one", "", "", 429, 0},
		},
		"a service that is away": {
			ok("/lost", 0), ok("/lost", 0), ok("/lost", 0),
			{"/lost", "502", "", 502, 0}, {"/lost", "502", "", 502, 0},
			ok("/lost", 1), {"/lost", "502", "", 502, 0}, ok("/lost", 0),
		},
		"a call for two keys": {
			ok("/both", 0), ok("/both", 0), ok("/both", 0), ok("/both", 1), ok("/both", 0), {"/both", "", "", 429, 0},
		},
	}
	onEveryStore(t, func(t *testing.T, open opener) {
		var h heard
		two := twoGates(t, open, text, asked, h.option, canGiveBack)
		told := 0
		for name, calls := range cases {
			for i, c := range calls {
				r := two[i%2].send("POST", c.path, "Test-Sub", name, "Test-Status", c.status, "Idempotency-Key", c.id)
				if r.StatusCode != c.want {
					t.Fatalf("%s: call %d: %d, want %d", name, i, r.StatusCode, c.want)
				}
				told += c.marks
				if got := h.marks(); len(got) != told {
					t.Fatalf("%s: after call %d: marks %v, want %d", name, i, got, told)
				}
			}
		}
		logged := 0
		for _, g := range two {
			for _, r := range g.records {
				if r.Notice != 0 {
					logged++
				}
			}
		}
		if lines := len(two[0].lines("INFO")) + len(two[1].lines("INFO")); logged != told || lines != told {
			t.Errorf("%d in the decision log and %d lines, want %d", logged, lines, told)
		}
	})
}

// Without an edge that can give back, a call for one key tells in the write that
// takes it, and one for two keys when both are taken.
func TestNoticesWithoutAWayBack(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: one, match: POST /one, by: account, limit: quota 5/day, notify_at: [80%]}
    - {name: two, match: POST /two, by: account, limit: [quota 5/day, 1000/s], notify_at: [80%]}
    - {name: all, match: POST /two, by: everyone, limit: quota 1000/day, notify_at: [1%]}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		var h heard
		two := twoGates(t, open, text, status(200), h.option)
		for i := range 5 {
			two[i%2].send("POST", "/one", "Test-Sub", "a")
			two[i%2].send("POST", "/two", "Test-Sub", "a")
		}
		for i := range 5 {
			two[i%2].send("POST", "/two", "Test-Sub", "b")
		}
		if got := h.marks(); !slices.Equal(got, []int{1, 80, 80, 80}) {
			t.Errorf("marks %v", got)
		}
	})
}

// What calls that are still under way hold reaches no mark, although they were
// taken before, and more than they cost was taken for them.
func TestNoticesLeaveOutWhatIsUnderWay(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {complete: quota 100/day}}
  operations: {complete: {match: POST /complete, cost: header.X-Estimate, settle: header.X-Used, count: on_success, notify_at: [80%]}}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		var h heard
		arrived, leave := make(chan bool), make(chan string)
		g := newGate(t, text, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived <- true
			w.Header().Set("X-Used", <-leave)
		}), on(open(t)), patient, h.option)
		done := make(chan bool)
		const calls = 10
		for range calls {
			go func() {
				g.send("POST", "/complete", "Test-Sub", "a", "X-Estimate", "10")
				done <- true
			}()
			<-arrived
		}
		for i, cost := range []string{"1", "9", "10", "0", "10", "10", "10", "10", "10", "10"} { // 80 in the end
			if got := len(h.marks()); got != 0 {
				t.Fatalf("%d marks before call %d ends", got, i)
			}
			leave <- cost
			<-done
		}
		if got := h.marks(); !slices.Equal(got, []int{80}) || used(t, g, "a") != 80 {
			t.Errorf("marks %v at %d used", got, used(t, g, "a"))
		}
		if n := h.notices[len(h.notices)-1]; n.Used != 80 {
			t.Errorf("told of %d used", n.Used)
		}
	})
}
