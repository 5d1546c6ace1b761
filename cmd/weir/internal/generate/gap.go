package generate

import (
	"fmt"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// Direction says how a layer of AWS differs from the policy where it cannot say
// the same.
type Direction string

// The directions of a [Gap].
const (
	Looser   Direction = "looser"   // it lets through what the policy refuses, and refuses nothing that the policy allows
	Stricter Direction = "stricter" // it refuses what the policy allows
	Differs  Direction = "differs"  // it does both, at different times
)

// Gap is one thing of the policy that a service of AWS cannot do as it is said.
type Gap struct {
	Rule      string // the limit or exemption
	Line      int    // of the policy
	Problem   string // what cannot be expressed
	Nearest   string // what comes nearest, and is generated with Options.Approximate
	Direction Direction
}

// String is the gap in one line, without the file's name.
func (g Gap) String() string {
	return fmt.Sprintf("line %d: %s: %s; nearest: %s (%s)", g.Line, g.Rule, g.Problem, g.Nearest, g.Direction)
}

// Gaps is the error of a policy that cannot be generated exactly.
type Gaps []Gap

// Error lists all gaps.
func (gs Gaps) Error() string {
	lines := []string{"AWS cannot do all that the policy says:"}
	for _, g := range gs {
		lines = append(lines, "  "+g.String())
	}
	return strings.Join(lines, "\n")
}

func gapOf(r *policy.Rule, d Direction, nearest, problem string, args ...any) Gap {
	return Gap{Rule: r.Name, Line: r.Line, Problem: fmt.Sprintf(problem, args...), Nearest: nearest, Direction: d}
}
