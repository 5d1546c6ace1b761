package policy_test

import (
	"os"
	"testing"

	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

func TestMain(m *testing.M) {
	policy.Expressions = expression.Compile
	os.Exit(m.Run())
}
