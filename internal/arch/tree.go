// Package arch holds the repository to its layout. Its test reads the sources
// of every module of go.work and fails, with the reason and the remedy, when
// an import goes against the arrows, when a house rule is broken, or when
// docs/cases.md and the tests disagree.
//
// It only parses: it builds nothing, asks no network and takes well under a
// second. [Load] reads a tree, [Tree.Check] applies the rules of rules.go and
// house.go, [Tree.CheckCases] those of cases.go. A new package gets its line in
// the table of rules.go; why the arrows point as they do stands in
// docs/decisions/0001-modules-and-layout.md.
package arch

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Finding is one broken rule.
type Finding struct {
	Where   string // file:line, or a file, or a folder
	Problem string // what was found
	Why     string // what the rule protects
	Fix     string // what to do
}

// String gives the finding as a test prints it.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s\n    why: %s\n    fix: %s", f.Where, f.Problem, f.Why, f.Fix)
}

// Tree is the source of every module of a workspace.
type Tree struct {
	fsys     fs.FS
	fset     *token.FileSet
	root     string // module path of the folder of go.work
	packages []*pkg
	broken   []Finding // files that do not parse
}

// pkg is one folder of Go files, its tests included.
type pkg struct {
	path  string // import path
	dir   string // folder, slash separated, "." for the root
	files []*file
}

type file struct {
	name  string // path from the folder of go.work
	test  bool   // is a _test.go file
	lines int
	ast   *ast.File
}

// Load reads the go.work in the root of fsys and every Go file of its modules.
// Folders that the go command ignores are left out, and node_modules. A file
// that does not parse becomes a finding, a go.work or go.mod that can't be read
// an error.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{fsys: fsys, fset: token.NewFileSet()}
	modules, err := workspace(fsys)
	if err != nil {
		return nil, err
	}
	t.root = modules["."]
	if t.root == "" {
		return nil, fmt.Errorf("go.work does not use the module in its own folder: add a line `use .`")
	}
	byDir := map[string]*pkg{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && ignored(d.Name()) {
				return fs.SkipDir
			}
			// A module that go.work does not use is none of ours.
			if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil && modules[name] == "" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
			return nil
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir, path: importPath(modules, dir)}
		}
		return t.add(byDir[dir], name)
	})
	if err != nil {
		return nil, err
	}
	for _, p := range byDir {
		if len(p.files) > 0 {
			t.packages = append(t.packages, p)
		}
	}
	slices.SortFunc(t.packages, func(a, b *pkg) int { return cmp.Compare(a.dir, b.dir) })
	return t, nil
}

func (t *Tree) add(p *pkg, name string) error {
	src, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.broken = append(t.broken, Finding{Where: name, Problem: err.Error(), Why: "what does not parse can't be checked", Fix: "correct the syntax"})
		return nil
	}
	p.files = append(p.files, &file{
		name: name, test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(src, []byte("\n")), ast: parsed,
	})
	return nil
}

// where gives the place of a node as file:line.
func (t *Tree) where(n ast.Node) string {
	at := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}

// ignored reports whether a folder holds no packages of ours.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
		name == "testdata" || name == "vendor" || name == "node_modules"
}

// importPath finds the module that holds a folder: the nearest one above.
func importPath(modules map[string]string, dir string) string {
	for up, below := dir, ""; ; up = path.Dir(up) {
		if m := modules[up]; m != "" {
			return path.Join(m, below)
		}
		if up == "." {
			return dir
		}
		below = path.Join(path.Base(up), below)
	}
}

// workspace reads go.work: the folder of each module, with its module path.
func workspace(fsys fs.FS) (map[string]string, error) {
	work, err := fs.ReadFile(fsys, "go.work")
	if err != nil {
		return nil, err
	}
	modules := map[string]string{}
	for _, dir := range directive(work, "use") {
		dir = path.Clean(dir)
		mod, err := fs.ReadFile(fsys, path.Join(dir, "go.mod"))
		if err != nil {
			return nil, fmt.Errorf("go.work uses %s: %w", dir, err)
		}
		names := directive(mod, "module")
		if len(names) != 1 {
			return nil, fmt.Errorf("%s: no module line", path.Join(dir, "go.mod"))
		}
		modules[dir] = names[0]
	}
	return modules, nil
}

// directive returns the arguments of a directive of a go.mod or go.work file,
// of its single lines and of its blocks.
func directive(src []byte, name string) []string {
	var args []string
	inBlock := false
	for line := range strings.Lines(string(src)) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case inBlock && words[0] == ")":
			inBlock = false
		case inBlock:
			args = append(args, strings.Trim(words[0], `"`+"`"))
		case words[0] != name || len(words) < 2:
		case words[1] == "(":
			inBlock = true
		default:
			args = append(args, strings.Trim(words[1], `"`+"`"))
		}
	}
	return args
}
