package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// maxLines is how long a file may be that is not a test: what is longer holds
// more than one idea.
const maxLines = 500

// vague are package names that say nothing about what is inside.
var vague = []string{"util", "utils", "common", "helper", "helpers", "misc"}

func (t *Tree) checkHouse(p *pkg) []Finding {
	var found []Finding
	name := strings.TrimSuffix(p.files[0].ast.Name.Name, "_test")
	if slices.Contains(vague, name) {
		found = append(found, Finding{
			Where: p.dir, Problem: fmt.Sprintf("the package is named %s", name),
			Why: "a name that fits everything collects everything",
			Fix: "name the package after the one idea it holds, or move its parts to where they are used",
		})
	}
	found = append(found, packageComment(p)...)
	timed := testingNames(p)
	for _, f := range p.files {
		if !f.test && f.lines > maxLines {
			found = append(found, Finding{
				Where: f.name, Problem: fmt.Sprintf("%d lines, more than %d", f.lines, maxLines),
				Why: "a file that long holds more than one idea, and nobody reads it to the end",
				Fix: "split it by idea into files of the same package",
			})
		}
		found = append(found, t.checkCode(f, timed)...)
	}
	return found
}

// packageComment wants one comment per package: in a file that is no test,
// unless the package is all tests.
func packageComment(p *pkg) []Finding {
	onlyTests := !slices.ContainsFunc(p.files, func(f *file) bool { return !f.test })
	var with []string
	for _, f := range p.files {
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" && (onlyTests || !f.test) {
			with = append(with, f.name)
		}
	}
	switch len(with) {
	case 1:
		return nil
	case 0:
		return []Finding{{
			Where: p.dir, Problem: "the package has no package comment",
			Why: "it is the first thing that a reader sees: what the package is for and how its parts fit",
			Fix: fmt.Sprintf("write one directly above the package line of one file: // Package %s ...", p.files[0].ast.Name.Name),
		}}
	}
	return []Finding{{
		Where: with[1], Problem: "a second package comment, beside that in " + with[0],
		Why: "go doc joins them in the order of the file names, which is nobody's text",
		Fix: "keep one; put an empty line between the other and its package line",
	}}
}

// checkCode looks into one file for what the house does not do.
func (t *Tree) checkCode(f *file, timed map[string]bool) []Finding {
	var found []Finding
	imports := importNames(f)
	isTest := f.test || imports["testing"] != ""
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				found = append(found, Finding{
					Where: t.where(n), Problem: "func init()",
					Why: "an import must do nothing: registration in init hides who knows whom, and can't fail in a way a caller sees",
					Fix: "write a constructor, and call it where the thing is used",
				})
			}
		case *ast.SelectorExpr:
			on := lastName(n.X)
			switch {
			case isTest && n.Sel.Name == "Sleep" && on != "" && on == imports["time"]:
				found = append(found, Finding{
					Where: t.where(n), Problem: "time.Sleep in a test",
					Why: "a test that waits for a span of time is slow on a fast machine and wrong on a slow one",
					Fix: "wait for the event itself (a channel, a poll of the condition), inject the clock, or run in a testing/synctest bubble, where <-time.After(d) costs nothing",
				})
			case timed[on] && (n.Sel.Name == "Skip" || n.Sel.Name == "Skipf" || n.Sel.Name == "SkipNow"):
				found = append(found, Finding{
					Where: t.where(n), Problem: on + "." + n.Sel.Name,
					Why: "a skipped test guards nothing, and nobody notices",
					Fix: "start what the test needs in the test, or fail and say what to install",
				})
			}
		}
		return true
	})
	return found
}

// importNames gives the name under which a file knows each package it imports.
func importNames(f *file) map[string]string {
	names := map[string]string{}
	for _, spec := range f.ast.Imports {
		target := strings.Trim(spec.Path.Value, "\"`")
		name := target[strings.LastIndex(target, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[target] = name
	}
	return names
}

// testingNames collects the names that a package gives to a *testing.T, B or F
// or a testing.TB: parameters, variables and struct fields.
func testingNames(p *pkg) map[string]bool {
	names := map[string]bool{}
	for _, f := range p.files {
		pkgName := importNames(f)["testing"]
		if pkgName == "" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if isTesting(n.Type, pkgName) {
					for _, id := range n.Names {
						names[id.Name] = true
					}
					if len(n.Names) == 0 { // embedded
						names[lastName(n.Type)] = true
					}
				}
			case *ast.ValueSpec:
				if isTesting(n.Type, pkgName) {
					for _, id := range n.Names {
						names[id.Name] = true
					}
				}
			}
			return true
		})
	}
	delete(names, "")
	return names
}

func isTesting(typ ast.Expr, pkgName string) bool {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	sel, ok := typ.(*ast.SelectorExpr)
	return ok && lastName(sel.X) == pkgName && slices.Contains([]string{"T", "B", "F", "TB"}, sel.Sel.Name)
}

// lastName is the last identifier of x, x.y or *x, and "" of anything else.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return lastName(e.X)
	}
	return ""
}
