package report_test

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlabs/weir/bench/report"
)

func example() *report.Report {
	r := &report.Report{}
	r.Add(report.Section{Title: "Times", Intro: "Of one call.", Rows: []report.Row{
		{What: "hot", Who: "weir", Median: 40.26, Low: 39, High: 44, Unit: "ns", Bar: report.AtMost(41)},
		{What: "hot", Who: "rival", Median: 80.5, Low: 80.5, High: 80.5, Unit: "ns", Ratio: 0.5, Bar: report.AtMost(0.45)},
		{What: "hot", Who: "floor", Median: 1234, Unit: "/s", Ratio: 2, Bar: report.AtLeast(2), Note: "3 wrong"},
		{What: "hot", Who: "other", Median: 0},
	}})
	return r
}

func TestTableSaysWhatIsMet(t *testing.T) {
	var text, page bytes.Buffer
	if err := example().Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := example().Markdown(&page, "# Head\n"); err != nil {
		t.Fatal(err)
	}
	if met, all := example().Bars(); met != 2 || all != 3 {
		t.Errorf("%d of %d bars met, want 2 of 3", met, all)
	}
	for _, want := range []string{"2 of 3 bars met", "<= 0.45  NOT MET", ">= 2", "40.3 ns  39 to 44", "3 wrong"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{"# Head\n", "2 of 3 bars are met", "| hot | rival | 80.5 ns |  | 0.50 | <= 0.45 | NOT MET |  |"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
}

func TestPlotIsAnImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plot.png")
	plot := report.Plot{Title: "ns", Places: []string{"1", "2"}, Lines: []report.Line{{Name: "a", Values: []float64{1, 2}}}}
	if err := report.WritePNG(file, plot, plot); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() != 1240 || b.Dy() != 420 {
		t.Errorf("the plot is %v", b)
	}
}
