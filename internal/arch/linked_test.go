package arch

import (
	"os/exec"
	"strings"
	"testing"
)

// What a Lambda function links holds nothing that looks methods up by their
// names: where anything does, a linker keeps every exported method of every type,
// some 5 MiB with the AWS SDK. Expressions are therefore handed to a policy, and
// messages have no template language.
func TestLambdaFunctionsStaySmall(t *testing.T) {
	linked := func(path string) map[string]bool {
		t.Helper()
		out, err := exec.Command("go", "list", "-deps", "github.com/weirlabs/weir/"+path).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", path, err)
		}
		packages := map[string]bool{}
		for p := range strings.FieldsSeq(string(out)) {
			packages[p] = true
		}
		return packages
	}
	heavy := []string{"text/template", "html/template", "github.com/expr-lang/expr/vm"}
	for _, path := range []string{"policy", "engine", "engine/answer", "lambdalimit", "httplimit", "dynamostore"} {
		packages := linked(path)
		if !packages["github.com/weirlabs/weir/"+path] {
			t.Errorf("%s does not list itself: %v", path, packages)
		}
		for _, h := range heavy {
			if packages[h] {
				t.Errorf("%s links %s; hand what needs it in, as policy.Options.Expressions is: go list -deps ./%s finds the way, make bench-lambda measures the size", path, h, path)
			}
		}
	}
	if !linked("policy/expression")[heavy[2]] {
		t.Errorf("policy/expression does not link %s: correct the path in this test", heavy[2])
	}
}
