package generate

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/weirlabs/weir/policy"
)

// knownNames reads which names the provider has for each resource.
func knownNames(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/terraform-names.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if name, list, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			known[name] = strings.Fields(list)
		}
	}
	return known
}

// Terraform's text parses, has only names that the provider has, and refers only
// to what is there.
func TestSpec_A11_TerraformIsSound(t *testing.T) {
	t.Parallel()
	known := knownNames(t)
	used := map[string]map[string]bool{}
	for name, c := range map[string]struct {
		p *policy.Policy
		o Options
	}{
		"little-stage":   {load(t, os.DirFS(root+"/examples/little-stage")), Options{Approximate: true}},
		"everything":     {everythingPolicy(t), Options{}},
		"http":           {loadText(t, overHTTP), Options{Environment: []Variable{{"LIMIT", "3"}}}},
		"appsync":        {loadText(t, overAppSync), Options{API: AppSync}},
		"appsync-quotas": {load(t, os.DirFS(root+"/examples/appsync-quotas")), Options{LoseData: true}},
	} {
		out, err := Terraform(c.p, c.o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Terraform(c.p, c.o)
		if err != nil || string(again.Files[0].Text) != string(out.Files[0].Text) {
			t.Errorf("%s: the same policy gives another text", name)
		}
		f, problems := hclsyntax.ParseConfig(out.Files[0].Text, "main.tf", hcl.InitialPos)
		if problems.HasErrors() {
			t.Fatalf("%s: %v\n%s", name, problems, out.Files[0].Text)
		}
		there := map[string]bool{}
		for _, b := range f.Body.(*hclsyntax.Body).Blocks {
			address := strings.Join(append([]string{b.Type}, b.Labels...), ".")
			address = strings.TrimPrefix(strings.Replace(address, "variable.", "var.", 1), "resource.")
			if there[address] {
				t.Errorf("%s: %s is there twice", name, address)
			}
			there[address] = true
			if b.Type == "resource" {
				if used[b.Labels[0]] == nil {
					used[b.Labels[0]] = map[string]bool{}
				}
				names(b.Body, used[b.Labels[0]])
			}
		}
		hclsyntax.VisitAll(f.Body.(*hclsyntax.Body), func(n hclsyntax.Node) hcl.Diagnostics {
			expression, ok := n.(*hclsyntax.ScopeTraversalExpr)
			if !ok {
				return nil
			}
			var parts []string
			for _, step := range expression.Traversal {
				switch s := step.(type) {
				case hcl.TraverseRoot:
					parts = append(parts, s.Name)
				case hcl.TraverseAttr:
					parts = append(parts, s.Name)
				}
			}
			switch {
			case parts[0] == "var" && there[strings.Join(parts, ".")]:
			case parts[0] == "data" && there[strings.Join(parts[:3], ".")]:
			case strings.HasPrefix(parts[0], "aws_") && there[strings.Join(parts[:2], ".")]:
				if len(parts) > 2 && !slices.Contains([]string{"id", "arn", "name", "uris", "stage_name", "function_name", "http_method", "root_resource_id", "api_endpoint"}, parts[2]) {
					t.Errorf("%s: nothing has the attribute %s", name, strings.Join(parts, "."))
				}
			case parts[0] == "string" || parts[0] == "number":
			default:
				t.Errorf("%s: %s is not there", name, strings.Join(parts, "."))
			}
			return nil
		})
	}
	for kind, list := range used {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !slices.Contains(known[kind], name) {
				t.Errorf("%s has no %s", kind, name)
			}
		}
	}
	for kind := range known {
		if used[kind] == nil {
			t.Errorf("no policy of this test leads to %s", kind)
		}
	}
}

// names collects the names of attributes and blocks, but for those of Terraform
// itself.
func names(b *hclsyntax.Body, into map[string]bool) {
	for name := range b.Attributes {
		if name != "depends_on" {
			into[name] = true
		}
	}
	for _, inner := range b.Blocks {
		switch inner.Type {
		case "lifecycle":
		case "dynamic":
			into[inner.Labels[0]] = true
			names(inner.Body.Blocks[0].Body, into)
		default:
			into[inner.Type] = true
			names(inner.Body, into)
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
