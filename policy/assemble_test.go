package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func files(texts ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(texts); i += 2 {
		fsys[texts[i]] = &fstest.MapFile{Data: []byte(texts[i+1])}
	}
	return fsys
}

func rulesOf(p *Policy) string {
	var out []string
	for _, r := range p.Rules() {
		out = append(out, r.Name+" "+r.Limit.String()+" "+string(r.Mode))
	}
	return strings.Join(out, "; ")
}

func TestIncludedFilesArePartOfThePolicy(t *testing.T) {
	p, err := Load(files(
		"conf/weir.yaml", "weir: 1\ninclude: [a.yaml, more/b.yaml]\nname: whole\napplication:\n  limits:\n    - {name: x, by: ip, match: /x, limit: 1/s}\n",
		"conf/a.yaml", "application:\n  limits:\n    - {name: y, by: ip, match: /y, limit: 2/s}\n",
		"conf/more/b.yaml", "weir: 1\nedge: [{name: z, by: ip, limit: 3/s}]\napplication: {limits: [{name: w, by: account, match: /w, limit: 4/s}]}\n",
	), "conf/weir.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rulesOf(p), "z 3/s enforce; x 1/s enforce; y 2/s enforce; w 4/s enforce"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !slices.Equal(p.Files(), []string{"a.yaml", "more/b.yaml"}) {
		t.Errorf("files: %v", p.Files())
	}
}

// A mistake is shown in the file where it stands.
func TestMistakesOfIncludedFiles(t *testing.T) {
	_, err := Load(files(
		"weir.yaml", "weir: 1\ninclude: [a.yaml, a.yaml, gone.yaml]\nname: whole\nrevision: x\n",
		"a.yaml", "name: other\n\napplication:\n  limits:\n    - {name: y, by: nobody, limit: 2/s}\ninclude: b.yaml\nweir: 2\n",
	), "weir.yaml", Options{File: "dir/weir.yaml"})
	var ps Problems
	if !errors.As(err, &ps) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"dir/weir.yaml:2:19: error: `a.yaml` is given twice",
		"dir/weir.yaml:2:27: error: `gone.yaml` cannot be read",
		"dir/weir.yaml:4:11: error: `x` is not a whole number",
		"dir/a.yaml:1:1: error: `name` is given twice; the first is in dir/weir.yaml, line 3",
		"dir/a.yaml:5:21: error: `nobody` is not one of the callers [WEIR1403]\n    5 |     - {name: y, by: nobody, limit: 2/s}\n",
		"dir/a.yaml:6:1: error: `include` stands in an included file",
		"dir/a.yaml:7:7: error: version `2`",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin\n%v", want, err)
		}
	}
	if len(ps) != 7 {
		t.Errorf("%d problems, want 7:\n%v", len(ps), err)
	}
}

// Whatever is included says one thing that is so.
func TestIncludesOfNothingAndOfItself(t *testing.T) {
	for _, c := range []struct{ file, include, want string }{
		{"weir.yaml", `""`, "include is empty [WEIR1104]"},
		{"weir.yaml", `" "`, "include is empty [WEIR1104]"},
		{"weir.yaml", "weir.yaml", "the file includes itself"},
		{"weir.yaml", "./weir.yaml", "the file includes itself"},
		{"dir/weir.yaml", "weir.yaml", "the file includes itself"},
		{"dir/weir.yaml", "../dir/weir.yaml", "the file includes itself"},
		{"/etc/weir.yaml", "/etc/weir.yaml", "the file includes itself"},
		{"weir.yaml", "a.yaml, ./a.yaml", "`./a.yaml` is given twice"},
	} {
		_, err := Load(files("weir.yaml", "weir: 1\ninclude: ["+c.include+"]\nname: a\n", "a.yaml", "revision: 1\n"), "weir.yaml", Options{File: c.file})
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(ps[0].String(), c.want) {
			t.Errorf("%s of %s: %v, want %s", c.include, c.file, err, c.want)
		}
	}
}

const places = `weir: 1
store: "memory:"
edge: [{name: e, by: ip, limit: 9/s}]
application:
  limits:
    - {name: a, match: /a, by: [account, ip], limit: 1/s}
    - {name: b, match: /b, by: [account, ip], limit: 2/s}
environments:
  staging:
    store: redis://x
    mode: shadow
    application: {limits: [{name: b, limit: 5/s, by: ip}, {name: c, match: /c, by: ip, limit: 7/s}]}
  production: {edge: [{name: e, mode: "off"}]}
`

func TestEnvironments(t *testing.T) {
	for env, want := range map[string]string{
		"":           "memory: e 9/s enforce; a 1/s enforce; b 2/s enforce",
		"staging":    "redis://x e 9/s shadow; a 1/s shadow; b 5/s shadow; c 7/s shadow",
		"production": "memory: e 9/s off; a 1/s enforce; b 2/s enforce",
	} {
		p, err := Load(files("weir.yaml", places), "weir.yaml", Options{Environment: env})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Store() + " " + rulesOf(p); got != want || p.Environment() != env {
			t.Errorf("%s:\ngot  %s\nwant %s", env, got, want)
		}
		if !slices.Equal(p.Environments(), []string{"staging", "production"}) {
			t.Error(p.Environments())
		}
	}
}

// A mistake in one environment shows whichever is in force, once and at its place.
func TestMistakesOfEnvironments(t *testing.T) {
	for _, c := range []struct{ text, env, want string }{
		{strings.Replace(places, "limit: 5/s", "limit: 5/x", 1), "", "weir.yaml:12:45: error: limit"},
		{strings.Replace(places, "limit: 5/s", "limit: 5/x", 1), "production", "weir.yaml:12:45: error: limit"},
		{strings.Replace(places, "mode: \"off\"", "mod: \"off\"", 1), "staging", "weir.yaml:13:33: error: unknown field `mod`"},
		{strings.Replace(places, "store: redis", "weir: 1\n    store: redis", 1), "", "weir.yaml:10:5: error: `weir` stands in an environment"},
		{places, "stagin", "weir.yaml:9:3: error: the policy has no environment `stagin` [WEIR1115]"},
		{"weir: 1\n", "staging", "weir.yaml: error: the policy has no environment `staging`"},
		{strings.Replace(places, "by: ip, limit: 9/s", "by: ip, limit: 9/x", 1), "staging", "weir.yaml:3:33: error: limit"},
	} {
		_, err := Load(files("weir.yaml", c.text), "weir.yaml", Options{Environment: c.env})
		var ps Problems
		if !errors.As(err, &ps) {
			t.Errorf("environment %q: %v", c.env, err)
		}
		ps = slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Severity == Warning })
		if len(ps) != 1 || !strings.HasPrefix(ps.Error(), c.want) {
			t.Errorf("environment %q:\n%v\nwant %s", c.env, err, c.want)
		}
	}
}
