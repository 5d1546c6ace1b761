package policy

import (
	"path"
	"slices"
	"strings"
)

// A policy may be several files, and may differ from place to place. Both are
// settled on the tree that was read, before anything has a meaning: include: adds
// the fields of other files, and the environment in force is laid over what is
// there. Every part keeps the place where it was written, so that mistakes show
// there.

// maxIncludes bounds how many files make one policy.
const maxIncludes = 32

// assemblyRows are the fields that are gone once a policy is assembled.
func (l *loader) assemblyRows() []row {
	done := func(*node) {}
	return []row{
		{"include", false, "Files whose fields are added to this one's.", value{func() *schema { return oneOrList(textForm()) }, done}},
		{"environments", false, "Fields by environment, laid over the file's where --environment names it.", value{
			func() *schema { return mapOf(nameForms, objectForm(l.bodyRows(new(config))).partial()) }, done,
		}},
	}
}

// include returns a policy with the fields of the files that it includes.
func (l *loader) include(root *node) *node {
	files := root.get("include")
	if files == nil {
		return root
	}
	seen := map[string]bool{}
	l.each("include", value{read: func(n *node) {
		name := path.Clean(n.text)
		switch {
		case !l.is(n, scalar, "include"):
		case strings.TrimSpace(n.text) == "":
			l.wrong(n, codeEmptyText, "", "include is empty")
		case l.beside(n.text) == path.Clean(l.file):
			l.wrong(n, codeInclude, "remove it", "the file includes itself")
		case seen[name]:
			l.wrong(n, codeRepeated, "keep one of the two", "%s is given twice", show(n.text))
		case len(seen) == maxIncludes:
			l.wrong(n, codeInclude, "join some", "more than %d files are included", maxIncludes)
		default:
			if seen[name] = true; len(seen) <= maxIncludes {
				root = l.includeOne(root, n)
			}
		}
	}}).read(files)
	return root
}

func (l *loader) includeOne(root, n *node) *node {
	text := l.readFile(n)
	if text == nil {
		return root
	}
	own := l.page
	l.page = &page{file: own.beside(n.text)}
	part := l.parse(text)
	l.page = own
	if part == nil || !l.is(part, object, "an included file") {
		return root
	}
	out := *root
	out.fields = slices.Clone(root.fields)
	for _, f := range part.fields {
		switch f.key.text {
		case "include", "environments":
			l.wrong(f.key, codeInclude, "move it to the file that includes this one", "%s stands in an included file", show(f.key.text))
		case "weir":
			l.version(f.value)
		default:
			l.add(&out, f)
		}
	}
	return &out
}

// add adds a field of an included file to an object that is nobody else's. What
// both have must be objects, whose fields are joined, or lists.
func (l *loader) add(to *node, f field) {
	for i := range to.fields {
		have := &to.fields[i]
		if have.key.text != f.key.text {
			continue
		}
		joined := *have.value
		switch {
		case have.value.shape == object && f.value.shape == object:
			joined.fields = slices.Clone(joined.fields)
			for _, inner := range f.value.fields {
				l.add(&joined, inner)
			}
		case have.value.shape == list && f.value.shape == list:
			joined.items = slices.Concat(joined.items, f.value.items)
		default:
			l.wrong(f.key, codeTwice, "keep one of the two", "%s is given twice; the first is in %s, line %d", show(f.key.text), l.pageOf(have.key).file, have.key.line)
		}
		have.value = &joined
		return
	}
	to.fields = append(to.fields, f)
}

// environments returns the overlays of a policy by name, in the order of the file.
func (l *loader) environments(root *node) []field {
	var out []field
	if n := root.get("environments"); n != nil && n.shape != broken {
		l.named("environments", "an environment", nil, func(key, v *node) {
			if l.is(v, object, "an environment") {
				for _, f := range v.fields {
					if name := f.key.text; name == "weir" || name == "include" || name == "environments" {
						l.wrong(f.key, codeEnvironment, "it belongs to the policy as a whole", "%s stands in an environment", show(name))
						return
					}
				}
				out = append(out, field{key, v})
			}
		}).read(n)
	}
	return out
}

// overlay lays one value over another. Fields of objects replace those of the same
// name, and items of a list those that have the same name:; other lists and texts are
// replaced as a whole.
func overlay(base, over *node) *node {
	switch {
	case base.shape == object && over.shape == object:
		out := *base
		out.fields = slices.Clone(base.fields)
		for _, f := range over.fields {
			if i := slices.IndexFunc(out.fields, func(have field) bool { return have.key.text == f.key.text }); i >= 0 {
				out.fields[i].value = overlay(out.fields[i].value, f.value)
			} else {
				out.fields = append(out.fields, f)
			}
		}
		return &out
	case base.shape == list && over.shape == list && haveNames(base) && haveNames(over):
		out := *base
		out.items = slices.Clone(base.items)
		for _, item := range over.items {
			name := item.get("name").text
			if i := slices.IndexFunc(out.items, func(have *node) bool { return have.get("name").text == name }); i >= 0 {
				out.items[i] = overlay(out.items[i], item)
			} else {
				out.items = append(out.items, item)
			}
		}
		return &out
	}
	return over
}

func haveNames(n *node) bool {
	return !slices.ContainsFunc(n.items, func(item *node) bool { return item.get("name") == nil })
}

// inForce returns the policy of the environment that Options name, and checks those
// of all others, so that a mistake in one does not wait for its day.
func (l *loader) inForce(root *node) *node {
	chosen := root
	var names []string
	envs := l.environments(root)
	for _, e := range envs {
		names = append(names, e.key.text)
	}
	l.envNames = names
	if l.environment != "" && !slices.Contains(names, l.environment) {
		at, hint := root.get("environments"), suggest(l.environment, names, "")
		if at == nil {
			at, hint = &node{in: l.page}, "add environments: with one of that name, or leave --environment out"
		}
		l.wrong(at, codeEnvironment, hint, "the policy has no environment %s", show(l.environment))
	}
	for _, e := range envs {
		over := overlay(root, e.value)
		if e.key.text == l.environment {
			chosen = over
			continue
		}
		l.alsoCheck(over)
	}
	if len(envs) > 0 && l.environment != "" {
		l.alsoCheck(root)
	}
	return chosen
}

// alsoCheck reports what is wrong with a policy that is not in force.
func (l *loader) alsoCheck(root *node) {
	other := *l
	other.problems, other.full = nil, false
	other.compile(other.read(root))
	l.others = append(l.others, other.problems...)
}

// withOthers adds what is wrong with policies that are not in force, where it is not
// known already. What an item lacks there is no mistake of its own while there are
// others: what it is laid over may be misspelt.
func (l *loader) withOthers() {
	failed := l.failed() || slices.ContainsFunc(l.others, func(p Problem) bool { return p.Severity == Error && p.Code != codeMissingField })
	for _, p := range l.others {
		if failed && p.Code == codeMissingField {
			continue
		}
		if len(l.problems) < maxProblems && !slices.Contains(l.problems, p) {
			l.problems = append(l.problems, p)
		}
	}
}
