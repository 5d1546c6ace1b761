package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The whole kind: whatever command a hint, an example or the README names, there
// is one, with the flags that it is named with.
func TestEveryCommandThatIsNamedExists(t *testing.T) {
	named := 0
	check := func(where, command string) {
		named++
		if wrong := notACommand(command); wrong != "" {
			t.Errorf("%s names %q: %s", where, command, wrong)
		}
	}
	quoted := regexp.MustCompile("`(weir [^`\n]*)`")
	files := gotoken.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git"):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			for _, e := range commandsOf(n) {
				for _, l := range literals(e) {
					for line := range strings.Lines(l) {
						if line = strings.TrimSpace(line); strings.HasPrefix(line, "weir ") {
							check(files.Position(e.Pos()).String(), line)
						}
					}
				}
			}
			if l, is := n.(*ast.BasicLit); is && l.Kind == gotoken.STRING {
				for _, m := range quoted.FindAllStringSubmatch(text(l), -1) {
					check(files.Position(l.Pos()).String(), m[1])
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		line = strings.ReplaceAll(line, "go run ./cmd/weir", "weir")
		if command, is := strings.CutPrefix(line, "    weir "); is {
			command, _, _ = strings.Cut(command, "  ")
			check("README.md", "weir "+command)
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			check("README.md", m[1])
		}
	}
	if named < 50 {
		t.Errorf("only %d commands were found: the test does not see what it should", named)
	}
	for _, wrong := range []string{"weir simulate", "weir store chek", "weir proxy --limt 10/s", "weir demo -x"} {
		if notACommand(wrong) == "" {
			t.Errorf("%q passes", wrong)
		}
	}
}

// commandsOf are the parts of a node that hold commands to type: what usage and
// errHint are told to try, and the examples of commands.
func commandsOf(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f, is := n.Fun.(*ast.Ident); is && f.Name == "usage" {
			return n.Args[:1]
		}
	case *ast.CompositeLit:
		if kind, is := n.Type.(*ast.Ident); is && kind.Name == "errHint" {
			return n.Elts[1:]
		}
	case *ast.KeyValueExpr:
		if key, is := n.Key.(*ast.Ident); is && key.Name == "Example" {
			return []ast.Expr{n.Value}
		}
	}
	return nil
}

// literals are the texts of an expression; what stands between them is a value.
func literals(e ast.Expr) (list []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == gotoken.STRING {
			list = append(list, text(l))
		}
		return true
	})
	return list
}

func text(l *ast.BasicLit) string {
	s, _ := strconv.Unquote(l.Value) // the parser has read it
	return s
}

// notACommand says what is wrong with a command line, as far as its commands and
// flags go.
func notACommand(line string) string {
	cmd := newRoot(io.Discard, io.Discard, nil)
	line = regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(line, "TEXT") // an argument, whatever it holds
	words := strings.Fields(line)[1:]
	for ; len(words) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(words[0], "-"); words = words[1:] {
		var next *cobra.Command
		for _, sub := range cmd.Commands() {
			if sub.Name() == words[0] {
				next = sub
			}
		}
		if next == nil && words[0] == "help" {
			return ""
		}
		if next == nil {
			return cmd.CommandPath() + " has no command " + words[0]
		}
		cmd = next
	}
	cmd.InitDefaultHelpFlag()
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		switch {
		case strings.HasPrefix(name, "--"):
			if cmd.Flag(name[2:]) == nil {
				return cmd.CommandPath() + " has no flag " + name
			}
		case strings.HasPrefix(name, "-") && len(name) == 2:
			if cmd.Flags().ShorthandLookup(name[1:]) == nil && cmd.InheritedFlags().ShorthandLookup(name[1:]) == nil {
				return cmd.CommandPath() + " has no flag " + name
			}
		}
	}
	return ""
}
