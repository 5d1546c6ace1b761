package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// randomPattern draws from an alphabet so small that patterns meet often.
func randomPattern(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString([]string{"", "", "GET ", "POST ", "HEAD ", "OPTIONS "}[r.IntN(6)])
	b.WriteString([]string{"", "", "", "", "a.example", "b.example"}[r.IntN(6)])
	n := r.IntN(4)
	for i := range n {
		b.WriteString([]string{"/a", "/b", "/a", "/b", fmt.Sprintf("/{w%d}", i)}[r.IntN(5)])
	}
	switch r.IntN(5) {
	case 0:
		b.WriteString("/{$}")
	case 1:
		b.WriteString("/{rest...}")
	case 2:
		b.WriteString("/")
	default:
		if n == 0 {
			b.WriteString("/")
		}
	}
	return b.String()
}

func randomRequest(r *rand.Rand) *Attributes {
	path := ""
	for range r.IntN(5) {
		path += []string{"/a", "/b", "/c"}[r.IntN(3)]
	}
	if path == "" || r.IntN(3) == 0 {
		path += "/"
	}
	return &Attributes{
		Method: []string{"GET", "POST", "HEAD", "OPTIONS", "PUT"}[r.IntN(5)],
		Host:   []string{"a.example", "b.example", "c.example"}[r.IntN(3)],
		Path:   path,
	}
}

// otherSlash is the same path with a last slash added or left out.
func otherSlash(path string) string {
	if path == "/" {
		return path
	}
	if cut, ok := strings.CutSuffix(path, "/"); ok {
		return cut
	}
	return path + "/"
}

// muxPattern asks a ServeMux which pattern serves a request as it stands: its
// redirects to a path with a slash are not an answer.
func muxPattern(mux *http.ServeMux, method, host, path string) string {
	q := &http.Request{Method: method, Host: host, URL: &url.URL{Path: path}, Header: http.Header{}}
	h, pattern := mux.Handler(q)
	if _, ok := h.(http.HandlerFunc); !ok {
		return "" // a redirect
	}
	return pattern
}

// muxChoice is what a ServeMux that ignores one last slash would serve: its
// handler of the path as it is, or of the other path when that pattern is the
// more specific one.
func muxChoice(t *testing.T, mux *http.ServeMux, a *Attributes) string {
	strict := muxPattern(mux, a.Method, a.Host, a.Path)
	loose := muxPattern(mux, a.Method, a.Host, otherSlash(a.Path))
	if strict == "" || loose == "" {
		return strict + loose
	}
	p, err := parsePattern(strict, false)
	q, qerr := parsePattern(loose, false)
	if err != nil || qerr != nil {
		t.Fatal(err, qerr)
	}
	if q.overrules(p) {
		return loose
	}
	return strict
}

func served(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// TestTrieAgreesWithServeMux compares the trie, which holds all patterns, with
// one ServeMux for each of them.
func TestTrieAgreesWithServeMux(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	compared, matched := 0, 0
	for range 120 {
		var patterns []*pattern
		var muxes []*http.ServeMux
		var tr trie
		for range 20 {
			text := randomPattern(r)
			p, err := parsePattern(text, false)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, text, err)
			}
			mux := http.NewServeMux()
			mux.HandleFunc(text, served)
			tr.add(p, int32(len(patterns)))
			patterns, muxes = append(patterns, p), append(muxes, mux)
		}
		for range 30 {
			a := randomRequest(r)
			paths, err := readPath(a.Path)
			if err != nil || paths.n != 1 {
				t.Fatalf("%s has %d readings: %v", a.Path, paths.n, err)
			}
			hits := tr.find(&request{method: a.Method, host: a.Host, path: paths.at(0)}, nil)
			for i, p := range patterns {
				at := slices.IndexFunc(hits, func(h hit) bool { return h.target == int32(i) })
				strict := muxPattern(muxes[i], a.Method, a.Host, a.Path) != ""
				loose := muxPattern(muxes[i], a.Method, a.Host, otherSlash(a.Path)) != ""
				compared++
				if strict || loose {
					matched++
				}
				if got, want := at >= 0, strict || loose; got != want {
					t.Fatalf("seed %d: %s and %s %s%s: the trie says %v, ServeMux %v", seed, p.text, a.Method, a.Host, a.Path, got, want)
				}
				if at >= 0 && hits[at].loose == strict {
					t.Fatalf("seed %d: %s and %s %s: loose is %v, and ServeMux matches the path as it is: %v", seed, p.text, a.Method, a.Path, hits[at].loose, strict)
				}
			}
		}
	}
	if compared < 50_000 || matched < compared/20 {
		t.Fatalf("only %d comparisons, %d of them matches", compared, matched)
	}
	t.Logf("%d comparisons, %d matches", compared, matched)
}

// register adds a pattern to a ServeMux and reports whether it was refused.
func register(mux *http.ServeMux, text string) (refused bool) {
	defer func() { refused = recover() != nil }()
	mux.HandleFunc(text, served)
	return false
}

// TestConflictsAreThoseOfServeMux compares pairs of patterns.
func TestConflictsAreThoseOfServeMux(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for range 20_000 {
		a, b := randomPattern(r), randomPattern(r)
		p, err := parsePattern(a, false)
		q, qerr := parsePattern(b, false)
		if err != nil || qerr != nil {
			t.Fatal(err, qerr)
		}
		mux := http.NewServeMux()
		mux.HandleFunc(a, served)
		want := register(mux, b)
		if want {
			found++
		}
		if got := p.conflicts(q); got != want || q.conflicts(p) != want {
			t.Fatalf("seed %d: %s and %s: conflict is %v, ServeMux says %v", seed, a, b, got, want)
		}
	}
	if found < 500 {
		t.Fatalf("only %d conflicts in the sample", found)
	}
}

