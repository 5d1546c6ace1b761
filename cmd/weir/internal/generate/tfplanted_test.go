package generate

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each mistake in a text is found, and told by its name.
func TestTerraformMistakesAreFound(t *testing.T) {
	t.Parallel()
	p := readProvider(t)
	texts := terraforms(t)
	for _, c := range []struct{ name, in, old, new, want string }{
		{"an argument of another name", "little-stage", "  billing_mode ", "  billing ", "aws_dynamodb_table has no argument billing"},
		{"a variable of a reserved name", "little-stage", "variable \"code_key\" {", "variable \"source\" {", "no variable can have the name source"},
		{"a name of CloudFormation", "little-stage", "  api_key_source ", "  api_key_source_type ", "aws_api_gateway_rest_api has no argument api_key_source_type"},
		{"an argument that newer versions lack", "little-stage", "\n  triggers ", "\n  stage_name = \"prod\"\n  triggers ", "aws_api_gateway_deployment has no argument stage_name"},
		{"a block of another name", "little-stage", "  throttle_settings {", "  throttle {", "aws_api_gateway_usage_plan has no block throttle"},
		{"a plural", "little-stage", "text_transformation {", "text_transformations {", "has no block rule.statement.rate_based_statement.scope_down_statement."},
		{"an argument in the wrong block", "little-stage", "    limit  = ", "    rate_limit = ", "has no argument quota_settings.rate_limit"},
		{"an argument of a block beside it", "little-stage", "rate_based_statement {\n", "rate_based_statement {\n  search_string = \"/\"\n", "has no argument rule.statement.rate_based_statement.search_string"},
		{"a statement that is no scope", "little-stage", "        scope_down_statement {\n          and_statement {", "        statement {\n          and_statement {", "has no block rule.statement.rate_based_statement.statement"},
		{"a rule's action in its statement", "little-stage", "    statement {\n      rate_based_statement {", "    statement {\n      action {\n      }\n      rate_based_statement {", "has no block rule.statement.action"},
		{"statements too deep", "little-stage", "              not_statement {\n                statement {\n                  ip_set_reference_statement {\n                    arn = aws_wafv2_ip_set.except_rate_all_v4.arn\n                  }",
			"not_statement {\n statement {\n not_statement {\n statement {\n ip_set_reference_statement {\n arn = aws_wafv2_ip_set.except_rate_all_v4.arn\n }\n }\n }\n", "has no block rule.statement.rate_based_statement.scope_down_statement.and_statement.statement.not_statement.statement.not_statement"},
		{"a block as an attribute", "little-stage", "  ttl {\n    attribute_name = \"expiresAt\"\n    enabled        = true\n  }", "  ttl = { attribute_name = \"expiresAt\", enabled = true }", "ttl is a block and no attribute"},
		{"a list of blocks as an attribute", "everything", "    key          = ", "    custom_response_body = [{}]\n    key          = ", "has no argument custom_response_body.custom_response_body"},
		{"an attribute as a block", "little-stage", "  handler       = \"bootstrap\"\n", "  handler {\n  }\n", "handler is an attribute and no block"},
		{"a required argument missing", "little-stage", "    metric_name                = \"rate-all\"\n", "", "visibility_config.metric_name is required, and is missing"},
		{"a required block missing", "little-stage", "  default_action {\n    allow {\n    }\n  }\n", "", "default_action is required, and is missing"},
		{"no name where the oldest version wants one", "little-stage", "  name  = \"${var.name}-web-acl\"\n", "", "aws_wafv2_web_acl: name is required, and is missing"},
		{"a required block that may be left out", "little-stage", "  default_action {\n    allow {\n    }\n  }\n", "  dynamic \"default_action\" {\n    for_each = []\n    content {\n      allow {\n      }\n    }\n  }\n", "default_action is required, and may be left out"},
		{"a single block twice", "little-stage", "  ttl {", "  ttl {\n    enabled = true\n  }\n  ttl {", "ttl may stand once"},
		{"a text for a list", "little-stage", "architectures = [var.architecture]", "architectures = \"${var.architecture}-x\"", "architectures is a list, and another thing is given"},
		{"a list for a text", "little-stage", "  handler       = \"bootstrap\"", "  handler       = [\"bootstrap\"]", "handler is a string, and another thing is given"},
		{"a map for a text", "little-stage", "  assume_role_policy = jsonencode({", "  description = { a = 1 }\n  assume_role_policy = jsonencode({", "description is a string, and another thing is given"},
		{"a text for a number", "little-stage", "  memory_size   = 256", "  memory_size   = \"256 MB\"", "memory_size is a number, and another thing is given"},
		{"a resource that is not there", "little-stage", "aws_dynamodb_table.limits.arn", "aws_dynamodb_table.limit.arn", "aws_dynamodb_table.limit.arn is not there"},
		{"an output that is not there", "little-stage", "aws_lambda_function.function.arn", "aws_lambda_function.function.url", "aws_lambda_function.function.url: nothing"},
		{"the output of another resource", "little-stage", ".root_resource_id", ".root_id", "root_id: nothing of a aws_api_gateway_rest_api"},
		{"an argument of a block as an output", "little-stage", "aws_dynamodb_table.limits.arn", "aws_dynamodb_table.limits.attribute_name", "nothing of a aws_dynamodb_table has this name"},
		{"a resource for a value", "little-stage", "= aws_iam_role.role.arn", "= aws_iam_role.role", "aws_iam_role.role is a resource and no value"},
		{"a variable that is not there", "little-stage", "var.code_bucket", "var.bucket", "var.bucket is not there"},
		{"a data source that is not there", "little-stage", "data.aws_region.current.id", "data.aws_region.here.id", "data.aws_region.here.id is not there"},
		{"an output of a data source that is not there", "little-stage", "data.aws_partition.current.dns_suffix", "data.aws_partition.current.suffix", "nothing of a data.aws_partition"},
		{"a dependency that is not there", "little-stage", "depends_on = [", "depends_on = [aws_api_gateway_method.none, ", "aws_api_gateway_method.none is not there"},
		{"a resource that is none", "little-stage", `resource "aws_api_gateway_stage"`, `resource "aws_apigateway_stage"`, "the provider has no aws_apigateway_stage"},
		{"a name twice", "little-stage", `"aws_cloudwatch_log_group" "web_acl_log"`, `"aws_cloudwatch_log_group" "logs"`, "aws_cloudwatch_log_group.logs is there twice"},
		{"no HCL", "little-stage", "  ttl {", "  ttl {{", "main.tf:"},
	} {
		text := strings.Replace(texts[c.in], c.old, c.new, 1)
		if text == texts[c.in] {
			t.Errorf("%s: %q is not in the text of %s", c.name, c.old, c.in)
			continue
		}
		found, _ := checkTerraform(p, []byte(text))
		if !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
}

// The page of the decision says where the names are known from, in figures that
// are counted here.
func TestTerraformNamesAreKnown(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/terraform-facts.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	from := ""
	for line := range strings.Lines(string(list)) {
		switch {
		case strings.HasPrefix(line, "  "):
			for _, name := range strings.Fields(line) {
				known[snake(name)] = from
			}
		case line[0] != '#':
			from = strings.TrimSpace(line)
		}
	}
	p := readProvider(t)
	names, paths := map[string]bool{}, 0
	for kind, used := range usedBy(t, p) {
		paths += len(used)
		for path := range used {
			names[path[strings.LastIndexByte(path, '.')+1:]] = true
			if _, ok := p[kind].arguments[path]; !ok {
				t.Errorf("%s has no %s", kind, path)
			}
		}
	}
	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		count[known[name]]++
	}
	for name := range known {
		if !names[name] {
			t.Errorf("%s is listed, and no text has it", name)
		}
	}
	want := fmt.Sprintf("%d names in %d places: %d listed as they are, %d as a property of CloudFormation, %d by the provider's schema alone",
		len(names), paths, count["terraform"], count["cloudformation"], count[""])
	t.Log(want)
	page, err := os.ReadFile(root + "/docs/decisions/0013-terraform-names.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := regexp.MustCompile(`\s+`).ReplaceAllString(string(page), " "); !strings.Contains(words, want) {
		t.Errorf("the page of the decision does not say: %s", want)
	}
}

// usedBy are the paths that the texts use, by resource.
func usedBy(t *testing.T, p provider) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, text := range terraforms(t) {
		_, used := checkTerraform(p, []byte(text))
		for kind, paths := range used {
			if all[kind] == nil {
				all[kind] = map[string]bool{}
			}
			maps.Copy(all[kind], paths)
		}
	}
	return all
}
