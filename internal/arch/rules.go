package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// layer says what a package, and everything below it, may import from this
// repository in its non-test files. Tests may import more: a store's tests run
// the conformance suite, an edge's tests run on a store.
type layer struct {
	of      string   // folder
	may     []string // folders; "." is package weir, a final /... takes all below too
	stdOnly bool     // nothing from other modules either, but for the packages in may
	why     string
	fix     string
}

const (
	whyCore  = "the core is what every importer of weir inherits, so it depends on nothing but the standard library"
	fixCore  = "move what needs the dependency to a store, an edge or a package of its own, and hand it to the core as a value or an interface"
	whyStore = "a store knows no algorithm, no policy and no other store: it applies guarded writes"
	fixStore = "speak to the limiter through the types of package weir; what several stores share belongs into package weir or internal/plan"
	whyEdge  = "an edge translates one protocol; it knows the policy at work, never a store or the program"
	fixEdge  = "take what is needed as an option of the edge, or move what edges share into engine or policy"
)

// edgeMay holds engine with what is below it, where the answers of every edge
// are written.
var edgeMay = []string{".", "policy", "engine/...", "internal/recent"}

var layers = []layer{
	{".", []string{"internal/plan", "internal/pipeline"}, true, whyCore, fixCore},
	{"internal/plan", nil, true, "the algorithms are pure code that the core aliases: " + whyCore, fixCore},
	{"internal/pipeline", []string{"internal/plan"}, true, "the pipeline stands between plan and the core: " + whyCore, fixCore},

	{"internal/table", []string{"internal/plan"}, true, "the table holds what stores of this process share, and knows nothing of them", fixStore},
	{"memstore", []string{".", "internal/plan", "internal/table"}, false, whyStore, fixStore},
	{"dynamostore", []string{".", "internal/plan"}, false, whyStore, fixStore},
	{"redisstore", []string{".", "internal/plan"}, false, whyStore, fixStore},
	{"boltstore", []string{".", "internal/plan", "internal/table"}, false, whyStore, fixStore},

	{"internal/recent", nil, true, "a table knows nothing of what it holds", "hand it the key and its hash"},
	{"policy", []string{".", "internal/plan", "internal/recent"}, false,
		"a policy is pure: a document and the attributes of a request in, operations out",
		"hand what is needed to the policy as an interface or an fs.FS; what runs belongs into engine"},
	{"engine", []string{".", "policy", "memstore", "internal/..."}, false,
		"the engine is a policy at work on any store: it opens none and knows no protocol",
		"take the store as a weir.Store; what speaks HTTP, gRPC or Lambda belongs into an edge"},

	{"httplimit", edgeMay, false, whyEdge, fixEdge},
	{"lambdalimit", edgeMay, false, whyEdge, fixEdge},
	{"grpclimit", edgeMay, false, whyEdge, fixEdge},

	{"httpretry", []string{"github.com/dunglas/httpsfv"}, true,
		"a client of any limited service takes httpretry, and must not inherit a limiter with it",
		"read what the answer says, in its standard fields"},
}

const program = "cmd/weir"

// Check applies every rule about imports and every house rule, and returns the
// findings in the order of the tree.
func (t *Tree) Check() []Finding {
	found := slices.Clone(t.broken)
	for _, p := range t.packages {
		found = append(found, t.checkImports(p)...)
		found = append(found, t.checkHouse(p)...)
	}
	return found
}

func (t *Tree) checkImports(p *pkg) []Finding {
	l := layerOf(p.dir)
	var found []Finding
	for _, f := range p.files {
		for _, spec := range f.ast.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the parser has refused it already
			}
			dir, ours := t.folder(target)
			switch {
			case ours && within(dir, program) && !within(p.dir, program):
				found = append(found, t.badImport(spec, p, target,
					"the program sits on top: whatever imports it would drag a server's dependencies along",
					"move what is shared out of "+program+" into a package of the library"))
			case l == nil || f.test:
			case ours && !within(dir, l.of) && !l.allows(dir), !ours && l.stdOnly && !standard(target) && !l.allows(target):
				found = append(found, t.badImport(spec, p, target, l.why, l.fix+". "+l.allowed()))
			}
		}
	}
	return found
}

func (t *Tree) badImport(at ast.Node, p *pkg, target, why, fix string) Finding {
	return Finding{
		Where: t.where(at), Problem: fmt.Sprintf("%s imports %s", p.path, target), Why: why, Fix: fix,
	}
}

// folder gives the folder of an import path of this repository.
func (t *Tree) folder(importPath string) (dir string, ours bool) {
	if importPath == t.root {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.root+"/")
}

// layerOf finds the line of the table for a folder. The root's line is for the
// root package alone.
func layerOf(dir string) *layer {
	for i := range layers {
		if l := &layers[i]; dir == l.of || l.of != "." && within(dir, l.of) {
			return l
		}
	}
	return nil
}

func (l *layer) allows(dir string) bool {
	return slices.ContainsFunc(l.may, func(may string) bool {
		if tree, ok := strings.CutSuffix(may, "/..."); ok {
			return within(dir, tree)
		}
		return dir == may
	})
}

// allowed says in words what the layer may import.
func (l *layer) allowed() string {
	var names []string
	if l.stdOnly {
		names = append(names, "the standard library")
	} else {
		names = append(names, "other modules")
	}
	for _, m := range l.may {
		if m == "." {
			m = "weir"
		}
		names = append(names, m)
	}
	return "Allowed in " + cmp.Or(strings.TrimPrefix(l.of, "."), "weir") + ": " + strings.Join(names, ", ")
}

// within reports whether a folder is another one or lies below it. Nothing but
// the root itself is within the root: its subfolders are packages of their own.
func within(dir, of string) bool {
	return path.Clean(dir) == of || strings.HasPrefix(dir, of+"/")
}

// standard reports whether an import path is of the standard library: only
// there has the first element no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
