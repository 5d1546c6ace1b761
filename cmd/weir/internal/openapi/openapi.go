// Package openapi reads which operations an API has, from a document of OpenAPI
// 3.0, 3.1 or 3.2 or of its forerunner Swagger 2.0, in YAML or JSON.
//
// It takes documents as they are found: path items that stand elsewhere ($ref,
// within the document or in a file beside it), servers with a base path and
// variables, extensions anywhere, parts that nobody has validated. What it cannot
// take it names, with the reason, and takes the rest.
package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The largest documents that are read, in bytes. A parser of YAML takes some three
// seconds and 120 MB for every million.
const (
	MaxJSON = 64 << 20
	MaxYAML = 8 << 20
)

// maxRefs bounds the chain of references from a path to its operations, and
// maxFiles how many files a document may consist of.
const (
	maxRefs  = 8
	maxFiles = 1000
)

// Operation is one operation of a document.
type Operation struct {
	ID     string // operationId; "" without one
	Method string // upper case; "" for every method
	Base   string // the path of its server, which comes before Path; "" for none
	Path   string // as the document writes it
}

// Skipped is what was not taken.
type Skipped struct{ What, Why string }

// Document is what was read.
type Document struct {
	Operations []Operation // by path, then by method
	Skipped    []Skipped   // in the same order
}

// Read reads a document and the files that it refers to, which fsys serves by their
// paths. The error is one of fsys, or an *Unreadable.
func Read(fsys fs.FS, name string) (*Document, error) {
	r := &reader{fsys: fsys, files: map[string]*file{}, doc: &Document{}}
	root, err := r.file(name)
	if err != nil {
		return nil, err
	}
	top, ok := root.v.(map[string]any)
	if !ok {
		return nil, &Unreadable{name, "it is no object"}
	}
	paths, ok := top["paths"].(map[string]any)
	if _, said := top["paths"]; said && !ok && top["paths"] != nil {
		return nil, &Unreadable{name, "paths: is no object"}
	}
	base := r.base(name, top)
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		switch {
		case strings.HasPrefix(p, "x-"):
		case !strings.HasPrefix(p, "/"):
			r.skip(p, "a path begins with a slash")
		default:
			r.item(p, paths[p], name, base)
		}
	}
	return r.doc, nil
}

// Unreadable is a file that is no OpenAPI document, or no part of one.
type Unreadable struct{ Name, Why string }

func (e *Unreadable) Error() string { return e.Name + " is not an OpenAPI document: " + e.Why }

type reader struct {
	fsys  fs.FS
	files map[string]*file
	doc   *Document
}

func (r *reader) skip(what, format string, args ...any) {
	r.doc.Skipped = append(r.doc.Skipped, Skipped{what, fmt.Sprintf(format, args...)})
}

// file is one that was decoded.
type file struct {
	v    any
	rest []byte // the whole text, where v lacks the sections that seldom hold operations
}

// file decodes a file, once.
func (r *reader) file(name string) (*file, error) {
	if f, known := r.files[name]; known {
		return f, nil
	}
	if len(r.files) == maxFiles {
		return nil, &Unreadable{name, fmt.Sprintf("it has more than %d files", maxFiles)}
	}
	opened, err := r.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, MaxJSON+1))
	if err != nil {
		return nil, err
	}
	f, why := decode(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if why != "" {
		return nil, &Unreadable{name, why}
	}
	r.files[name] = f
	return f, nil
}

// at follows a pointer within a file; err says why all of the file cannot be read.
func (f *file) at(pointer string) (v any, found bool, err error) {
	if v, found = at(f.v, pointer); found || f.rest == nil {
		return v, found, nil
	}
	all, why := decodeYAML(f.rest)
	if why != "" {
		return nil, false, errors.New(why)
	}
	f.v, f.rest = all, nil
	v, found = at(f.v, pointer)
	return v, found, nil
}

// decode reads JSON, or YAML. What begins as JSON is nothing else: a parser of YAML
// would need much memory for what JSON refuses.
func decode(text []byte) (f *file, why string) {
	if len(text) > MaxJSON {
		return nil, fmt.Sprintf("it is larger than %d bytes", MaxJSON)
	}
	if t := bytes.TrimSpace(text); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		f = &file{}
		if err := json.Unmarshal(t, &f.v); err != nil {
			return nil, fmt.Sprintf("it begins with %c, and is no JSON: %v", t[0], err)
		}
		return f, ""
	}
	short := sections(text)
	v, why := decodeYAML(short)
	switch {
	case len(short) == len(text):
		return &file{v, nil}, why
	case why == "":
		return &file{v, text}, ""
	}
	if all, _ := decodeYAML(text); all != nil { // an alias to what was left out
		return &file{all, nil}, ""
	}
	return nil, why
}

var topKey = regexp.MustCompile(`^['"]?([A-Za-z][\w-]*)['"]?\s*:(\s|$)`)

