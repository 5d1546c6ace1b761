package dynamostore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// DynamoDB takes 4 KB of an expression and 300 operators in it, which the test's
// server does not count. So many limits of any kind must fit, of a new item and of
// one in use.
func TestExpressionsOfManyLimits(t *testing.T) {
	const limits = 35
	now := time.Date(2027, 3, 14, 15, 9, 26, 535897932, time.UTC).UnixNano()
	s := &Store{table: "t"}
	for _, text := range []string{"10/s burst 20", "quota 10/h", "quota 10/day calendar", "sliding 10/d"} {
		for _, used := range []int64{0, 3} {
			var state plan.Cells
			w := weir.Write{Keep: time.Hour, Nonce: 1}
			for i := range limits {
				spec, err := plan.Parse(text)
				if err == nil {
					spec, err = spec.Named(fmt.Sprintf("many-%d", i))
				}
				if err != nil {
					t.Fatal(err)
				}
				for range used {
					spec.Step(&state, now, 1)
				}
				if !spec.Plan(&state, now, 1, &w).OK {
					t.Fatal(text)
				}
			}
			in := s.encode(&w, "account#a", now)
			for _, e := range []*string{in.ConditionExpression, in.UpdateExpression} {
				operators := 0
				for _, o := range []string{" AND ", " OR ", " BETWEEN ", " = ", " <> ", " <= ", " >= ", " < ", " > ", "exists(", " + ", " - "} {
					operators += strings.Count(*e, o)
				}
				operators -= strings.Count(*e, " BETWEEN ") // its AND
				if len(*e) > 4<<10 || operators > 300 {
					t.Errorf("%d of %s, %d used: %d operators, %d bytes: %.200s", limits, text, used, operators, len(*e), *e)
				}
			}
		}
	}
}
