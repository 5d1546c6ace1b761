package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlabs/weir/cmd/weir/internal/openapi"
	"github.com/weirlabs/weir/policy"
)

// fromOpenAPI is one operation of a document, as a policy has it.
type fromOpenAPI struct {
	name, match string
	said        string // the document's method and path
}

// policyFromOpenAPI is a policy with the operations of an OpenAPI document, and a
// note on each that is not taken as the document says it.
func policyFromOpenAPI(file string) (text []byte, notes []openapi.Skipped, err error) {
	doc, err := openapi.Read(folder(filepath.Dir(file)), filepath.Base(file))
	var no *openapi.Unreadable
	if errors.As(err, &no) {
		return nil, nil, usage("weir init", "%w", err)
	} else if err != nil {
		return nil, nil, fmt.Errorf("the OpenAPI document cannot be read: %w", err)
	}
	d := draft{file: file}
	d.ops, d.notes = taken(doc)
	for {
		if len(d.ops) == 0 {
			return nil, nil, usage("weir init", "%s names no operation under paths:%s", file, d.firstNote())
		}
		text = d.written()
		p, err := policy.Load(onlyFile(text), "weir.yaml", policy.Options{})
		if p != nil {
			return text, d.allNotes(), nil
		}
		var problems policy.Problems
		if !errors.As(err, &problems) {
			return nil, nil, err
		}
		if !d.without(text, problems) {
			return nil, nil, usage("weir init", "the operations of %s cannot be those of one policy: %s", file, problems[0].Message)
		}
	}
}

// draft is a policy that is being fitted to what a policy can be.
type draft struct {
	file  string // the document
	ops   []fromOpenAPI
	notes []openapi.Skipped
	cut   []fromOpenAPI // from the end, because all are too many
}

func (d *draft) firstNote() string {
	if len(d.notes) == 0 {
		return ""
	}
	return fmt.Sprintf(" that a policy could have; %s: %s", d.notes[0].What, d.notes[0].Why)
}

func (d *draft) allNotes() []openapi.Skipped {
	if len(d.cut) == 0 {
		return d.notes
	}
	which := fmt.Sprintf("%s from %s on", plural(len(d.cut), "operation"), d.cut[0].said)
	return append([]openapi.Skipped{{What: which, Why: "a policy of one file holds no more"}}, d.notes...)
}

// without leaves out the operations in which a policy has mistakes, or the last tenth
// of one that is too large. It reports whether that can help.
func (d *draft) without(text []byte, problems policy.Problems) bool {
	const tooLarge = 1003
	if problems[0].Code == tooLarge {
		keep := len(d.ops) * 9 / 10
		d.cut = append(slices.Clone(d.ops[keep:]), d.cut...)
		d.ops = d.ops[:keep]
		return true
	}
	lines := strings.Split(string(text), "\n")
	why := map[string]string{} // by name
	for _, p := range problems {
		if p.Line > 0 {
			name, _, _ := strings.Cut(strings.TrimSpace(lines[p.Line-1]), ":")
			why[name] = p.Message
		}
	}
	all := len(d.ops)
	d.ops = slices.DeleteFunc(d.ops, func(o fromOpenAPI) bool {
		reason, bad := why[o.name]
		if bad {
			d.notes = append(d.notes, openapi.Skipped{What: o.said, Why: reason})
		}
		return bad
	})
	return len(d.ops) < all
}

// onlyFile serves a policy that is not in a file yet.
type onlyFile string

func (f onlyFile) Open(string) (fs.File, error) { return textFile{strings.NewReader(string(f))}, nil }

// taken are the operations of a document that one policy can have: of those that
// would match the same requests, the first.
func taken(doc *openapi.Document) (ops []fromOpenAPI, notes []openapi.Skipped) {
	notes = slices.Clone(doc.Skipped)
	type candidate struct {
		openapi.Operation
		pattern string
		wider   bool
	}
	var all []candidate
	for _, o := range doc.Operations {
		pattern, wider, err := patternOf(o.Base + o.Path)
		if err != nil {
			notes = append(notes, openapi.Skipped{What: saidOf(o), Why: err.Error()})
			continue
		}
		all = append(all, candidate{o, strings.TrimSpace(o.Method + " " + pattern), wider})
	}
	slices.SortStableFunc(all, func(a, b candidate) int { // whose pattern is exact comes first
		switch {
		case a.wider == b.wider:
			return 0
		case a.wider:
			return 1
		}
		return -1
	})
	mux, names, firsts := http.NewServeMux(), map[string]bool{}, map[string]fromOpenAPI{}
	for _, c := range all {
		o := fromOpenAPI{match: c.pattern, said: saidOf(c.Operation)}
		if first, again := firsts[requests(c.pattern)]; again {
			notes = append(notes, openapi.Skipped{What: o.said, Why: fmt.Sprintf("%s (%s) matches the same requests", first.name, first.said)})
			continue
		}
		if !accepts(mux, c.pattern) {
			notes = append(notes, openapi.Skipped{What: o.said, Why: inTheWay(ops, c.pattern)})
			continue
		}
		o.name = unusedName(cmp.Or(c.ID, strings.ToLower(c.Method)+" "+c.Path), names)
		firsts[requests(c.pattern)] = o
		if ops = append(ops, o); c.wider {
			notes = append(notes, openapi.Skipped{What: o.said, Why: "a wildcard is a whole segment, so the policy has it as " + c.pattern})
		}
	}
	slices.SortStableFunc(ops, func(a, b fromOpenAPI) int { return cmp.Compare(pathIn(a.match), pathIn(b.match)) })
	return ops, notes
}

func saidOf(o openapi.Operation) string { return cmp.Or(o.Method, "any") + " " + o.Base + o.Path }