// sections leaves out of YAML, to spare the parser, the sections at the top that
// hold no operations but those that something refers to.
func sections(text []byte) []byte {
	var out []byte
	keep := true
	for line := range bytes.Lines(text) {
		if key := topKey.FindSubmatch(line); key != nil {
			keep = !slices.Contains([]string{"components", "definitions", "info", "tags", "parameters", "responses"}, string(key[1]))
		}
		if keep {
			out = append(out, line...)
		}
	}
	return out
}

// base is the path under which the server of a document or a part of it serves; of
// several servers, the first's.
func (r *reader) base(what string, v map[string]any) string {
	if base, ok := v["basePath"].(string); ok {
		return pathOf(base)
	}
	var bases []string
	servers, _ := v["servers"].([]any)
	for _, s := range servers {
		server, _ := s.(map[string]any)
		text, _ := server["url"].(string)
		variables, _ := server["variables"].(map[string]any)
		for name, value := range variables {
			if one, ok := value.(map[string]any); ok && one["default"] != nil {
				text = strings.ReplaceAll(text, "{"+name+"}", fmt.Sprint(one["default"]))
			}
		}
		if base := pathOf(text); !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	if len(bases) == 0 {
		return ""
	}
	if len(bases) > 1 {
		r.skip(what, "its servers have the paths %s; the operations are those of the first", strings.Join(bases, ", "))
	}
	return bases[0]
}

// pathOf is the path of a server's URL, which may be relative, or a template that is
// no URL.
func pathOf(text string) string {
	if _, rest, absolute := strings.Cut(text, "//"); absolute { // https://HOST/PATH, or //HOST/PATH
		_, text, _ = strings.Cut(rest, "/")
	}
	if at := strings.IndexAny(text, "?#"); at >= 0 {
		text = text[:at]
	}
	if text = strings.Trim(text, "/"); text == "" || text == "." {
		return "/"
	}
	return "/" + text
}

// anyMethod is how API Gateway writes an operation of every method.
const anyMethod = "x-amazon-apigateway-any-method"

var methods = []string{"get", "head", "post", "put", "patch", "delete", "options", "query", "trace"}

// item reads the operations of one path.
func (r *reader) item(p string, v any, in, base string) {
	item, err := r.resolve(v, in, maxRefs)
	if err != nil {
		r.skip(p, "%v", err)
		return
	}
	if item["servers"] != nil {
		base = r.base(p, item)
	}
	add := func(method string, v any) {
		op, ok := v.(map[string]any)
		switch {
		case v == nil && method != "":
			op = map[string]any{}
		case !ok:
			r.skip(cmp.Or(method, "any")+" "+p, "the operation is no object")
			return
		}
		if method == "TRACE" || method == "CONNECT" {
			r.skip(method+" "+p, "the method is always answered with 405")
			return
		}
		at := base
		if op["servers"] != nil {
			at = r.base(method+" "+p, op)
		}
		id, _ := op["operationId"].(string)
		r.doc.Operations = append(r.doc.Operations, Operation{id, method, strings.TrimSuffix(at, "/"), p})
	}
	for _, method := range methods {
		if v, has := item[method]; has {
			add(strings.ToUpper(method), v)
		}
	}
	if more, ok := item["additionalOperations"].(map[string]any); ok {
		for _, method := range slices.Sorted(maps.Keys(more)) {
			add(strings.ToUpper(method), more[method])
		}
	}
	if v, has := item[anyMethod]; has {
		add("", v)
	}
}

// resolve follows the reference of a path item. What stands beside it wins.
func (r *reader) resolve(v any, in string, left int) (map[string]any, error) {
	item, ok := v.(map[string]any)
	if !ok {
		if v == nil {
			return nil, nil
		}
		return nil, errors.New("its value is no object")
	}
	ref, ok := item["$ref"].(string)
	if !ok {
		return item, nil
	}
	if left == 0 {
		return nil, fmt.Errorf("$ref: %s leads on and on", ref)
	}
	name, pointer, _ := strings.Cut(ref, "#")
	switch {
	case strings.Contains(name, "://"):
		return nil, fmt.Errorf("$ref: %s is not a file beside the document", ref)
	case name == "":
		name = in
	default:
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		name = path.Join(path.Dir(in), name)
	}
	root, err := r.file(name)
	if err != nil {
		return nil, fmt.Errorf("$ref: %s: %w", ref, err)
	}
	target, found, err := root.at(pointer)
	if err != nil {
		return nil, fmt.Errorf("$ref: %s: %w", ref, &Unreadable{name, err.Error()})
	}
	if !found {
		return nil, fmt.Errorf("$ref: %s leads nowhere", ref)
	}
	whole, err := r.resolve(target, name, left-1)
	if err != nil {
		return nil, err
	}
	whole = maps.Clone(whole)
	if whole == nil {
		whole = map[string]any{}
	}
	maps.Copy(whole, item)
	delete(whole, "$ref")
	return whole, nil
}

// at follows a JSON pointer in the form of a URL's fragment.
func at(v any, pointer string) (any, bool) {
	if pointer == "" || pointer == "/" {
		return v, true
	}
	for _, part := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]; !ok {
			return nil, false
		}
	}
	return v, true
}
