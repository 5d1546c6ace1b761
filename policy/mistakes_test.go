package policy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "rewrite what testdata/mistakes expects")

// archive splits a text file into its sections: "-- name --" begins one.
func archive(text string) (names []string, files map[string]string) {
	files = map[string]string{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok && strings.HasSuffix(name, " --") {
			name = strings.TrimSuffix(name, " --")
			names = append(names, name)
			files[name] = ""
			continue
		}
		if len(names) > 0 {
			files[names[len(names)-1]] += line
		}
	}
	return names, files
}

// rendered is what Load says of a policy: its errors, or its warnings.
func rendered(files map[string]string) string {
	fsys := fstest.MapFS{}
	for name, text := range files {
		if name != "want" && name != "why" && name != "without" {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	o := Options{Expressions: Expressions}
	if files["without"] != "" {
		o.Expressions = nil
	}
	p, err := Load(fsys, "weir.yaml", o)
	var ps Problems
	switch {
	case errors.As(err, &ps):
	case err != nil:
		return "not Problems: " + err.Error()
	default:
		ps = p.Warnings()
	}
	if len(ps) == 0 {
		return "ok\n"
	}
	return ps.Error() + "\n"
}

// TestMistakes compares every message with testdata/mistakes/*.txt. After a
// change of messages: go test ./policy -run TestMistakes -update, and read the
// difference.
func TestMistakes(t *testing.T) {
	paths, err := filepath.Glob("testdata/mistakes/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases in testdata/mistakes: %v", err)
	}
	single, err := filepath.Glob("testdata/codes/*.txt")
	if err != nil || len(single) < 60 {
		t.Fatalf("%d files in testdata/codes: %v", len(single), err)
	}
	for _, path := range append(paths, single...) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			names, files := archive(string(text))
			got := rendered(files)
			if *update {
				var b strings.Builder
				for _, n := range names {
					if n != "want" {
						b.WriteString("-- " + n + " --\n" + files[n])
					}
				}
				b.WriteString("-- want --\n" + got)
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := files["want"]; got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