func pathIn(pattern string) string { return pattern[strings.IndexByte(pattern, '/'):] }

// accepts registers a pattern with a mux, which panics where it conflicts with one
// that is there. Case does not count in a policy.
func accepts(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	method, _, _ := strings.Cut(pattern, "/")
	segs := strings.Split(pathIn(pattern), "/")
	for i, s := range segs {
		if !strings.HasPrefix(s, "{") {
			segs[i] = strings.ToLower(s)
		}
	}
	mux.Handle(method+strings.Join(segs, "/"), http.NotFoundHandler())
	return true
}

// inTheWay says which of some operations a pattern conflicts with.
func inTheWay(ops []fromOpenAPI, pattern string) string {
	for _, o := range ops {
		mux := http.NewServeMux()
		if !accepts(mux, pattern) {
			break
		}
		if accepts(mux, o.match) {
			continue
		}
		return fmt.Sprintf("some requests would match it and %s (%s), and neither is the more specific one", o.name, o.said)
	}
	return "it cannot be a pattern of a policy"
}

// requests is one text for all patterns that match the same requests: they differ
// in the names of wildcards and in case only.
func requests(pattern string) string {
	return strings.ToLower(wildcard.ReplaceAllStringFunc(pattern, func(w string) string {
		if strings.HasSuffix(w, "...}") || w == "{$}" {
			return w[len(w)-2:]
		}
		return "{}"
	}))
}

var (
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
	wildcard   = regexp.MustCompile(`\{([^{}]*)\}`)
	queryPart  = regexp.MustCompile(`\{[?&][^{}]*\}`) // as in /search{?q}
	notInWords = regexp.MustCompile(`\W`)
	spaces     = strings.NewReplacer(" ", "%20", "\t", "%09", `"`, "%22")
)

// patternOf is the path of a pattern for a path of a document. It is wider where a
// template is a part of a segment: there the whole segment becomes the wildcard.
func patternOf(path string) (pattern string, wider bool, err error) {
	path = queryPart.ReplaceAllString(path, "")
	if strings.ContainsAny(wildcard.ReplaceAllString(path, ""), "?#") {
		return "", false, errors.New("a query or a fragment tells it apart, which no pattern looks at")
	}
	names := map[string]bool{}
	var segs []string
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		said := wildcard.FindStringSubmatch(part)
		rest := wildcard.ReplaceAllString(part, "")
		switch {
		case part == "":
			continue
		case strings.ContainsAny(rest, "{}"):
			return "", false, fmt.Errorf("a brace of %s is left open", part)
		case said == nil && strings.Contains(part, "*"):
			return "", false, errors.New("* has no meaning in a pattern")
		case said == nil && (part == "." || part == ".."):
			return "", false, errors.New("no path keeps a dot segment")
		case said == nil:
			segs = append(segs, spaces.Replace(part))
			continue
		}
		name := notInWords.ReplaceAllString(strings.TrimRight(said[1], "+*"), "_")
		if name == "" || '0' <= name[0] && name[0] <= '9' {
			name = "p" + name
		}
		for free, n := name, 2; names[name]; n++ {
			name = free + "_" + strconv.Itoa(n)
		}
		names[name] = true
		if rest != "" || len(wildcard.FindAllString(part, 2)) > 1 {
			wider = true
		} else if i == len(parts)-1 && strings.HasSuffix(said[1], "+") { // as API Gateway writes {proxy+}
			name += "..."
		}
		segs = append(segs, "{"+name+"}")
	}
	if len(segs) == 0 {
		return "/{$}", false, nil
	}
	return "/" + strings.Join(segs, "/"), wider, nil
}

var humps = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// unusedName makes a name of an operation's id: createOrder is create-order.
func unusedName(id string, taken map[string]bool) string {
	const longest = 32
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(humps.ReplaceAllString(id, "$1-$2")), "-"), "-")
	switch {
	case name == "", name[0] < 'a', name == "null", name == "true", name == "false": // in YAML these are no texts
		name = "op-" + name
	}
	name = strings.Trim(name[:min(len(name), longest)], "-")
	free := name
	for n := 2; taken[free]; n++ {
		suffix := "-" + strconv.Itoa(n)
		free = strings.Trim(name[:min(len(name), longest-len(suffix))], "-") + suffix
	}
	taken[free] = true
	return free
}

// written is the policy: every operation has a limit to begin with, and watches.
func (d *draft) written() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# yaml-language-server: $schema=weir.schema.json
# A first policy, with the operations of %s. Nothing is refused yet: put in the
# limits that you want, look at the decision log, and remove `+"`mode: shadow`"+`.
weir: 1
mode: shadow

# Who is calling, and what stands in front: see docs/policy.md.
# auth:
#   jwt: {jwks_url: https://issuer.example/.well-known/jwks.json}
client_ip: {from: socket}

application:
  plans:
    from: jwt.plans
    order: [free]
    free:
`, strings.Map(oneLine, d.file))
	for _, o := range d.ops {
		fmt.Fprintf(&b, "      %s: quota 1000/hour\n", o.name)
	}
	b.WriteString("  operations:\n")
	for _, o := range d.ops {
		fmt.Fprintf(&b, "    %s: {match: %s}\n", o.name, strconv.Quote(o.match))
	}
	notes := d.allNotes()
	if len(notes) > 0 {
		b.WriteString("\n# Not as the document has it:\n")
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "#   %s: %s\n", strings.Map(oneLine, n.What), strings.Map(oneLine, n.Why))
	}
	return b.Bytes()
}

// oneLine keeps a text within its comment.
func oneLine(r rune) rune {
	if r < ' ' || r == 0x7f || '\u0080' <= r && r <= '\u009f' || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
		return '?'
	}
	return r
}
