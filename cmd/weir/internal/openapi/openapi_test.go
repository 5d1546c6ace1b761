package openapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func read(t *testing.T, files ...string) *Document {
	t.Helper()
	fsys := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	doc, err := Read(fsys, files[0])
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func said(d *Document) string {
	var out []string
	for _, o := range d.Operations {
		out = append(out, strings.TrimSpace(o.ID+" "+o.Method+" "+o.Base+o.Path))
	}
	return strings.Join(out, "; ")
}

// The same API in every version and both languages.
func TestVersionsAndLanguages(t *testing.T) {
	const want = "listOrders GET /v1/orders; createOrder POST /v1/orders; GET /v1/orders/{id}"
	for name, text := range map[string]string{
		"2.0 in YAML":                          "swagger: '2.0'\nhost: api.example\nbasePath: /v1\npaths:\n  /orders:\n    get: {operationId: listOrders, responses: {200: {description: ok}}}\n    post: {operationId: createOrder}\n  /orders/{id}:\n    get: {}\n",
		"2.0 in JSON":                          `{"swagger":"2.0","basePath":"/v1/","paths":{"/orders/{id}":{"get":{}},"/orders":{"post":{"operationId":"createOrder"},"get":{"operationId":"listOrders"}}}}`,
		"3.0 in YAML":                          "openapi: 3.0.3\nservers:\n- url: https://api.example/v1\npaths:\n  /orders:\n    parameters: []\n    summary: x\n    get:\n      operationId: listOrders\n      responses:\n        200:\n          description: |\n            paths:\n              /fake: {get: {}}\n    post:\n      operationId: createOrder\n  /orders/{id}:\n    get:\n",
		"3.1 in JSON":                          `{"openapi":"3.1.0","servers":[{"url":"/v1"}],"paths":{"/orders":{"$ref":"#/components/pathItems/orders"},"/orders/{id}":{"get":{}}},"components":{"pathItems":{"orders":{"get":{"operationId":"listOrders"},"post":{"operationId":"createOrder"}}}}}`,
		"3.1 in YAML":                          "openapi: 3.1.0\nservers: [{url: 'https://{tenant}.api.example/{base}', variables: {tenant: {default: a}, base: {default: v1}}}]\npaths:\n  /orders: {$ref: '#/components/pathItems/orders'}\n  /orders/{id}: {get: {}}\ncomponents:\n  pathItems:\n    orders: {get: {operationId: listOrders}, post: {operationId: createOrder}}\n",
		"extensions":                           "openapi: 3.0.0\nx-top: 1\nservers: [{url: //api.example/v1}]\npaths:\n  x-one: 1\n  x-two: [a]\n  x-three: {get: {}}\n  /orders: {x-a: 1, get: {operationId: listOrders, x-b: {}}, post: {operationId: createOrder}}\n  /orders/{id}: {get: {}}\n",
		"an alias to what holds no operations": "openapi: 3.0.0\nservers: [{url: /v1}]\ncomponents: {schemas: {a: &a {type: string}}}\npaths:\n  /orders: {get: {operationId: listOrders, x: *a}, post: {operationId: createOrder}}\n  /orders/{id}: {get: {}}\n",
		"a byte order mark":                    "\ufeffopenapi: 3.0.0\nservers: [{url: /v1}]\npaths:\n  /orders: {get: {operationId: listOrders}, post: {operationId: createOrder}}\n  /orders/{id}: {get: {}}\n",
		"components first":                     "components:\n  schemas:\n    paths:\n      /no: {get: {}}\nopenapi: 3.0.0\nservers: [{url: /v1}]\n\"paths\":\n  /orders: {get: {operationId: listOrders}, post: {operationId: createOrder}}\n  /orders/{id}: {get: {}}\n",
	} {
		d := read(t, "api", text)
		if got := said(d); got != want || len(d.Skipped) > 0 {
			t.Errorf("%s: %s, skipped %v", name, got, d.Skipped)
		}
	}
}

// Servers of a part of the document come before those of the whole.
func TestServers(t *testing.T) {
	d := read(t, "api", `{"servers":[{"url":"https://a.example/v1?x#y"},{"url":"https://b.example/v1/"},{"url":"https://b.example"}],"paths":{
		"/a":{"get":{}}, "/b":{"servers":[{"url":"/own"}],"get":{}}, "/c":{"get":{"servers":[{"url":"."}]},"put":{}}, "/d":{"servers":[],"get":{}}}}`)
	if got := said(d); got != "GET /v1/a; GET /own/b; GET /c; PUT /v1/c; GET /d" {
		t.Error(got)
	}
	if len(d.Skipped) != 1 || d.Skipped[0].Why != "its servers have the paths /v1, /; the operations are those of the first" {
		t.Errorf("%v", d.Skipped)
	}
}

// A document may be in pieces, and what is missing takes nothing else with it.
func TestReferences(t *testing.T) {
	d := read(t,
		"docs/api.yaml", `
paths:
  /a: {$ref: './paths/a.yaml'}
  /b: {$ref: 'paths/more%20paths.json#/x~1y/b'}
  /c: {$ref: '#/paths/~1a', put: {operationId: own}}
  /d: {$ref: 'https://elsewhere.example/d.yaml'}
  /e: {$ref: 'gone.yaml'}
  /f: {$ref: '#/paths/~1f'}
  /g: {$ref: '#/nowhere'}
  /h: {$ref: 'broken.yaml'}
  /i: 5
  /j: {get: [1], post: {}}
  /k: {trace: {}, connect: {}}
  l: {get: {}}
  /m:
`,
		"docs/paths/a.yaml", "get: {operationId: a}\nput: {operationId: a2}\n",
		"docs/paths/more paths.json", `{"x/y":{"b":{"$ref":"../c.yaml#/deep"}}}`,
		"docs/c.yaml", "deep: {post: {operationId: deep}}\n",
		"docs/broken.yaml", "a: [",
	)
	if got := said(d); got != "a GET /a; a2 PUT /a; deep POST /b; a GET /c; own PUT /c; POST /j" {
		t.Error(got)
	}
	want := []string{"/d: elsewhere", "/e: gone.yaml", "/f: on and on", "/g: nowhere", "/h: broken.yaml", "/i: no object", "GET /j: no object", "TRACE /k: 405", "l: slash"}
	if len(d.Skipped) != len(want) {
		t.Fatalf("%q", d.Skipped)
	}
	for i, w := range want {
		what, why, _ := strings.Cut(w, ": ")
		if d.Skipped[i].What != what || !strings.Contains(d.Skipped[i].Why, why) {
			t.Errorf("%+v, want %s", d.Skipped[i], w)
		}
	}
}

// Other forms of an operation.
func TestOperationsOfAnyMethod(t *testing.T) {
	d := read(t, "api", `{"paths":{"/{proxy+}":{"x-amazon-apigateway-any-method":{}},"/s":{"query":{"operationId":"search"},"additionalOperations":{"purge":{"operationId":"p"},"CONNECT":{}}}}}`)
	slices.SortFunc(d.Operations, func(a, b Operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	if got := said(d); got != "p PURGE /s; search QUERY /s; /{proxy+}" && got != "p PURGE /s; search QUERY /s;  /{proxy+}" {
		t.Error(got)
	}
}

func TestNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "it is no object",
		"- a":                  "it is no object",
		"5":                    "it is no object",
		"{\"paths\":[]}":       "paths: is no object",
		"paths: 5":             "paths: is no object",
		"a: [":                 "is not an OpenAPI document",
		"{\"paths\":{\"/a\":{": "it begins with {, and is no JSON",
		"{paths: {}}":          "it begins with {, and is no JSON",
		"[{paths: {}}]":        "it begins with [, and is no JSON",
		"paths:\n" + strings.Repeat("  /a: {get: {}}\n", 1<<20): fmt.Sprintf("it is larger than %d bytes of YAML", MaxYAML),
	} {
		_, err := Read(fstest.MapFS{"api": {Data: []byte(text)}}, "api")
		var no *Unreadable
		if !errors.As(err, &no) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %s", text, err, want)
		}
	}
	if _, err := Read(fstest.MapFS{}, "api"); err == nil || errors.As(err, new(*Unreadable)) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"servers":[{"url":"/v1"}],"paths":{"/a":{"get":{"operationId":"x"},"$ref":"#/paths/~1b"},"/b":{"$ref":"other"}}}`)
	f.Add("basePath: /x\npaths:\n  /a/{b}.json: {get: {servers: [{url: '{a}', variables: {a: {default: 1}}}]}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 || strings.ContainsAny(text, "&*") { // aliases multiply
			return
		}
		doc, err := Read(fstest.MapFS{"api": {Data: []byte(text)}, "other": {Data: []byte(text)}}, "api")
		if err != nil {
			return
		}
		for _, o := range doc.Operations {
			if !strings.HasPrefix(o.Path, "/") || o.Method != strings.ToUpper(o.Method) {
				t.Errorf("%+v", o)
			}
		}
	})
}

// The whole kind: whatever nests deep is refused before much is made of it.
func TestDepthIsBounded(t *testing.T) {
	const deep = 1_500 // of YAML
	for name, text := range map[string]string{
		"JSON":              `{"paths":{"/a":` + strings.Repeat(`{"x":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "}}",
		"JSON lists":        strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"JSON left open":    strings.Repeat(`{"a":`, 100_000),
		"after a blank":     "\n \t" + strings.Repeat(`{"a":`, 100_000),
		"brackets":          "paths: " + strings.Repeat("{x: ", deep) + "1" + strings.Repeat("}", deep),
		"left open":         "paths: " + strings.Repeat("[", deep),
		"after a comment":   "# x\n" + strings.Repeat(`{"a":`, deep),
		"after a mark":      "---\n" + strings.Repeat(`[`, deep),
		"closed in texts":   "paths: " + strings.Repeat(`{x: "}", y: `, deep),
		"dashes":            strings.Repeat("- ", deep) + "1",
		"marks":             strings.Repeat("? ", deep) + "1",
		"indentation":       "a:\n" + strings.Repeat(" ", 1100) + "b: 1\n",
		"what is left out":  "components: " + strings.Repeat("{x: ", deep) + "\npaths: {/a: {$ref: '#/components/x'}}\n",
		"in another file":   "paths: {/a: {$ref: 'other'}}\n",
		"of another's part": "paths: {/a: {$ref: 'part#/components/x'}}\n",
	} {
		doc, err := Read(fstest.MapFS{"api": {Data: []byte(text)}, "other": {Data: []byte(strings.Repeat("[", 100_000))}, "part": {Data: []byte("components: " + strings.Repeat("[", deep))}}, "api")
		said, want := fmt.Sprint(err), "is nested deeper than 1000 levels"
		if doc != nil && len(doc.Skipped) == 1 && len(doc.Operations) == 0 {
			said = doc.Skipped[0].Why
		}
		if strings.HasPrefix(name, "JSON") || name == "after a blank" || name == "in another file" {
			want = ", and is no JSON: "
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s: %s", name, said)
		}
	}
	// What people write is not deep.
	if d := read(t, "api", "paths:\n  /a:\n    get: {operationId: x, x-deep: "+strings.Repeat("{a: ", 300)+"1"+strings.Repeat("}", 300)+"}\n"); said(d) != "x GET /a" {
		t.Errorf("%+v", d)
	}
}

// Operations may stand in whichever section, of whichever file, that a path refers to.
func TestReferencesIntoSections(t *testing.T) {
	d := read(t, "api", `
paths:
  /a: {$ref: 'common.yaml#/components/pathItems/a'}
  /b: {$ref: '#/components/x-items/b'}
  /c: {$ref: 'common.yaml#/definitions/c'}
  /d: {$ref: 'common.yaml#/paths/~1d'}
  /e: {$ref: 'common.yaml#/components/pathItems/gone'}
components:
  x-items: {b: {get: {operationId: b}}}
`, "common.yaml", `
info: {title: x}
paths:
  /d: {$ref: '#/parameters/d'}
components:
  pathItems: {a: {get: {operationId: a}}}
definitions: {c: {get: {operationId: c}}}
parameters: {d: {get: {operationId: d}}}
`)
	if got := said(d); got != "a GET /a; b GET /b; c GET /c; d GET /d" {
		t.Error(got)
	}
	if len(d.Skipped) != 1 || d.Skipped[0].What != "/e" || !strings.Contains(d.Skipped[0].Why, "nowhere") {
		t.Errorf("%+v", d.Skipped)
	}
}

// A key that stands twice does not lose the rest, in either language.
func TestKeysThatStandTwice(t *testing.T) {
	for _, text := range []string{
		"paths:\n  /a: {get: {operationId: one}}\n  /b: {get: {}, get: {operationId: b}}\n  /a: {get: {operationId: two}}\n",
		`{"paths":{"/a":{"get":{"operationId":"one"}},"/b":{"get":{},"get":{"operationId":"b"}},"/a":{"get":{"operationId":"two"}}}}`,
	} {
		if d := read(t, "api", text); said(d) != "two GET /a; b GET /b" || len(d.Skipped) > 0 {
			t.Errorf("%s: %+v", text, d)
		}
	}
}
