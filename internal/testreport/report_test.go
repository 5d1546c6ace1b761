package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each stream is what go test -json printed, shortened to what matters.
func TestVerdicts(t *testing.T) {
	const passing = `
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"coverage: 81.5% of statements\n"}
{"Action":"pass","Package":"p","Elapsed":0.5}
`
	tests := []struct {
		name   string
		stream string
		exit   error
		good   bool
		last   string
		shows  []string
		hides  []string
	}{
		{
			name: "all pass", stream: passing, good: true, last: "2 passed, 0 failed, 0 skipped",
			shows: []string{"2 tests", "covered 81.5%", "total time 1.5s\n"}, hides: []string{"=== RUN", "What went wrong"},
		},
		{
			name: "a package without test files is no finding", good: true, last: "2 passed, 0 failed, 0 skipped",
			stream: passing + `{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}` + "\n" + `{"Action":"skip","Package":"q"}`,
		},
		{
			name: "nor is one that is only covered", good: true, last: "2 passed, 0 failed, 0 skipped",
			stream: passing + `{"Action":"output","Package":"q","Output":"\tq\t\tcoverage: 0.0% of statements\n"}` + "\n" + `{"Action":"pass","Package":"q"}`,
			shows:  []string{"without tests  covered 0.0%"},
		},
		{
			name: "a failure shows its output", exit: errors.New("exit status 1"), last: "1 passed, 2 failed, 0 skipped",
			stream: `
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"    a_test.go:3: got 9, want 10\n"}
{"Action":"fail","Package":"p","Test":"TestA/x"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"only noise\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"-test.shuffle 1781\n"}
{"Action":"fail","Package":"p"}
`,
			shows: []string{"got 9, want 10", "FAIL  p.TestA/x", "-test.shuffle 1781"}, hides: []string{"only noise"},
		},
		{
			name: "a skip is a failure", last: "2 passed, 0 failed, 1 skipped",
			stream: `
{"Action":"run","Package":"q","Test":"TestR"}
{"Action":"output","Package":"q","Test":"TestR","Output":"    r_test.go:9: no server\n"}
{"Action":"skip","Package":"q","Test":"TestR"}
{"Action":"pass","Package":"q"}
` + passing,
			shows: []string{"SKIP  q.TestR", "no server", "A skipped test counts as a failure"},
		},
		{
			name: "a package that runs none of its tests", last: "2 passed, 1 failed, 0 skipped",
			stream: passing + `
{"Action":"start","Package":"q"}
{"Action":"output","Package":"q","Output":"testing: warning: no tests to run\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\t0.002s\tcoverage: [no statements] [no tests to run]\n"}
{"Action":"pass","Package":"q"}
`,
			shows: []string{"q has test files and ran no test"},
		},
		{
			name: "a build that fails", exit: errors.New("exit status 1"), last: "2 passed, 1 failed, 0 skipped",
			stream: passing + `
{"ImportPath":"c [c.test]","Action":"build-output","Output":"c/c_test.go:3:27: undefined: x\n"}
{"ImportPath":"c [c.test]","Action":"build-fail"}
{"Action":"start","Package":"c"}
{"Action":"fail","Package":"c","FailedBuild":"c [c.test]"}
`,
			shows: []string{"undefined: x", "c does not build"},
		},
		{
			name: "a time-out shows what was running", exit: errors.New("exit status 1"), last: "0 passed, 1 failed, 0 skipped",
			stream: `
{"Action":"run","Package":"p","Test":"TestHang"}
{"Action":"output","Package":"p","Test":"TestHang","Output":"waiting for the store\n"}
{"Action":"output","Package":"p","Output":"panic: test timed out after 10m0s\n"}
{"Action":"fail","Package":"p"}
`,
			shows: []string{"p.TestHang (did not end)", "waiting for the store", "timed out", "p failed outside its tests"},
		},
		{
			name: "an exit code that nothing explains", stream: passing, exit: errors.New("exit status 2"),
			last: "2 passed, 1 failed, 0 skipped", shows: []string{"exit status 2"},
		},
		{
			name: "output that breaks off", last: "1 passed, 1 failed, 0 skipped",
			stream: strings.Join(strings.Split(passing, "\n")[:6], "\n"), shows: []string{"p began and never ended"},
		},
		{name: "no test at all", last: "0 passed, 0 failed, 0 skipped", shows: []string{"no test ran"}},
		{
			name: "lines that are no events are passed on", stream: "go: warning: odd\n" + passing, good: true,
			last: "2 passed, 0 failed, 0 skipped", shows: []string{"go: warning: odd\n"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(tc.stream)); err != nil {
				t.Fatal(err)
			}
			if good := r.finish(1500*time.Millisecond, tc.exit); good != tc.good {
				t.Errorf("good = %v, want %v", good, tc.good)
			}
			if !strings.HasSuffix(out.String(), "\n"+tc.last+"\n") {
				t.Errorf("the output does not end with the line %q", tc.last)
			}
			for _, s := range tc.shows {
				if !strings.Contains(out.String(), s) {
					t.Errorf("the output lacks %q", s)
				}
			}
			for _, s := range tc.hides {
				if strings.Contains(out.String(), s) {
					t.Errorf("the output should not hold %q", s)
				}
			}
			if t.Failed() {
				t.Logf("output:\n%s", out.String())
			}
		})
	}
}

// The real go test on a real module, so that a change of its output is noticed.
func TestRealGoTest(t *testing.T) {
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "package m\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n"
	for name, tc := range map[string]struct {
		more string
		code int
		last string
	}{
		"passes":  {"", 0, `1 passed, 0 failed, 0 skipped`},
		"fails":   {"func TestBad(t *testing.T) { t.Error(1) }\n", 1, `1 passed, 1 failed, 0 skipped`},
		"skips":   {"func TestLazy(t *testing.T) { t.SkipNow() }\n", 1, `1 passed, 0 failed, 1 skipped`},
		"panics":  {"func TestX(t *testing.T) { panic(1) }\n", 1, `[01] passed, 1 failed, 0 skipped`},
		"nothing": {"func broken( {}\n", 1, `0 passed, 1 failed, 0 skipped`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(dir, "go.mod", "module m\n\ngo 1.26\n")
			write(dir, "m_test.go", good+tc.more)
			var out, errs strings.Builder
			code := run(&out, &errs, "go", "-C", dir, "test", "-json", "-count=1", "./...")
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !regexp.MustCompile(`\n` + tc.last + `\n$`).MatchString(out.String()) {
				t.Errorf("the output does not end with the line %q", tc.last)
			}
			if t.Failed() {
				t.Logf("output:\n%s%s", out.String(), errs.String())
			}
		})
	}
	var out, errs strings.Builder
	if code := run(&out, &errs, filepath.Join(t.TempDir(), "no-such-command")); code != 2 {
		t.Errorf("a command that does not exist gives exit code %d, want 2", code)
	}
}
