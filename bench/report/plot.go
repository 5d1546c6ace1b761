package report

import (
	"fmt"
	"os"

	"github.com/go-analyze/charts"
)

// Line is one line of a plot.
type Line struct {
	Name   string
	Values []float64
}

// Plot is lines over the same places.
type Plot struct {
	Title  string // with the unit of the values
	Places []string
	Lines  []Line
}

// WritePNG draws plots side by side into a file.
func WritePNG(file string, plots ...Plot) error {
	const width, height = 620, 420
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputPNG, Width: width * len(plots), Height: height})
	p.FilledRect(0, 0, width*len(plots), height, charts.ColorWhite, charts.ColorWhite, 0)
	for i, plot := range plots {
		values := make([][]float64, len(plot.Lines))
		names := make([]string, len(plot.Lines))
		for l, line := range plot.Lines {
			values[l], names[l] = line.Values, line.Name
		}
		o := charts.NewLineChartOptionWithData(values)
		o.Title.Text = plot.Title
		o.Title.FontStyle.FontSize = 14
		o.XAxis.Labels = plot.Places
		o.Legend.SeriesNames = names
		o.Legend.Offset = charts.OffsetStr{Top: "32"}
		o.Symbol.Shape = charts.SymbolCircle
		o.LineStrokeWidth = 2
		o.YAxis = []charts.YAxisOption{{Min: charts.Ptr(0.0)}}
		o.Padding = charts.NewBoxEqual(16)
		if err := p.Child(charts.PainterBoxOption(charts.NewBox(i*width, 0, (i+1)*width, height))).LineChart(o); err != nil {
			return fmt.Errorf("plot %q: %w", plot.Title, err)
		}
	}
	png, err := p.Bytes()
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return os.WriteFile(file, png, 0o644)
}
