// Package expression compiles the expressions of a policy, such as those of
// `when:` and `cost:`, in the language of [github.com/expr-lang/expr]:
//
//	p, err := policy.Load(files, "weir.yaml", policy.Options{Expressions: expression.Compile})
//
// It stands apart from package policy for its size. The language looks methods
// up by their names, and a linker must keep every exported method of a program
// that does so: some 5 MiB more in a Lambda function with the AWS SDK. A
// program whose policies have no expressions leaves the option out; an expression
// is then a mistake at its line.
package expression

import (
	"errors"
	"reflect"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"

	"github.com/weirlabs/weir/policy"
)

// Compile is a [policy.Compiler]. It checks all types, so that a name that env
// lacks and a result of another kind are mistakes at load. The expression has no
// now(): it depends on env alone.
func Compile(text string, env any, want reflect.Kind) (policy.Expression, error) {
	as := expr.AsKind(want)
	if want == reflect.Interface {
		as = expr.AsAny()
	}
	program, err := expr.Compile(text, expr.Env(env), expr.DisableBuiltin("now"), as)
	if err != nil {
		return nil, mistake(err)
	}
	return func(env any) (any, error) { return expr.Run(program, env) }, nil
}

var plainer = strings.NewReplacer("expected float64", "expected a number", "expected bool", "expected true or false",
	"expected string", "expected a text", `Operator("=")`, "=")

// mistake says in the policy's words what the compiler says.
func mistake(err error) error {
	m := new(policy.ExpressionError)
	m.Message, _, _ = strings.Cut(err.Error(), "\n")
	if at := new(file.Error); errors.As(err, &at) {
		m.Line, m.Column, m.Message = at.Line, at.Column, at.Message
	}
	m.Message = strings.TrimSpace(plainer.Replace(m.Message))
	if strings.HasSuffix(m.Message, "token =") {
		m.Hint = "compare with =="
	}
	if name, ok := strings.CutPrefix(m.Message, "unknown name "); ok {
		m.Unknown = name
	}
	return m
}