// TestMostSpecificOperation compares the operation that is chosen with the
// handler that one ServeMux with all patterns chooses.
func TestMostSpecificOperation(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	compared := 0
	for range 100 {
		mux := http.NewServeMux()
		var texts []string
		var b, plans strings.Builder
		for range 14 {
			text := randomPattern(r)
			if register(mux, text) {
				continue
			}
			fmt.Fprintf(&b, "    op%d: {match: %q}\n", len(texts), text)
			fmt.Fprintf(&plans, "      op%d: 1/s\n", len(texts))
			texts = append(texts, text)
		}
		p := load(t, "weir: 1\napplication:\n  plans:\n    free:\n"+plans.String()+"  operations:\n"+b.String())
		for range 60 {
			a := randomRequest(r)
			a.Header = map[string][]string{}
			m, err := p.Match(a)
			if err != nil {
				t.Fatal(err)
			}
			want := muxChoice(t, mux, a)
			got := ""
			if m.found.app.n > 1 {
				t.Fatalf("seed %d: %d operations for one path", seed, m.found.app.n)
			}
			if m.found.app.n == 1 {
				got = m.found.app.at(0).pattern.text
			}
			if got != want {
				t.Fatalf("seed %d: %s %s%s: got %q, ServeMux says %q, of %q", seed, a.Method, a.Host, a.Path, got, want, texts)
			}
			compared++
		}
	}
	if compared < 5_000 {
		t.Fatalf("only %d comparisons", compared)
	}
}

// TestNoPatternPanics: whatever ServeMux panics on is an error here, and what
// it takes is taken, but for what the policy form leaves out.
func TestNoPatternPanics(t *testing.T) {
	for _, text := range []string{
		"", "GET", "GET /a /b", "/{", "/}", "/{}", "/{...}", "/{a", "/a{b}", "/{a}b", "/{a}{b}", "/{$}/a", "/{a...}/b",
		"/{a}/{a}", "{h}/a", "get /a", "GE T/a", "/a b", "GET a", "//", "/a//", "GET /./a", "GET /../a", "/%", "/%zz", "/%00", "\x00", "/\x00",
		"/a/", "/a/{$}", "/a/{b...}", "GET a.example/b", "/ä", "/%61", "/a%2Fb", "/{ä}",
	} {
		p, err := parsePattern(text, false)
		refused := register(http.NewServeMux(), text)
		if err == nil && p == nil {
			t.Errorf("%q: neither pattern nor error", text)
		}
		if refused && err == nil && text != "GE T/a" {
			t.Errorf("%q is accepted, ServeMux refuses it", text)
		}
	}
}

func TestPathValues(t *testing.T) {
	for _, c := range []struct{ pattern, path, name, want string }{
		{"/events/{event}/seats", "/events/12/seats", "event", "12"},
		{"/events/{event}/seats", "/Events/AB/Seats/", "event", "ab"},
		{"/files/{rest...}", "/files/a/b/c", "rest", "a/b/c"},
		{"/files/{rest...}", "/files", "rest", ""},
		{"/{a}/{b}", "/x/y%2Fz", "b", "y/z"},
		{"/{a}/{b}", "/x/y", "a", "x"},
	} {
		p, err := parsePattern(c.pattern, false)
		if err != nil {
			t.Fatal(err)
		}
		paths, err := readPath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.value(paths.at(0).text, c.name); got != c.want {
			t.Errorf("%s in %s: {%s} is %q, want %q", c.pattern, c.path, c.name, got, c.want)
		}
	}
}

// A real ServeMux in front: the handler it picks is the limit that is taken.
func TestSpellingsThatAServerServes(t *testing.T) {
	p := load(t, "weir: 1\napplication: {limits: [{name: seats, by: ip, limit: 1/s, match: \"POST /events/{event}/seats\"}]}")
	mux := http.NewServeMux()
	hit := false
	mux.HandleFunc("POST /events/{event}/seats", func(http.ResponseWriter, *http.Request) { hit = true })
	for _, path := range []string{
		"/events/1/seats", "/%65vents/1/seats", "/events/1/%73eats", "/events/1/seat%73", "/events/%31/seats",
		"/events/a%2Fb/seats", "/events/1;v=2/seats", "/events/1/seats?x=/", "/events/%252e/seats", "/events/1%3Bx/seats",
	} {
		hit = false
		q := httptest.NewRequest("POST", path, nil)
		mux.ServeHTTP(httptest.NewRecorder(), q)
		a := get("POST", q.URL.EscapedPath())
		limited := strings.Contains(ask(t, p, a, Identity{}), "seats")
		if hit && !limited {
			t.Errorf("%s reaches the handler and is not limited", path)
		}
		if !hit {
			t.Errorf("%s does not reach the handler: the case tests nothing", path)
		}
	}
}

// manyRules is a trie of n routes, and one for everything.
func manyRules(t testing.TB, n int) *trie {
	tr := new(trie)
	for i := range n {
		text := fmt.Sprintf("POST /r%d/{id}/orders", i)
		if i == 0 {
			text = "/"
		}
		p, err := parsePattern(text, false)
		if err != nil {
			t.Fatal(err)
		}
		tr.add(p, int32(i))
	}
	return tr
}

func TestMatchingAPlainPathAllocatesNothing(t *testing.T) {
	tr := manyRules(t, 1000)
	room := make([]hit, 0, 16)
	n := testing.AllocsPerRun(100, func() {
		paths, err := readPath("/r500/12/orders")
		if err != nil {
			t.Fatal(err)
		}
		q := request{method: "POST", path: paths.at(0)}
		if hits := tr.find(&q, room); len(hits) != 2 {
			t.Fatal(len(hits))
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
