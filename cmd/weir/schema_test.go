package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirlabs/weir/policy"
)

// validator is the policy's schema, compiled by a foreign implementation.
func validator(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(policy.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("weir.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("weir.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(s *jsonschema.Schema, text []byte) error {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	return s.Validate(doc)
}

// policies are the policies of the repository: files, and the sections of test
// data that are one.
func policies(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if e != nil && (e.Name() == "node_modules" || e.Name() == ".git") {
				return fs.SkipDir
			}
			return err
		}
		inData := strings.Contains(path, "policy/testdata/")
		if !strings.HasSuffix(path, "weir.yaml") && !inData {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !inData {
			out[path] = text
			return nil
		}
		name := ""
		for line := range strings.Lines(string(text)) {
			if s, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok && strings.HasSuffix(s, " --") {
				name = path + " " + strings.TrimSuffix(s, " --")
			} else if strings.HasSuffix(name, ".yaml") {
				out[name] = append(out[name], line...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What loads satisfies the schema: an editor never marks what weir accepts.
func TestEveryPolicySatisfiesTheSchema(t *testing.T) {
	s := validator(t)
	dir := t.TempDir()
	loaded := 0
	for name, text := range policies(t) {
		file := filepath.Join(dir, "weir.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/weir.yaml") && !strings.Contains(name, "testdata") {
			file = name // with the files that it names
		}
		if _, err := loadPolicy(file); err != nil {
			if strings.HasPrefix(name, "../../examples/") && !strings.Contains(name, "lambda") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		loaded++
		if err := validate(s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if loaded < 15 {
		t.Errorf("only %d policies were looked at", loaded)
	}
}

// The schema refuses what is wrong in form.
func TestTheSchemaRefuses(t *testing.T) {
	s := validator(t)
	for _, text := range []string{
		"name: x",
		"weir: 1\nnam: x",
		"weir: 1\nname: Shop",
		"weir: 1\nedge: {name: a}",
		"weir: 1\nedge: []",
		"weir: 1\nedge: [{name: a, by: ip}]",
		"weir: 1\nedge: [{name: a, by: ip, limit: 1/s, mode: shaddow}]",
		"weir: 1\nedge: [{name: a, by: ip, limit: 1/s, priority: -1}]",
		"weir: 1\nedge: [{name: a, by: ip, limit: 1/s, match: /a}]",
		"weir: 1\nedge: [{name: a, by: {ip: x}, limit: 1/s}]",
		"weir: 1\ngateway: {match: /a}",
		"weir: 1\napplication: {operations: {Bad: {match: /a}}}",
		"weir: 1\napplication: {plans: {free: [1/s]}}",
		"weir: 1\ncors: {origins: 7}\nrevision: a",
	} {
		if validate(s, []byte(text)) == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
	}
	if err := validate(s, []byte("weir: 1\n")); err != nil {
		t.Error(err)
	}
}
