package main

import (
	"bytes"
	"cmp"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateCodes = flag.Bool("update", false, "rewrite codes.txt")

// The program explains the codes by the examples that the tests of package policy
// hold, and by its own.
func TestCodesAreThoseOfTheTests(t *testing.T) {
	paths, err := filepath.Glob("../../policy/testdata/codes/*.txt")
	if err != nil || len(paths) < 60 {
		t.Fatalf("%d examples: %v", len(paths), err)
	}
	own, err := filepath.Glob("testdata/codes/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, own...)
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
	var b strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("== " + strings.TrimSuffix(filepath.Base(path), ".txt") + " ==\n" + string(text))
	}
	if *updateCodes {
		if err := os.WriteFile("codes.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if b.String() != codesText {
		t.Error("codes.txt is not what the examples say: go test ./cmd/weir -run TestCodes -update")
	}
	for _, e := range codeExamples() {
		if e.why == "" || len(e.files) == 0 {
			t.Errorf("%+v", e)
		}
	}
}

// The whole kind: of the example that `weir help CODE` prints, weir check says what
// is printed there, and that is one problem, of exactly that code.
func TestEveryExampleOfHelpYieldsItsCode(t *testing.T) {
	said := regexp.MustCompile(`\[(WEIR\d+)\]`)
	for _, e := range codeExamples() {
		found := said.FindAllStringSubmatch(e.said, -1)
		if len(found) != 1 || found[0][1] != e.code {
			t.Errorf("%s: the example shows %v", e.code, found)
		}
		if e.without != "" { // another program says it: see the tests of package policy
			continue
		}
		dir := t.TempDir()
		for _, f := range e.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f.name)), 0o755); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, f.name), f.text)
		}
		t.Chdir(dir)
		var out bytes.Buffer
		if code := run(t.Context(), []string{"check", "weir.yaml"}, &out, io.Discard); code > 1 {
			t.Errorf("%s: exit %d", e.code, code)
		}
		if got := strings.TrimSpace(out.String()); got != e.said {
			t.Errorf("%s: weir check says\n%s\nand weir help\n%s", e.code, got, e.said)
		}
	}
}
