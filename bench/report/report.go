// Package report turns measurements into a table on a terminal, a page and
// plots. A row is one figure of one peer; where weir has to be so and so much of
// it, the row says how much it is and whether that is met.
package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Report is sections in order.
type Report struct{ Sections []Section }

// Section is rows that belong together.
type Section struct {
	Title string
	Intro string // what was measured, and how to read it
	Rows  []Row
	Image string // a file beside the page, or none
}

// Row is a figure: a median of rounds with the least and the most, or one figure
// alone.
type Row struct {
	What, Who         string
	Median, Low, High float64
	Unit              string
	Note              string
	Ratio             float64 // weir's figure divided by this one; 0 where that says nothing
	Bar               *Bar
}

// Bar is what a row's Ratio has to be, or its Median where it has no Ratio.
type Bar struct {
	Bound   float64
	AtLeast bool // otherwise at most
}

// AtMost is a bar from above.
func AtMost(bound float64) *Bar { return &Bar{Bound: bound} }

// AtLeast is a bar from below.
func AtLeast(bound float64) *Bar { return &Bar{bound, true} }

func (b *Bar) String() string {
	if b.AtLeast {
		return fmt.Sprintf(">= %g", b.Bound)
	}
	return fmt.Sprintf("<= %g", b.Bound)
}

// Met reports whether the row's bar is met; a row without one meets it.
func (r *Row) Met() bool {
	if r.Bar == nil {
		return true
	}
	is := r.Ratio
	if is == 0 {
		is = r.Median
	}
	if r.Bar.AtLeast {
		return is >= r.Bar.Bound
	}
	return is <= r.Bar.Bound
}

// Add puts a section at the end.
func (r *Report) Add(s Section) { r.Sections = append(r.Sections, s) }

// Bars counts the rows that have a bar, and those that meet theirs.
func (r *Report) Bars() (met, all int) {
	for _, s := range r.Sections {
		for i := range s.Rows {
			if s.Rows[i].Bar != nil {
				all++
				if s.Rows[i].Met() {
					met++
				}
			}
		}
	}
	return met, all
}

var columns = []string{"what", "who", "median", "of rounds", "weir / it", "bar", "", "note"}

func (r *Row) cells() []string {
	median, spread := number(r.Median)+" "+r.Unit, ""
	if r.Low != r.High {
		spread = number(r.Low) + " to " + number(r.High)
	}
	ratio, bar, met := "", "", ""
	if r.Ratio != 0 {
		ratio = fmt.Sprintf("%.2f", r.Ratio)
	}
	if r.Bar != nil {
		if bar, met = r.Bar.String(), "met"; !r.Met() {
			met = "NOT MET"
		}
	}
	return []string{r.What, r.Who, strings.TrimSpace(median), spread, ratio, bar, met, r.Note}
}

// number has three digits that mean something, and no more.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10 || a == math.Trunc(a):
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	return fmt.Sprintf("%.2f", v)
}

// Text writes one table of all sections.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Sections {
		fmt.Fprintf(t, "\n%s\n%s\n", s.Title, strings.Join(columns, "\t"))
		for i := range s.Rows {
			fmt.Fprintln(t, strings.Join(s.Rows[i].cells(), "\t"))
		}
	}
	met, all := r.Bars()
	fmt.Fprintf(t, "\n%d of %d bars met\n", met, all)
	return t.Flush()
}

// Markdown writes the page. The head says when, where and of what.
func (r *Report) Markdown(w io.Writer, head string) error {
	var b strings.Builder
	b.WriteString(head)
	met, all := r.Bars()
	fmt.Fprintf(&b, "\n%d of %d bars are met in this run.\n", met, all)
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| %s |\n|%s\n", s.Title, s.Intro, strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
		for i := range s.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(s.Rows[i].cells(), " | "))
		}
		if s.Image != "" {
			fmt.Fprintf(&b, "\n![%s](%s)\n", s.Title, s.Image)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
