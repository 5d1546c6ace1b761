package bench_test

import (
	"testing"

	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/bench/measure"
	"github.com/weirlabs/weir/bench/report"
)

// Rows are compared with the first, which is weir's: below 1 it is faster. A
// round in which an answer was wrong is shown.
func TestRowsAreComparedWithTheFirst(t *testing.T) {
	var ours, rival, floor samples
	for _, v := range []float64{50, 40, 60} {
		ours.add(v, measure.Cost{Calls: 10})
		rival.add(2*v, measure.Cost{Calls: 10, Wrong: 1})
		floor.add(v/2, measure.Cost{Calls: 10})
	}
	bar := report.AtMost(0.75)
	rows := compare([]report.Row{ours.row("hot", "weir", "ns"), rival.row("hot", inproc.Sethvargo, "ns"), floor.row("hot", inproc.OneInt, "ns")},
		map[string]*report.Bar{inproc.Sethvargo: bar})
	if rows[0].Ratio != 0 || rows[1].Ratio != 0.5 || rows[2].Ratio != 2 {
		t.Errorf("ratios %v, %v, %v", rows[0].Ratio, rows[1].Ratio, rows[2].Ratio)
	}
	if rows[1].Bar != bar || rows[2].Bar != nil {
		t.Errorf("bars %v, %v", rows[1].Bar, rows[2].Bar)
	}
	if rows[1].Note != "3 wrong of 30" || rows[0].Note != "" {
		t.Errorf("notes %q, %q", rows[1].Note, rows[0].Note)
	}
}
