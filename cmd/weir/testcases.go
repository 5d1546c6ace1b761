package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/cases"
)

func newTest(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE...",
		Short: "Test a policy: requests at virtual time, and what must come of them",
		Long: `Run files of test cases: requests, when they are sent and by whom, and what must
come of them. Time is virtual and nothing is counted anywhere, but the code that
decides is that of the proxy. The cases of one file share one stretch of time and
one set of counters.

The policy is that of -c, else what policy: in the file names, else weir.yaml.
docs/testing-a-policy.md shows all that a case can say.
` + fmt.Sprintf(exitHelp, "a case failed"),
		Example: `  weir test examples/little-stage/cases.yaml
  weir test -c weir.yaml cases/*.yaml --format junit -o junit.xml`,
		Annotations: map[string]string{formatsKey: "text,json,junit"},
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return usage("weir test examples/little-stage/cases.yaml", "no file of cases is named")
			}
			return runTest(cmd, c, files)
		},
	}
}

// tested is one file with what came of it.
type tested struct {
	file    string
	policy  string
	results []cases.Result
	took    time.Duration
}

func runTest(cmd *cobra.Command, c *common, files []string) error {
	var all []tested
	failed, run := 0, 0
	for _, file := range files {
		began := time.Now()
		t, err := testFile(cmd.Context(), c, file, cmd.Flags().Changed("config"))
		if err != nil {
			return err
		}
		t.took = time.Since(began)
		for i := range t.results {
			run++
			if !t.results[i].OK() {
				failed++
			}
		}
		all = append(all, t)
	}
	var err error
	switch c.format {
	case "json":
		err = writeJSON(c.stdout, testReportOf(all, run, failed))
	case "junit":
		err = writeJUnit(c.stdout, all, run, failed)
	default:
		err = writeTested(c, all, run, failed)
	}
	if err == nil && failed > 0 {
		return errNo{fmt.Errorf("%d of %s failed", failed, plural(run, "case")), c.format == "text"}
	}
	return err
}

func testFile(ctx context.Context, c *common, file string, chosen bool) (t tested, err error) {
	t = tested{file: file, policy: c.config}
	f, err := os.Open(file)
	if err != nil {
		return t, fmt.Errorf("the cases cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, cases.MaxFile+1))
	if err != nil {
		return t, fmt.Errorf("the cases cannot be read: %w", err)
	}
	if len(text) > cases.MaxFile {
		return t, usage("weir test "+shellWord(file), "%s is larger than %d bytes; make several files of it", file, cases.MaxFile)
	}
	list, err := cases.Parse(file, text)
	if err != nil {
		return t, usage("weir test examples/little-stage/cases.yaml", "%w", err)
	}
	if list.Policy != "" && !chosen {
		t.policy = list.Policy
		if !filepath.IsAbs(t.policy) {
			t.policy = filepath.Join(filepath.Dir(file), filepath.FromSlash(t.policy))
		}
	}
	if _, err := os.Stat(t.policy); errors.Is(err, fs.ErrNotExist) {
		return t, usage("weir test "+shellWord(file)+" -c examples/little-stage/weir.yaml", "there is no policy file %s for %s", t.policy, file)
	}
	p, err := c.loadPolicy(t.policy)
	if err != nil {
		return t, err
	}
	if t.results, err = cases.Run(ctx, p, list); err != nil {
		return t, usage("weir test "+shellWord(file), "%s: %w", file, err)
	}
	return t, nil
}

func writeTested(c *common, all []tested, run, failed int) error {
	w := &failing{to: c.stdout}
	for i := range all {
		t := &all[i]
		w.line("%s, policy %s", t.file, t.policy)
		for j := range t.results {
			r := &t.results[j]
			if r.OK() {
				w.line("  %s %s", c.paint(green, "ok  "), r.Name)
				if c.verbose {
					writeTimeline(w, r)
				}
				continue
			}
			w.line("  %s %s (%s:%d)", c.paint(red, "FAIL"), r.Name, t.file, r.Line)
			for _, d := range r.Differs {
				w.line("         %s", d)
			}
			writeTimeline(w, r)
		}
	}
	if w.err == nil {
		c.say("weir: %s, %d failed", plural(run, "case"), failed)
	}
	return w.err
}

// maxTimeline bounds the lines that a case shows of its calls.
const maxTimeline = 40

func writeTimeline(w *failing, r *cases.Result) {
	lines := r.Timeline()
	for i, line := range lines {
		if i == maxTimeline {
			w.line("           and %d more lines", len(lines)-i)
			return
		}
		w.line("           %s", line)
	}
}

// testReport is the JSON of test.
type testReport struct {
	SchemaVersion int        `json:"schema_version"`
	Cases         []testCase `json:"cases"`
	Passed        int        `json:"passed"`
	Failed        int        `json:"failed"`
}

type testCase struct {
	File     string     `json:"file"`
	Line     int        `json:"line"`
	Policy   string     `json:"policy"`
	Name     string     `json:"name"`
	OK       bool       `json:"ok"`
	Allowed  int        `json:"allowed"`
	Denied   int        `json:"denied"`
	Differs  []string   `json:"differs"`
	Timeline []testStep `json:"timeline"` // of a case that failed
}

type testStep struct {
	At         float64 `json:"at"` // seconds since the start
	Status     int     `json:"status"`
	Exempt     string  `json:"exempt"`
	Limit      string  `json:"limit"`
	Remaining  int64   `json:"remaining"`
	RetryAfter int64   `json:"retry_after_seconds"`
}

func testReportOf(all []tested, run, failed int) *testReport {
	rep := &testReport{SchemaVersion: 1, Cases: []testCase{}, Passed: run - failed, Failed: failed}
	for i := range all {
		t := &all[i]
		for j := range t.results {
			r := &t.results[j]
			one := testCase{t.file, r.Line, t.policy, r.Name, r.OK(), r.Allowed, r.Denied, append([]string{}, r.Differs...), []testStep{}}
			if !r.OK() {
				for k := range r.Steps {
					s := &r.Steps[k]
					one.Timeline = append(one.Timeline, testStep{s.At.Seconds(), s.Status, s.Exempt, s.Limit, s.Remaining, s.RetryAfter})
				}
			}
			rep.Cases = append(rep.Cases, one)
		}
	}
	return rep
}

// JUnit's form, as far as every reader of it agrees.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func writeJUnit(to io.Writer, all []tested, run, failed int) error {
	doc := junitSuites{Tests: run, Failures: failed}
	for i := range all {
		t := &all[i]
		s := junitSuite{Name: t.file, Tests: len(t.results), Time: fmt.Sprintf("%.3f", t.took.Seconds())}
		for j := range t.results {
			r := &t.results[j]
			one := junitCase{Class: t.policy, Name: r.Name, File: t.file, Line: r.Line}
			if !r.OK() {
				s.Failures++
				one.Failure = &junitFailure{strings.Join(r.Differs, "; "), strings.Join(append(append([]string{}, r.Differs...), r.Timeline()...), "\n")}
			}
			s.Cases = append(s.Cases, one)
		}
		doc.Suites = append(doc.Suites, s)
	}
	if _, err := io.WriteString(to, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(to)
	e.Indent("", "  ")
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(to, "\n")
	return err
}
