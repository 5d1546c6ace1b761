package arch

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRepository holds this very repository to the rules.
func TestRepository(t *testing.T) {
	for _, f := range loaded(t, os.DirFS("../..")).Check() {
		t.Error(f)
	}
}

// TestCasesTable holds docs/cases.md to what the tests really do.
func TestCasesTable(t *testing.T) {
	found, err := loaded(t, os.DirFS("../..")).CheckCases()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// sound is a small workspace in which nothing is wrong. It uses what the rules
// allow, so that a rule which forbids too much fails here.
var sound = map[string]string{
	"go.work":         "go 1.26.0\n\nuse (\n\t.\n\t./cmd/weir // the program\n)\n",
	"go.mod":          "module example.com/weir\n\ngo 1.26.0\n",
	"cmd/weir/go.mod": "module example.com/weir/cmd/weir\n\ngo 1.26.0\n\nrequire example.com/weir v0.0.0\n",

	"weir.go":      "// Package weir limits.\npackage weir\n\nimport (\n\t_ \"context\"\n\t_ \"example.com/weir/internal/plan\"\n\t_ \"example.com/weir/internal/pipeline\"\n)\n",
	"weir_test.go": "package weir_test\n\nimport (\n\t\"testing\"\n\t_ \"example.com/weir/memstore\"\n\t_ \"pgregory.net/rapid\"\n)\n\nfunc TestX(t *testing.T) {}\n",

	"internal/plan/plan.go":          "// Package plan plans.\npackage plan\n\nimport _ \"math/bits\"\n",
	"internal/pipeline/pipeline.go":  "// Package pipeline pipes.\npackage pipeline\n\nimport _ \"example.com/weir/internal/plan\"\n",
	"memstore/memstore.go":           "// Package memstore keeps.\npackage memstore\n\nimport (\n\t_ \"example.com/weir\"\n\t_ \"example.com/weir/internal/plan\"\n)\n",
	"dynamostore/dynamo.go":          "// Package dynamostore keeps.\npackage dynamostore\n\nimport (\n\t_ \"example.com/weir\"\n\t_ \"example.com/weir/dynamostore/internal/expr\"\n\t_ \"github.com/aws/aws-sdk-go-v2/service/dynamodb\"\n)\n",
	"dynamostore/dynamo_test.go":     "package dynamostore\n\nimport _ \"example.com/weir/storetest\"\n",
	"dynamostore/internal/expr/e.go": "// Package expr writes expressions.\npackage expr\n",
	"storetest/suite.go":             "// Package storetest tests.\npackage storetest\n\nimport (\n\t\"testing\"\n\t_ \"example.com/weir\"\n)\n\n// Run runs.\nfunc Run(t *testing.T) { t.Helper() }\n",
	"policy/policy.go":               "// Package policy reads.\npackage policy\n\nimport (\n\t_ \"example.com/weir\"\n\t_ \"github.com/goccy/go-yaml\"\n)\n",
	"engine/engine.go":               "// Package engine runs.\npackage engine\n\nimport (\n\t_ \"example.com/weir\"\n\t_ \"example.com/weir/internal/anything\"\n\t_ \"example.com/weir/memstore\"\n\t_ \"example.com/weir/policy\"\n)\n",
	"httplimit/http.go":              "// Package httplimit limits.\npackage httplimit\n\nimport (\n\t_ \"example.com/weir/engine\"\n\t_ \"net/http\"\n)\n",
	"httpretry/retry.go":             "// Package httpretry waits.\npackage httpretry\n\nimport (\n\t_ \"github.com/dunglas/httpsfv\"\n\t_ \"net/http\"\n)\n",
	"httpretry/retry_test.go":        "package httpretry\n\nimport _ \"example.com/weir/httplimit\"\n",
	"lambdalimit/lambda.go":          "// Package lambdalimit limits.\npackage lambdalimit\n\nimport _ \"example.com/weir/engine/answer\"\n",
	"cmd/weir/main.go":               "// Command weir runs.\npackage main\n\nimport (\n\t_ \"example.com/weir/cmd/weir/internal/proxy\"\n\t_ \"example.com/weir/dynamostore\"\n)\n\nfunc main() {}\n",
	"cmd/weir/internal/proxy/p.go":   "// Package proxy forwards.\npackage proxy\n\nimport \"time\"\n\n// Pause pauses; this is no test.\nfunc Pause() { time.Sleep(1) }\n",

	// Nobody's packages.
	"policy/testdata/broken.go":              "package (",
	"internal/dynalite/node_modules/x/go.go": "package helpers",
	"scratch/go.mod":                         "module example.com/scratch\n",
	"scratch/s.go":                           "package utils",
}

func loaded(t *testing.T, fsys fs.FS) *Tree {
	t.Helper()
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// changed is the sound workspace with some files replaced or added.
func changed(with map[string]string) fstest.MapFS {
	files := maps.Clone(sound)
	maps.Copy(files, with)
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestSoundTree(t *testing.T) {
	tree := loaded(t, changed(nil))
	for _, f := range tree.Check() {
		t.Error(f)
	}
	paths := map[string]bool{}
	for _, p := range tree.packages {
		paths[p.path] = true
	}
	for _, want := range []string{"example.com/weir", "example.com/weir/dynamostore/internal/expr", "example.com/weir/cmd/weir/internal/proxy"} {
		if !paths[want] {
			t.Errorf("package %s was not read; read: %v", want, paths)
		}
	}
	if paths["example.com/scratch"] || paths["example.com/weir/scratch"] {
		t.Error("a module that go.work does not use was read")
	}
}

// Every rule fails on a tree that breaks it, at the right place, and on no
// more than that.
func TestEveryRuleCanFail(t *testing.T) {
	imports := func(doc, name string, paths ...string) string {
		return fmt.Sprintf("%s\npackage %s\n\nimport (\n\t_ %q\n)\n", doc, name, strings.Join(paths, "\"\n\t_ \""))
	}
	tests := []struct {
		name    string
		files   map[string]string
		where   string
		problem string
	}{
		{"the core imports another module", map[string]string{"more.go": imports("", "weir", "golang.org/x/time/rate")},
			"more.go:5", "weir imports golang.org/x/time/rate"},
		{"the core imports a store", map[string]string{"more.go": imports("", "weir", "example.com/weir/memstore")},
			"more.go:5", "weir imports example.com/weir/memstore"},
		{"the core imports another internal package", map[string]string{"more.go": imports("", "weir", "example.com/weir/internal/arch")},
			"more.go:5", "weir imports example.com/weir/internal/arch"},
		{"plan imports weir", map[string]string{"internal/plan/more.go": imports("", "plan", "example.com/weir")},
			"internal/plan/more.go:5", "plan imports example.com/weir"},
		{"plan imports the pipeline", map[string]string{"internal/plan/more.go": imports("", "plan", "example.com/weir/internal/pipeline")},
			"internal/plan/more.go:5", "plan imports example.com/weir/internal/pipeline"},
		{"plan imports another module", map[string]string{"internal/plan/more.go": imports("", "plan", "golang.org/x/exp/maps")},
			"internal/plan/more.go:5", "plan imports golang.org/x/exp/maps"},
		{"the pipeline imports weir", map[string]string{"internal/pipeline/more.go": imports("", "pipeline", "example.com/weir")},
			"internal/pipeline/more.go:5", "pipeline imports example.com/weir"},
		{"the pipeline imports another module", map[string]string{"internal/pipeline/more.go": imports("", "pipeline", "golang.org/x/sync/singleflight")},
			"internal/pipeline/more.go:5", "pipeline imports golang.org/x/sync/singleflight"},
		{"a store imports the policy", map[string]string{"memstore/more.go": imports("", "memstore", "example.com/weir/policy")},
			"memstore/more.go:5", "memstore imports example.com/weir/policy"},
		{"a store imports another store", map[string]string{"dynamostore/more.go": imports("", "dynamostore", "example.com/weir/memstore")},
			"dynamostore/more.go:5", "dynamostore imports example.com/weir/memstore"},
		{"what lies below a store imports the engine", map[string]string{"dynamostore/internal/expr/more.go": imports("", "expr", "example.com/weir/engine")},
			"dynamostore/internal/expr/more.go:5", "expr imports example.com/weir/engine"},
		{"a store to come imports the pipeline", map[string]string{"redisstore/r.go": imports("// Package redisstore keeps.", "redisstore", "example.com/weir/internal/pipeline")},
			"redisstore/r.go:5", "redisstore imports example.com/weir/internal/pipeline"},
		{"the embedded store imports the conformance suite", map[string]string{"boltstore/b.go": imports("// Package boltstore keeps.", "boltstore", "example.com/weir/storetest")},
			"boltstore/b.go:5", "boltstore imports example.com/weir/storetest"},
		{"an edge imports a store", map[string]string{"httplimit/more.go": imports("", "httplimit", "example.com/weir/memstore")},
			"httplimit/more.go:5", "httplimit imports example.com/weir/memstore"},
		{"an edge imports the algorithms", map[string]string{"lambdalimit/more.go": imports("", "lambdalimit", "example.com/weir/internal/plan")},
			"lambdalimit/more.go:5", "lambdalimit imports example.com/weir/internal/plan"},
		{"an edge imports another edge", map[string]string{"lambdalimit/more.go": imports("", "lambdalimit", "example.com/weir/httplimit")},
			"lambdalimit/more.go:5", "lambdalimit imports example.com/weir/httplimit"},
		{"the client's transport imports weir", map[string]string{"httpretry/more.go": imports("", "httpretry", "example.com/weir")},
			"httpretry/more.go:5", "httpretry imports example.com/weir"},
		{"the client's transport imports another module", map[string]string{"httpretry/more.go": imports("", "httpretry", "golang.org/x/time/rate")},
			"httpretry/more.go:5", "httpretry imports golang.org/x/time/rate"},
		{"the policy imports the engine", map[string]string{"policy/more.go": imports("", "policy", "example.com/weir/engine")},
			"policy/more.go:5", "policy imports example.com/weir/engine"},
		{"the engine imports a remote store", map[string]string{"engine/more.go": imports("", "engine", "example.com/weir/dynamostore")},
			"engine/more.go:5", "engine imports example.com/weir/dynamostore"},
		{"the engine imports an edge", map[string]string{"engine/more.go": imports("", "engine", "example.com/weir/httplimit")},
			"engine/more.go:5", "engine imports example.com/weir/httplimit"},
		{"somebody imports the program", map[string]string{"examples/shop/shop.go": imports("// Package shop sells.", "shop", "example.com/weir/cmd/weir/internal/proxy")},
			"examples/shop/shop.go:5", "shop imports example.com/weir/cmd/weir/internal/proxy"},
		{"a test imports the program", map[string]string{"storetest/s_test.go": imports("", "storetest", "example.com/weir/cmd/weir")},
			"storetest/s_test.go:5", "storetest imports example.com/weir/cmd/weir"},

		{"no package comment", map[string]string{"storetest/suite.go": "package storetest\n"},
			"storetest", "no package comment"},
		{"the comment stands only in a test", map[string]string{"storetest/suite.go": "package storetest\n", "storetest/s_test.go": "// Package storetest tests.\npackage storetest\n"},
			"storetest", "no package comment"},
		{"a command without a comment", map[string]string{"cmd/weir/main.go": "// Nobody's comment.\n\npackage main\n\nfunc main() {}\n"},
			"cmd/weir", "no package comment"},
		{"two package comments", map[string]string{"memstore/z.go": "// Package memstore again.\npackage memstore\n"},
			"memstore/z.go", "a second package comment, beside that in memstore/memstore.go"},
		{"a file of 501 lines", map[string]string{"policy/long.go": "package policy\n" + strings.Repeat("\n", 500)},
			"policy/long.go", "501 lines"},
		{"a vague name", map[string]string{"internal/stuff/u.go": "// Package utils is of use.\npackage utils\n"},
			"internal/stuff", "named utils"},
		{"a vague name of a test package", map[string]string{"internal/stuff/u_test.go": "// Package helpers_test helps.\npackage helpers_test\n"},
			"internal/stuff", "named helpers"},
		{"an init", map[string]string{"memstore/reg.go": "package memstore\n\nfunc init() {}\n"},
			"memstore/reg.go:3", "func init()"},
		{"an init in the program", map[string]string{"cmd/weir/internal/proxy/reg.go": "package proxy\n\nfunc init() {}\n"},
			"cmd/weir/internal/proxy/reg.go:3", "func init()"},
		{"a sleep in a test", map[string]string{"engine/e_test.go": "package engine\n\nimport \"time\"\n\nfunc wait() { time.Sleep(1) }\n"},
			"engine/e_test.go:5", "time.Sleep in a test"},
		{"a sleep under another name", map[string]string{"engine/e_test.go": "package engine\n\nimport clock \"time\"\n\nvar wait = clock.Sleep\n"},
			"engine/e_test.go:5", "time.Sleep in a test"},
		{"a sleep in the conformance suite", map[string]string{"storetest/s.go": "package storetest\n\nimport (\n\t_ \"testing\"\n\t\"time\"\n)\n\nfunc wait() { time.Sleep(1) }\n"},
			"storetest/s.go:8", "time.Sleep in a test"},
		{"a skip", map[string]string{"engine/e_test.go": "package engine\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Skip(\"no server\") }\n"},
			"engine/e_test.go:5", "t.Skip"},
		{"a skip in the conformance suite", map[string]string{"storetest/s.go": "package storetest\n\nimport \"testing\"\n\nfunc need(tb testing.TB) { tb.Skipf(\"no %s\", \"server\") }\n"},
			"storetest/s.go:5", "tb.Skipf"},
		{"a skip through a field", map[string]string{"engine/e_test.go": "package engine\n\nimport \"testing\"\n\ntype world struct{ t *testing.T }\n\nfunc (w *world) need() { w.t.SkipNow() }\n"},
			"engine/e_test.go:7", "t.SkipNow"},
		{"a file that does not parse", map[string]string{"policy/half.go": "package policy\n\nfunc half( {\n"},
			"policy/half.go", "half.go:3"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			found := loaded(t, changed(tc.files)).Check()
			if len(found) != 1 {
				t.Fatalf("%d findings, want 1: %v", len(found), found)
			}
			f := found[0]
			if f.Where != tc.where || !strings.Contains(f.Problem, tc.problem) {
				t.Errorf("found %q at %q, want %q at %q", f.Problem, f.Where, tc.problem, tc.where)
			}
			if f.Why == "" || f.Fix == "" {
				t.Errorf("the finding gives no reason or no remedy: %v", f)
			}
		})
	}
}

// What looks like a broken rule and is none.
func TestNoFalseFindings(t *testing.T) {
	tree := loaded(t, changed(map[string]string{
		"policy/lexer.go":      "package policy\n\ntype lexer struct{}\n\nfunc (lexer) Skip() {}\nfunc (lexer) init() {}\n\nfunc use(l lexer) { l.Skip(); l.init() }\n",
		"policy/lexer_test.go": "package policy\n\nimport \"testing\"\n\ntype pause struct{}\n\nfunc (pause) Sleep(int) {}\n\nfunc TestLexer(t *testing.T) { var clock pause; clock.Sleep(1); use(lexer{}); t.Log(\"t.Skip time.Sleep\") }\n",
		"policy/long_test.go":  "package policy\n" + strings.Repeat("\n", 900),
		"policy/exact.go":      "package policy\n" + strings.Repeat("\n", 499),
	}))
	for _, f := range tree.Check() {
		t.Error(f)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, with := range map[string]map[string]string{
		"a module without go.mod":      {"go.work": "go 1.26\nuse .\nuse ./bench\n"},
		"a go.mod without module line": {"cmd/weir/go.mod": "go 1.26\n"},
		"no module in the root":        {"go.work": "go 1.26\nuse ./cmd/weir\n"},
	} {
		if _, err := Load(changed(with)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Load(fstest.MapFS{}); err == nil {
		t.Error("an empty folder: no error")
	}
}

func TestCasesTableCanFail(t *testing.T) {
	const (
		head = "# Cases\n\n| number | fault | kind | test |\n| --- | --- | --- | --- |\n"
		good = head + "| B001 | rounds | algorithm | `TestCase_B001` |\n" +
			"| B002 | rounds | algorithm | `TestCase_B002_WaitingAdmits` |\n" +
			"| B003 | redis | TTL | later: redisstore |\n" +
			"| B004 | peers | race | not applicable: there are no peers |\n" +
			"| B005 | both | clock | `TestCase_B001_B005_Both`, `TestCase_B005` |\n"
		code = "package engine\n\nimport \"testing\"\n\n" +
			"func TestCase_B001_FreshBucketAdmits(t *testing.T) {}\n" +
			"func TestCase_B001_B005_Both(t *testing.T) {}\n" +
			"func TestX(t *testing.T) { t.Run(\"TestCase_B002_WaitingAdmits\", func(*testing.T) {}) }\n"
	)
	tests := []struct {
		name, table, code string
		where, problem    string // "" when nothing is wrong
	}{
		{"nothing wrong", good, code, "", ""},
		{"a test that is not there", good + "| B006 | x | clock | `TestCase_B006` |\n", code, "docs/cases.md:10", "no test TestCase_B006"},
		{"another name of the right number", good + "| B006 | x | clock | `TestCase_B006_A` |\n", code + "func TestCase_B006_B(t *testing.T) {}\n", "", "no test TestCase_B006_A"},
		{"a test that the table lacks", good, code + "func TestCase_B007_X(t *testing.T) {}\n", "engine/case_test.go:8", "not in the row of B007"},
		{"a test of a case for later", good, code + "func TestCase_B003_X(t *testing.T) {}\n", "engine/case_test.go:8", "not in the row of B003"},
		{"a test without a number", good, code + "func TestCase_Clock(t *testing.T) {}\n", "engine/case_test.go:8", "carries no case number"},
		{"a row twice", good + "| B003 | redis | TTL | later: redisstore |\n", code, "docs/cases.md:10", "B003 stands in the table twice"},
		{"a row without a word", good + "| B008 | x | clock | soon |\n", code, "docs/cases.md:10", "names no test and gives no reason"},
		{"later without saying when", good + "| B008 | x | clock | later: |\n", code, "docs/cases.md:10", "names no test and gives no reason"},
		{"a bar in a cell", good + "| B008 | a | b | clock | later: x |\n", code, "docs/cases.md:10", "5 columns"},
		{"an empty table", head, "package engine\n", "docs/cases.md", "no row"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			found, err := loaded(t, changed(map[string]string{"docs/cases.md": tc.table, "engine/case_test.go": tc.code})).CheckCases()
			if err != nil {
				t.Fatal(err)
			}
			if tc.problem == "" {
				for _, f := range found {
					t.Error(f)
				}
				return
			}
			if len(found) == 0 || !strings.Contains(found[0].Problem, tc.problem) || tc.where != "" && (len(found) != 1 || found[0].Where != tc.where) {
				t.Errorf("found %v, want %q at %q", found, tc.problem, tc.where)
			}
		})
	}
	if _, err := loaded(t, changed(nil)).CheckCases(); err == nil {
		t.Error("a tree without docs/cases.md: no error")
	}
}
