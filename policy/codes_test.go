package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every file of testdata/codes has one mistake, of the code that the file is named
// after; and every code has such a file, which `weir help CODE` shows.
func TestEveryCodeHasAnExample(t *testing.T) {
	paths, err := filepath.Glob("testdata/codes/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Glob("../cmd/weir/testdata/codes/*.txt") // of what the program adds: files and stores
	if err != nil || len(program) == 0 {
		t.Fatalf("no examples of the program: %v", err)
	}
	paths = append(paths, program...)
	shown := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, files := archive(string(text))
		code, _, _ := strings.Cut(filepath.Base(path), "-")
		shown[strings.TrimPrefix(code, "WEIR")] = true
		if n := strings.Count(files["want"], "[WEIR"); n != 1 || !strings.Contains(files["want"], "["+code+"]") {
			t.Errorf("%s shows %d problems, want one of %s:\n%s", path, n, code, files["want"])
		}
		if strings.TrimSpace(files["why"]) == "" {
			t.Errorf("%s does not say why", path)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		name, number := v.Names[0].Name, v.Values[0].(*ast.BasicLit).Value
		if other := taken[number]; other != "" {
			t.Errorf("%s and %s have one code", name, other)
		}
		if taken[number] = name; !shown[number] {
			t.Errorf("no file of testdata/codes shows WEIR%s, %s", number, name)
		}
		return true
	})
	if len(taken) < 80 {
		t.Errorf("only %d codes were read", len(taken))
	}
}
