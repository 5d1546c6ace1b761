package main

// The package gives a web ACL's statements the type any, because they nest. What
// stands here was read in the provider's source, internal/service/wafv2/schemas.go:
// a rate-based rule may have a statement of its own, in which and, or and not may
// stand within each other twice. Of the statements that look at a request these
// are the two that are generated.
var (
	leaf = map[string]argument{
		"byte_match_statement":                                  {"block", false},
		"byte_match_statement.field_to_match":                   {"block", false},
		"byte_match_statement.field_to_match.uri_path":          {"block", false},
		"byte_match_statement.positional_constraint":            {"string", true},
		"byte_match_statement.search_string":                    {"string", true},
		"byte_match_statement.text_transformation":              {"blocks", true},
		"byte_match_statement.text_transformation.priority":     {"number", true},
		"byte_match_statement.text_transformation.type":         {"string", true},
		"ip_set_reference_statement":                            {"block", false},
		"ip_set_reference_statement.arn":                        {"string", true},
		"ip_set_reference_statement.ip_set_forwarded_ip_config": {"block", false},
	}
	rate = map[string]argument{
		"aggregate_key_type":    {"string", false},
		"custom_key":            {"blocks", false},
		"evaluation_window_sec": {"number", false},
		"forwarded_ip_config":   {"block", false},
		"limit":                 {"number", true},
		"scope_down_statement":  {"block", false},
	}
)

// statements adds the statements of a web ACL's rules.
func (r *resource) statements() {
	r.arguments["rule.statement"] = argument{"block", true}
	at := "rule.statement.rate_based_statement"
	r.arguments[at] = argument{"block", false}
	for name, a := range rate {
		r.arguments[at+"."+name] = a
	}
	r.statement(at+".scope_down_statement", 2)
}

// statement adds what may stand in a statement, which depth others may nest in.
func (r *resource) statement(at string, depth int) {
	for name, a := range leaf {
		r.arguments[at+"."+name] = a
	}
	if depth == 0 {
		return
	}
	for _, join := range []string{"and_statement", "or_statement", "not_statement"} {
		r.arguments[at+"."+join] = argument{"block", false}
		r.arguments[at+"."+join+".statement"] = argument{"blocks", true}
		r.statement(at+"."+join+".statement", depth-1)
	}
}
