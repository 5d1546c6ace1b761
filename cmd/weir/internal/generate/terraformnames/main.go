// Command terraformnames writes which arguments and blocks Terraform's AWS provider
// has for the resources that `weir generate terraform` writes, for the test of
// that text:
//
//	terraformnames OLDEST.tgz NEWEST.tgz
//
// Its arguments are packages of npm's @cdktf/provider-aws, whose declarations are
// generated from the provider's own schema: one for the oldest version of the
// provider that the text allows, one for the newest that is checked. A name is
// listed when both versions have it in the same place, and is required when
// either says so.
//
// `make terraform-names` fetches the packages and runs it.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// resources are those that `weir generate terraform` writes, and the data sources
// that its text reads.
var resources = []string{
	"aws_api_gateway_api_key", "aws_api_gateway_deployment", "aws_api_gateway_gateway_response", "aws_api_gateway_integration",
	"aws_api_gateway_method", "aws_api_gateway_method_settings", "aws_api_gateway_resource", "aws_api_gateway_rest_api",
	"aws_api_gateway_stage", "aws_api_gateway_usage_plan", "aws_api_gateway_usage_plan_key",
	"aws_apigatewayv2_api", "aws_apigatewayv2_authorizer", "aws_apigatewayv2_integration", "aws_apigatewayv2_route", "aws_apigatewayv2_stage",
	"aws_appsync_datasource", "aws_appsync_graphql_api", "aws_appsync_resolver",
	"aws_cloudwatch_dashboard", "aws_cloudwatch_log_group", "aws_cloudwatch_metric_alarm",
	"aws_dynamodb_table", "aws_iam_role", "aws_iam_role_policy", "aws_lambda_function", "aws_lambda_permission",
	"aws_wafv2_ip_set", "aws_wafv2_web_acl", "aws_wafv2_web_acl_association", "aws_wafv2_web_acl_logging_configuration",
	"data.aws_caller_identity", "data.aws_partition", "data.aws_region",
}

const head = `# The arguments and blocks of Terraform's AWS provider, for the resources that are
# generated: those that both %s and %s of hashicorp/aws have,
# by their paths, with their kinds. A block stands once, blocks as often as one
# likes. The outputs are what else a resource can be asked for.
#
# Written by make terraform-names from npm's @cdktf/provider-aws@%s
# and @cdktf/provider-aws@%s; statements of a web ACL, which have no type
# there, from the provider's source.
`

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "terraformnames: two packages are needed: run make terraform-names")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "terraformnames:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, oldest, newest string) error {
	var p [2]bindings
	for i, name := range []string{oldest, newest} {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		p[i], err = readPackage(f, resources)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, head, p[0].provider, p[1].provider, p[0].version, p[1].version)
	for _, name := range resources {
		var r [2]resource
		for i := range p {
			one, err := p[i].resource(name)
			if err != nil {
				return fmt.Errorf("version %s: %w", p[i].version, err)
			}
			r[i] = one
		}
		write(&b, name, r[0], r[1])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes what two versions of a resource have in common.
func write(b *strings.Builder, name string, old, new resource) {
	fmt.Fprintf(b, "\n%s\n", name)
	for _, path := range slices.Sorted(maps.Keys(old.arguments)) {
		o, n := old.arguments[path], new.arguments[path]
		if o.kind != n.kind {
			continue
		}
		fmt.Fprintf(b, "  %s %s", path, o.kind)
		if o.required || n.required {
			b.WriteString(" required")
		}
		b.WriteByte('\n')
	}
	var outputs []string
	for _, o := range slices.Sorted(maps.Keys(old.outputs)) {
		if _, argument := old.arguments[o]; new.outputs[o] && !argument {
			outputs = append(outputs, o)
		}
	}
	if len(outputs) > 0 {
		fmt.Fprintf(b, "  outputs: %s\n", strings.Join(outputs, " "))
	}
}
