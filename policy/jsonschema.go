package policy

import (
	"encoding/json"
	"maps"
	"slices"
)

// schema is the part of JSON Schema, draft 2020-12, that says what a policy may
// be.
type schema struct {
	def string // the name under which it stands once, in $defs; "" where it is used

	Schema      string             `json:"$schema,omitempty"`
	ID          string             `json:"$id,omitempty"`
	Ref         string             `json:"$ref,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // a word, or a list of words
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	MinLength   int                `json:"minLength,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Examples    []string           `json:"examples,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Names       *schema            `json:"propertyNames,omitempty"`
	Others      any                `json:"additionalProperties,omitempty"` // false, or what they are
	Items       *schema            `json:"items,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
	Defs        map[string]*schema `json:"$defs,omitempty"`
}

// scalarTypes are those of JSON that a text may have in YAML without quotes.
var scalarTypes = []string{"string", "number", "boolean"}

func textForm() *schema { return &schema{Type: scalarTypes} }

func nameForms() *schema {
	return &schema{def: "name", Type: "string", Pattern: namePattern,
		Description: "A lower-case letter, then up to 31 letters, digits or -."}
}

func limitForm() *schema {
	return &schema{def: "limit", Type: scalarTypes,
		Description: "A limit: N/UNIT with an optional burst (token bucket), quota N/UNIT, quota N/UNIT calendar ZONE, quota N/UNIT billing, or sliding N/UNIT. UNIT is s, m, h, d, a word from second to year, or a number with a unit such as 5m.",
		Examples:    []string{"10/s burst 20", "quota 100/day", "quota 5000/month calendar Europe/Berlin", "sliding 2000/5m"}}
}

func networkForm() *schema {
	return &schema{def: "network", Type: "string", Description: "A network or one address.", Examples: []string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.7"}}
}

func listOf(item *schema) *schema { return &schema{Type: "array", Items: item, MinItems: 1} }

func oneOrList(item *schema) *schema { return &schema{AnyOf: []*schema{item, listOf(item)}} }

// mapOf is an object with fields that its author names.
func mapOf(names func() *schema, v *schema) *schema {
	return &schema{Type: "object", Names: names(), Others: v}
}

func objectForm(rows []row) *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}, Others: false}
	for _, r := range rows {
		v := r.form()
		if v.def != "" { // so that the description of the field is seen, and not that of all such fields
			v = &schema{AnyOf: []*schema{v}}
		}
		v.Description = r.about
		s.Properties[r.name] = v
		if r.need {
			s.Required = append(s.Required, r.name)
		}
	}
	return s
}

// partial is the form of what is laid over: nothing has to be there but names, by
// which items are found.
func (s *schema) partial() *schema {
	if s == nil {
		return nil
	}
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name != "name" })
	for _, p := range s.Properties {
		p.partial()
	}
	for _, p := range s.AnyOf {
		p.partial()
	}
	s.Items.partial()
	if v, ok := s.Others.(*schema); ok {
		v.partial()
	}
	return s
}

// shared moves what has a name of its own into defs, once.
func (s *schema) shared(defs map[string]*schema) *schema {
	if s == nil {
		return nil
	}
	s.Names, s.Items = s.Names.shared(defs), s.Items.shared(defs)
	for name, p := range s.Properties {
		s.Properties[name] = p.shared(defs)
	}
	for i, p := range s.AnyOf {
		s.AnyOf[i] = p.shared(defs)
	}
	if v, ok := s.Others.(*schema); ok {
		s.Others = v.shared(defs)
	}
	if s.def == "" {
		return s
	}
	defs[s.def] = s
	return &schema{Ref: "#/$defs/" + s.def}
}

// schemaOf is the form of a whole policy.
func schemaOf() *schema {
	l := &loader{document: document{page: &page{}}}
	return objectForm(l.policyRows(new(config)))
}

// Schema is the JSON Schema of a policy file, draft 2020-12, as `weir schema`
// prints it. It is written from the table by which [Load] reads, so that it knows
// every field that Load knows. It cannot know all that Load checks: what loads
// satisfies it, and not the other way round.
func Schema() []byte {
	s, defs := schemaOf(), map[string]*schema{}
	s = s.shared(defs)
	s.Schema, s.Title, s.Defs = "https://json-schema.org/draft/2020-12/schema", "weir policy", defs
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil // there is nothing in it that JSON cannot hold
	}
	return append(b, '\n')
}

// paths are the paths of all fields: edge[].limit, gateway.plans.*.
func (s *schema) paths(at string, see func(path string)) {
	if s == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		path := name
		if at != "" {
			path = at + "." + name
		}
		see(path)
		s.Properties[name].paths(path, see)
	}
	if v, ok := s.Others.(*schema); ok {
		see(at + ".*")
		v.paths(at+".*", see)
	}
	s.Items.paths(at+"[]", see)
	for _, p := range s.AnyOf {
		p.paths(at, see)
	}
}
