package policy

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// examplesOf are the blocks of a page between ```LANGUAGE and ```.
func examplesOf(page, language string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(page, "```"+language+"\n")
		if !ok {
			return out
		}
		block, after, _ := strings.Cut(rest, "```")
		out, page = append(out, block), after
	}
}

// docFiles are the files that the examples name. A block that begins with a
// comment of nothing but a file's name is that file, and no policy.
func docFiles(t *testing.T, page string) fstest.MapFS {
	t.Helper()
	public, err := os.ReadFile("testdata/public.pem")
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{
		"partners.keys": {Data: []byte("acme - " + hashOf("a key of acme") + "\n")},
		"public.pem":    {Data: public},
	}
	for _, text := range examplesOf(page, "yaml") {
		if name := fileOf(text); name != "" {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return fsys
}

func fileOf(example string) string {
	first, _, _ := strings.Cut(example, "\n")
	if name, ok := strings.CutPrefix(first, "# "); ok && strings.HasSuffix(name, ".yaml") && !strings.Contains(name, " ") {
		return name
	}
	return ""
}

// used notes the paths of a document's fields, as schema.paths names them.
func (n *node) used(s *schema, at string, see func(string)) {
	if s == nil {
		return
	}
	for _, f := range n.fields {
		path := f.key.text
		if at != "" {
			path = at + "." + path
		}
		if p, ok := s.Properties[f.key.text]; ok {
			see(path)
			f.value.used(p, path, see)
		} else if v, ok := s.Others.(*schema); ok {
			see(at + ".*")
			f.value.used(v, at+".*", see)
		}
	}
	for _, i := range n.items {
		i.used(s.Items, at+"[]", see)
	}
	for _, p := range s.AnyOf {
		n.used(p, at, see)
	}
}

// words are the texts of a document, each with the field that it stands in.
func (n *node) words(field string, see func(string)) {
	for _, f := range n.fields {
		f.value.words(f.key.text, see)
	}
	for _, i := range n.items {
		i.words(field, see)
	}
	see(field + "=" + n.text)
}

// words are those that a field may have, each with the field.
func (s *schema) words(field string, see func(string)) {
	if s == nil {
		return
	}
	for _, w := range s.Enum {
		see(field + "=" + w)
	}
	for name, p := range s.Properties {
		if name != "environments" { // the same once more
			p.words(name, see)
		}
	}
	if v, ok := s.Others.(*schema); ok {
		v.words("", see)
	}
	s.Items.words(field, see)
	for _, p := range s.AnyOf {
		p.words(field, see)
	}
}

// Every field of the file stands in docs/policy.md, in an example that loads.
// Whoever adds a field adds an example.
func TestCase_B250_EveryFieldIsInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := string(text)
	shown := map[string]bool{}
	for _, example := range examplesOf(docs, "yaml") {
		if fileOf(example) != "" {
			continue
		}
		fsys := docFiles(t, docs)
		fsys["weir.yaml"] = &fstest.MapFile{Data: []byte(example)}
		if _, err := Load(fsys, "weir.yaml", Options{Expressions: Expressions}); err != nil {
			t.Errorf("an example does not load:\n%s\n%v", example, err)
			continue
		}
		d := document{page: &page{}}
		root := d.parse([]byte(example))
		root.used(schemaOf(), "", func(path string) { shown[path] = true })
	}
	words := map[string]bool{} // FIELD=WORD, wherever the field stands
	for _, example := range examplesOf(docs, "yaml") {
		d := document{page: &page{}}
		d.parse([]byte(example)).words("", func(word string) { words[word] = true })
	}
	asked := 0
	schemaOf().words("", func(word string) {
		if asked++; !words[word] {
			t.Errorf("no example of docs/policy.md has %s", word)
		}
	})
	if asked < 50 {
		t.Errorf("only %d words are known", asked)
	}
	known := 0
	schemaOf().paths("", func(path string) {
		if strings.HasPrefix(path, "environments.*.") {
			return // the same once more
		}
		known++
		if !shown[path] {
			t.Errorf("no example of docs/policy.md has the field %s", path)
		}
		field := path[strings.LastIndexByte(path, '.')+1:]
		if field != "*" && !strings.Contains(docs, "`"+field+"`") {
			t.Errorf("docs/policy.md says nothing of `%s`", field)
		}
	})
	if known < 60 {
		t.Errorf("only %d fields are known", known)
	}
}
