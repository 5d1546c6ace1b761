package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var updateCodes = flag.Bool("update", false, "rewrite codes.txt")

// The program explains the codes by the examples that the tests of package policy
// hold.
func TestCodesAreThoseOfTheTests(t *testing.T) {
	paths, err := filepath.Glob("../../policy/testdata/codes/*.txt")
	if err != nil || len(paths) < 60 {
		t.Fatalf("%d examples: %v", len(paths), err)
	}
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
		t.Error("codes.txt is not what policy/testdata/codes says: go test ./cmd/weir -run TestCodes -update")
	}
	for _, e := range explainedCodes() {
		if e.why == "" || e.policy == "" || !strings.Contains(e.said, "["+e.code+"]") {
			t.Errorf("%+v", e)
		}
	}
}
