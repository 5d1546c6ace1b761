package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// casesFile lists every public bug report of other rate limiters that was
// looked at, and what became of it here.
const casesFile = "docs/cases.md"

const whyCases = "the table tells a reader which known faults are guarded against, so it must say the truth"

var (
	caseRow  = regexp.MustCompile(`^\| *(B\d{3}) *\|`)
	caseTest = regexp.MustCompile(`^TestCase((?:_B\d{3})+)(?:_\w+)?$`)
	caseName = regexp.MustCompile("`(TestCase_[^`]*)`")
)

// CheckCases compares the table of docs/cases.md with the tests of the tree:
// every row names a test that exists, or says "later:" or "not applicable:"
// with a reason, and every case test of the tree stands in the table. A row may
// name a test by its number alone, TestCase_B028, whatever its further name.
func (t *Tree) CheckCases() ([]Finding, error) {
	text, err := fs.ReadFile(t.fsys, casesFile)
	if err != nil {
		return nil, err
	}
	tests := t.caseTests()
	var found []Finding
	report := func(where, problem, fix string) {
		found = append(found, Finding{Where: where, Problem: problem, Why: whyCases, Fix: fix})
	}

	named := map[string]bool{} // tests that a row of their number names
	seen := map[string]bool{}
	line := 0
	for text := range strings.Lines(string(text)) {
		line++
		m := caseRow.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		where := fmt.Sprintf("%s:%d", casesFile, line)
		number := m[1]
		if seen[number] {
			report(where, number+" stands in the table twice", "keep one row")
		}
		seen[number] = true
		cells := strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		if len(cells) != 4 {
			report(where, fmt.Sprintf("%d columns, not 4", len(cells)), "write: | number | fault | kind | test, later: or not applicable: |")
			continue
		}
		state := strings.TrimSpace(cells[3])
		names := caseName.FindAllStringSubmatch(state, -1)
		later, isLater := strings.CutPrefix(state, "later:")
		reason, isNot := strings.CutPrefix(state, "not applicable:")
		switch {
		case isLater && strings.TrimSpace(later) != "", isNot && strings.TrimSpace(reason) != "":
		case len(names) == 0:
			report(where, number+" names no test and gives no reason", "name the test as `TestCase_"+number+"`, or write later: WHICH PART, or not applicable: REASON")
		}
		for _, n := range names {
			hits := matching(tests, n[1])
			if len(hits) == 0 {
				report(where, "no test "+n[1]+" in the tree", "write the test, correct its name, or write later: WHICH PART")
			}
			for _, h := range hits {
				named[h+" "+number] = true
			}
		}
	}
	if len(seen) == 0 {
		report(casesFile, "no row", "write rows like: | B028 | fault | clock | `TestCase_B028` |")
	}

	for _, name := range slices.Sorted(maps.Keys(tests)) {
		m := caseTest.FindStringSubmatch(name)
		if m == nil {
			report(tests[name], name+" carries no case number", "name it TestCase_Bnnn_WhatIsRight")
			continue
		}
		for _, number := range strings.Split(m[1], "_")[1:] {
			if !named[name+" "+number] {
				report(tests[name], fmt.Sprintf("%s is not in the row of %s", name, number), "write `TestCase_"+number+"` in that row of "+casesFile)
			}
		}
	}
	return found, nil
}

// caseTests finds the case tests of the tree: functions of test files, and
// subtests that carry such a name as a string, in a table or a call.
func (t *Tree) caseTests() map[string]string {
	tests := map[string]string{}
	self := t.root + "/internal/arch"
	for _, p := range t.packages {
		if p.path == self {
			continue // its own tests speak of cases that do not exist
		}
		for _, f := range p.files {
			if !f.test && importNames(f)["testing"] == "" {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if f.test && n.Recv == nil && strings.HasPrefix(n.Name.Name, "TestCase_") {
						tests[n.Name.Name] = t.where(n)
					}
				case *ast.BasicLit:
					if n.Kind != token.STRING {
						break
					}
					if s, err := strconv.Unquote(n.Value); err == nil && caseTest.MatchString(s) {
						tests[s] = t.where(n)
					}
				}
				return true
			})
		}
	}
	return tests
}

// matching finds the tests that a name in the table stands for: that very name,
// or, for a name of numbers alone, every test that carries the number.
func matching(tests map[string]string, name string) []string {
	if _, ok := tests[name]; ok {
		return []string{name}
	}
	var hits []string
	number, bare := strings.CutPrefix(name, "TestCase_")
	if bare = bare && len(number) == len("B000"); !bare {
		return nil
	}
	for have := range tests {
		if m := caseTest.FindStringSubmatch(have); m != nil && slices.Contains(strings.Split(m[1], "_"), number) {
			hits = append(hits, have)
		}
	}
	return hits
}
