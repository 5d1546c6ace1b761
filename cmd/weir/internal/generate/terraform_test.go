package generate

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/weirlabs/weir/policy"
)

// terraforms are texts that hold between them all that is generated.
func terraforms(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, c := range map[string]struct {
		p *policy.Policy
		o Options
	}{
		"little-stage":   {load(t, os.DirFS(root+"/examples/little-stage")), Options{Approximate: true}},
		"everything":     {everythingPolicy(t), Options{}},
		"http":           {loadText(t, overHTTP), Options{Environment: []Variable{{"LIMIT", "3"}, {"VERSION", "7"}}}},
		"appsync":        {loadText(t, overAppSync), Options{API: AppSync}},
		"appsync-quotas": {load(t, os.DirFS(root+"/examples/appsync-quotas")), Options{LoseData: true}},
	} {
		got, err := Terraform(c.p, c.o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Terraform(c.p, c.o)
		if err != nil || string(again.Files[0].Text) != string(got.Files[0].Text) {
			t.Errorf("%s: the same policy gives another text", name)
		}
		out[name] = string(got.Files[0].Text)
	}
	return out
}

// Terraform's text parses, has every name in the place where the provider has it,
// leaves out nothing that is required, and refers only to what is there.
func TestSpec_A11_TerraformIsSound(t *testing.T) {
	t.Parallel()
	p := readProvider(t)
	used := map[string]bool{}
	for name, text := range terraforms(t) {
		found, paths := checkTerraform(p, []byte(text))
		for _, problem := range found {
			t.Errorf("%s: %s", name, problem)
		}
		for kind := range paths {
			used[kind] = true
		}
	}
	for kind := range p {
		if !used[kind] {
			t.Errorf("no policy of this test leads to %s", kind)
		}
	}
}

// A limit of the template is the limit of the Terraform text.
func TestTerraformSaysWhatTheTemplateSays(t *testing.T) {
	t.Parallel()
	p := everythingPolicy(t)
	a, err := CloudFormation(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Terraform(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]string{
		"requests":   `(?m)^ +(?:Limit:|limit +=) (\d+)$`,
		"windows":    `(?m)^ +(?:EvaluationWindowSec:|evaluation_window_sec +=) (\d+)$`,
		"rates":      `(?m)^ +(?:RateLimit:|rate_limit +=) ([\d.]+)$`,
		"bursts":     `(?m)^ +(?:BurstLimit:|burst_limit +=) (\d+)$`,
		"priorities": `(?m)(?:Priority:|priority +=) (\d+)$`,
		"paths":      `(?:SearchString: !Sub|search_string +=) "\$\{[A-Za-z.]+(?:path_prefix)?\}([^"]*)"`,
	} {
		var found [2][]string
		for i, text := range []string{string(a.Files[1].Text), string(b.Files[0].Text)} {
			for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
				found[i] = append(found[i], m[1])
			}
		}
		if len(found[0]) == 0 || !slices.Equal(found[0], found[1]) {
			t.Errorf("%s: %q in the template, %q in Terraform", name, found[0], found[1])
		}
	}
}
