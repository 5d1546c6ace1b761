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
// server does not count. So many limits of any kind must fit: of a new item, of one in
// use or out of use, and of one that an older policy has written; with marks that are
// reached or not; taken, or as what keeps a shadow out of a write.
func TestExpressionsOfManyLimits(t *testing.T) {
	const most, marked, lacking = 30, 16, 28
	base := time.Date(2027, 3, 14, 15, 9, 26, 535897932, time.UTC).UnixNano()
	s := &Store{table: "t"}
	named := func(text string, i int, marks []int) *plan.Spec {
		spec, err := plan.Parse(text)
		if err == nil {
			spec, err = spec.Named(fmt.Sprintf("many-%d", i))
		}
		if err == nil && marks != nil {
			spec, err = spec.Noticed(marks...)
		}
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	planned, refused := 0, 0
	for _, c := range []struct {
		text  string
		marks []int
	}{
		{"10/s burst 20", nil}, {"10/h burst 20", nil}, {"quota 10/h", nil}, {"quota 10/day calendar", nil}, {"sliding 10/d", nil}, {"sliding 10/s", nil},
		{"quota 10/h", []int{80, 100}}, {"quota 10/h", []int{10, 40, 100}}, {"quota 10/day calendar", []int{80, 100}}, {"quota 10/day calendar", []int{10, 40, 100}},
	} {
		limits := most
		if c.marks != nil {
			limits = marked
		}
		for _, used := range []int64{0, 3, 7, 9, 10, 20} {
			for _, later := range []time.Duration{0, time.Second, time.Hour, 36 * time.Hour, 1000 * time.Hour} {
				for _, revised := range []bool{false, true} {
					var state plan.Cells
					now := base + int64(later)
					take, refuse := weir.Write{Keep: time.Hour, Nonce: 1}, weir.Write{Keep: time.Hour, Nonce: 1}
					for i := range limits {
						spec := named(c.text, i, c.marks)
						for n := range used {
							spec.Step(&state, base+n, 1)
						}
						if revised {
							spec = named(strings.Replace(c.text, "10/", "11/", 1), i, c.marks).Revised(1, plan.Keep)
						}
						if spec.Plan(&state, now, 1, &take).OK {
							planned++
						} else if i < lacking {
							spec.Refuse(&state, now, 1, &refuse)
							refused++
						}
					}
					for _, w := range []*weir.Write{&take, &refuse} {
						in := s.encode(w, "account#a", now)
						if !fits(in) {
							t.Errorf("%d of %s with marks at %v, %d used, %v later, revised %v: %.200s", limits, c.text, c.marks, used, later, revised, *in.ConditionExpression)
						}
						for _, e := range []*string{in.ConditionExpression, in.UpdateExpression} {
							if e == nil {
								continue
							}
							operators := 0
							for _, o := range []string{" AND ", " OR ", " BETWEEN ", " = ", " <> ", " <= ", " >= ", " < ", " > ", "exists(", " + ", " - "} {
								operators += strings.Count(*e, o)
							}
							operators -= strings.Count(*e, " BETWEEN ") // its AND
							if len(*e) > maxExpression || operators > maxOperators {
								t.Errorf("%d of %s with marks at %v, %d used, %v later, revised %v: %d operators, %d bytes: %.200s",
									limits, c.text, c.marks, used, later, revised, operators, len(*e), *e)
							}
						}
					}
				}
			}
		}
	}
	if planned < 5000 || refused < 500 {
		t.Errorf("%d planned, %d refused", planned, refused)
	}
}
