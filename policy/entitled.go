package policy

import (
	"reflect"
	"strings"
)

// entitlements is what `from:` of plans knows when it is an expression: only what
// is verified, so that nobody chooses a plan by what he sends.
type entitlements struct {
	Claims   map[string]any `expr:"claims"`    // of a verified token
	KeyOwner string         `expr:"key_owner"` // of a verified API key; "" without one
	KeyPlan  string         `expr:"key_plan"`  // likewise
}

// entitlement reads an expression that says to which plans a caller is entitled:
// the name of one, or a list of names.
func (l *loader) entitlement(n *node) (c caller, ok bool) {
	c.from, c.written = fromExpression, n.text
	c.program = l.expression(n, "from", &entitlements{}, reflect.Interface)
	return c, c.program != nil
}

// isExpression tells an expression from the name of a source.
func isExpression(n *node) bool {
	return n.shape == scalar && (strings.ContainsAny(n.text, " ()[]?!=+'\"") || strings.HasPrefix(n.text, "claims.") || n.text == "key_plan" || n.text == "key_owner")
}
