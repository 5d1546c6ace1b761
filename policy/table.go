package policy

// The file's form is one table: every object has rows, every row a field. The
// decoder reads by it and the JSON Schema is written by it, so that neither can
// know what the other does not.

// row is one field of an object.
type row struct {
	name  string
	need  bool
	about string // one sentence for the schema and for editors
	value
}

// value is what may stand in one place of the file.
type value struct {
	form func() *schema // as a part of the schema
	read func(*node)    // reports what is wrong
}

// object reads the fields of n by a table.
func (l *loader) object(n *node, what string, rows ...row) {
	if !l.is(n, object, what) {
		return
	}
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].name
	}
	meant := map[string]bool{} // by a misspelt field
	for _, f := range n.fields {
		r := find(rows, f.key.text)
		if r == nil {
			if f.value.shape != broken {
				l.wrong(f.key, codeUnknownField, suggest(f.key.text, names, advice[f.key.text]), "unknown field %s in %s", show(f.key.text), what)
			}
			// It is read as the field that is meant, so that this one is not missed as well.
			best := nearest(f.key.text, names)
			if meant[best] || n.get(best) != nil {
				continue
			}
			meant[best] = true
			if r = find(rows, best); r == nil {
				continue
			}
		}
		if f.value.shape != broken {
			r.read(f.value)
		}
	}
	for _, r := range rows {
		if r.need && n.get(r.name) == nil && !meant[r.name] && !n.partial {
			l.wrong(n, codeMissingField, needed[r.name], "%s needs a field %s", what, show(r.name))
		}
	}
}

// fields is an object with the rows that build gives for each value: those of
// the schema are of a value that is nobody's.
func (l *loader) fields(what string, build func(*node) []row) value {
	return value{
		form: func() *schema { return objectForm(build(&node{})) },
		read: func(n *node) {
			if l.is(n, object, what) {
				l.object(n, what, build(n)...)
			}
		},
	}
}

// named is an object whose fields have names that the author chooses. read sees
// those that can be one.
func (l *loader) named(what, whose string, form func() *schema, read func(key, v *node)) value {
	return value{
		form: func() *schema { return mapOf(nameForms, form()) },
		read: func(n *node) {
			if !l.is(n, object, what) {
				return
			}
			for _, f := range n.fields {
				if f.value.shape != broken && l.checkName(f.key, whose) {
					read(f.key, f.value)
				}
			}
		},
	}
}
