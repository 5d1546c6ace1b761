package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail, which have no Package
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// pkg is what is known of a package while it runs.
type pkg struct {
	running map[string][]string // output of the tests that have not ended
	own     []string            // output that belongs to no test
	ran     int                 // tests that ended
	failed  int
}

// report reads events and keeps the score.
type report struct {
	out                     io.Writer
	pkgs                    map[string]*pkg
	passed, failed, skipped int
	complaints              []string // shown again at the end, where they are seen
}

func newReport(out io.Writer) *report {
	return &report{out: out, pkgs: map[string]*pkg{}}
}

// read takes events until the input ends. A line that is no event, which go
// test never prints with -json, is passed on, so that nothing is lost.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				fmt.Fprintf(r.out, "%s", line)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *report) take(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
		return
	}
	if e.Package == "" {
		return // build-fail: the package that needed it fails too, and is counted
	}
	p := r.pkgs[e.Package]
	if p == nil {
		p = &pkg{running: map[string][]string{}}
		r.pkgs[e.Package] = p
	}
	if e.Test == "" {
		r.takePackage(p, e)
		return
	}
	switch e.Action {
	case "run":
		p.running[e.Test] = nil
	case "output":
		p.running[e.Test] = append(p.running[e.Test], e.Output)
	case "pass":
		r.passed++
		p.ran++
		delete(p.running, e.Test)
	case "fail":
		r.failed++
		p.ran++
		p.failed++
		r.test("FAIL", e.Package+"."+e.Test, p.running[e.Test])
		delete(p.running, e.Test)
	case "skip":
		r.skipped++
		p.ran++
		r.test("SKIP", e.Package+"."+e.Test, p.running[e.Test])
		delete(p.running, e.Test)
	}
}

func (r *report) takePackage(p *pkg, e event) {
	switch e.Action {
	case "output":
		p.own = append(p.own, e.Output)
	case "pass":
		switch {
		case p.ran > 0:
			fmt.Fprintf(r.out, "ok    %-52s %6d tests %8.2fs%s\n", e.Package, p.ran, e.Elapsed, coverage(p.own))
		case !tested(p.own):
			fmt.Fprintf(r.out, "      %-52s without tests%s\n", e.Package, coverage(p.own))
		default:
			r.failed++
			r.complain("%s has test files and ran no test: is every test behind a build tag or a -run pattern?", e.Package)
		}
	case "fail":
		for _, name := range sortedKeys(p.running) {
			r.test("FAIL", e.Package+"."+name+" (did not end)", p.running[name])
		}
		if p.failed == 0 { // a build, a time-out, a race after the tests, os.Exit
			r.failed++
			what := "failed outside its tests"
			if e.FailedBuild != "" {
				what = "does not build"
			}
			r.complain("%s %s", e.Package, what)
		}
		r.show("FAIL", e.Package, p.own)
	}
	if e.Action != "output" {
		delete(r.pkgs, e.Package)
	}
}

// test shows a test that went wrong, and notes its name for the end.
func (r *report) test(verdict, name string, output []string) {
	r.show(verdict, name, output)
	r.complaints = append(r.complaints, verdict+"  "+name)
}

// show prints the output of something that went wrong.
func (r *report) show(verdict, name string, output []string) {
	fmt.Fprintf(r.out, "%s  %s\n", verdict, name)
	for _, line := range output {
		fmt.Fprintf(r.out, "    %s", line)
		if !strings.HasSuffix(line, "\n") {
			fmt.Fprintln(r.out)
		}
	}
}

func (r *report) complain(format string, args ...any) {
	line := "FAIL  " + fmt.Sprintf(format, args...)
	fmt.Fprintln(r.out, line)
	r.complaints = append(r.complaints, line)
}

// finish prints the summary and reports whether the run was good. commandErr
// is how the command ended.
func (r *report) finish(took time.Duration, commandErr error) bool {
	for _, name := range sortedKeys(r.pkgs) {
		r.failed++
		r.complain("%s began and never ended", name)
	}
	if r.passed+r.failed+r.skipped == 0 {
		r.complain("no test ran")
	}
	if commandErr != nil && r.failed == 0 {
		r.failed++
		r.complain("the test command ended with %v, although no test failed", commandErr)
	}
	good := len(r.complaints) == 0 && r.failed == 0 && r.skipped == 0
	if !good {
		fmt.Fprintf(r.out, "\nWhat went wrong:\n")
		for _, c := range r.complaints {
			fmt.Fprintf(r.out, "  %s\n", c)
		}
		if r.skipped > 0 {
			fmt.Fprintln(r.out, "A skipped test counts as a failure: start what it needs in the test, or remove it.")
		}
	}
	fmt.Fprintf(r.out, "\ntotal time %s\n%d passed, %d failed, %d skipped\n",
		took.Round(100*time.Millisecond), r.passed, r.failed, r.skipped)
	return good
}

// tested reports whether go test ran a test program for a package. With
// -coverprofile, packages without test files pass too.
func tested(lines []string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "ok") })
}

// coverage finds what go test -cover printed about a package, or "".
func coverage(lines []string) string {
	for _, line := range lines {
		if _, share, ok := strings.Cut(line, "coverage: "); ok {
			return "  covered " + strings.TrimSpace(share)
		}
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
