package bench_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/bench/measure"
	"github.com/weirlabs/weir/bench/report"
)

// samples are the rounds of one peer.
type samples struct {
	figures       []float64
	allocs        []float64
	walls         []float64 // of two processors, beside their processor time
	wrong, errors int64
	calls         int64
}

func (s *samples) add(figure float64, c measure.Cost) {
	s.figures = append(s.figures, figure)
	s.allocs = append(s.allocs, c.Allocs)
	s.wrong += c.Wrong
	s.calls += c.Calls
}

func (s *samples) row(what, who, unit string) report.Row {
	r := report.Row{What: what, Who: who, Unit: unit}
	r.Median, r.Low, r.High = measure.Median(s.figures)
	var notes []string
	if len(s.walls) > 0 {
		wall, _, _ := measure.Median(s.walls)
		notes = append(notes, fmt.Sprintf("%.0f ns of wall time", wall))
	}
	if a, _, _ := measure.Median(s.allocs); a >= 0.01 {
		notes = append(notes, fmt.Sprintf("%.2g allocations", a))
	}
	if s.wrong > 0 {
		notes = append(notes, fmt.Sprintf("%d wrong of %d", s.wrong, s.calls))
	}
	if s.errors > 0 {
		notes = append(notes, fmt.Sprintf("%d errors", s.errors))
	}
	r.Note = strings.Join(notes, ", ")
	return r
}

// compare gives rows their ratio to the first, and the bars of their peers.
func compare(rows []report.Row, bars map[string]*report.Bar) []report.Row {
	for i := range rows {
		if i > 0 && rows[i].Median > 0 && !strings.HasPrefix(rows[i].Who, "weir") {
			rows[i].Ratio = rows[0].Median / rows[i].Median
		}
		rows[i].Bar = bars[rows[i].Who]
	}
	return rows
}

type workload struct {
	name  string
	keys  int
	limit inproc.Limit
	want  bool
	bars  [2]map[string]*report.Bar // on one processor, and on two
}

var workloads = []workload{
	{"hot key, allowed", 1, inproc.Never, true, [2]map[string]*report.Bar{
		{inproc.Sethvargo: report.AtMost(0.75), inproc.OneInt: report.AtMost(1.8)},
		{inproc.Sethvargo: report.AtMost(1)}}},
	{"hot key, refused", 1, inproc.Once, false, [2]map[string]*report.Bar{
		{inproc.Sethvargo: report.AtMost(0.75), inproc.OneInt: report.AtMost(1.8)},
		{inproc.Sethvargo: report.AtMost(1)}}},
	{"10,000 keys, allowed", 10_000, inproc.Never, true, [2]map[string]*report.Bar{{inproc.Sethvargo: report.AtMost(0.95)}}},
	{"1,000,000 keys, allowed", 1_000_000, inproc.Never, true, [2]map[string]*report.Bar{{inproc.Sethvargo: report.AtMost(1.1)}}},
}

// peersFor leaves out what has one count for all keys.
func peersFor(keys int) []inproc.Peer {
	var all []inproc.Peer
	for _, p := range append(append(inproc.Ours(), inproc.Rivals()...), inproc.Floors()...) {
		if keys == 1 || !p.Stateless {
			all = append(all, p)
		}
	}
	return all
}

func inProcess(b *testing.B, r *report.Report) {
	one := report.Section{Title: "In process, one processor", Intro: "Processor time of one decision. Of several keys some are asked for far more often than others (Zipf, s = 1.1)."}
	two := report.Section{Title: "In process, two processors", Intro: "Processor time of one decision when two goroutines ask for the same keys: waiting for each other costs it, too. Beside it is wall time divided by all decisions, which moves when others have the cores."}
	for _, w := range workloads {
		peers := peersFor(w.keys)
		keys, sequence := inproc.Keys(w.keys), measure.Zipf(w.keys)
		single, double := make([]samples, len(peers)), make([]samples, len(peers))
		for range *rounds {
			for i, p := range peers {
				instance, err := p.Start(w.limit, keys)
				if err != nil {
					b.Fatal(err)
				}
				measure.Heap() // what others left is collected before, not in between
				c := measure.Loop(1, *turn, sequence, w.want, instance.Take)
				if p.Floor {
					c.Wrong = 0
				}
				single[i].add(c.CPU, c)
				c = measure.Loop(2, *turn, sequence, w.want, instance.Take)
				if p.Floor {
					c.Wrong = 0
				}
				double[i].add(c.CPU, c)
				double[i].walls = append(double[i].walls, c.Wall)
				instance.Close()
			}
		}
		for procs, s := range [][]samples{single, double} {
			var rows []report.Row
			for i, p := range peers {
				rows = append(rows, s[i].row(w.name, p.Name, "ns"))
			}
			allocs, _, _ := measure.Median(s[0].allocs)
			if allocs < 0.001 { // the runtime's own, in a whole turn
				allocs = 0
			}
			rows = append(compare(rows, w.bars[procs]),
				report.Row{What: w.name, Who: inproc.Weir, Median: allocs, Unit: "allocations", Bar: report.AtMost(0)},
				report.Row{What: w.name, Who: inproc.Weir, Median: float64(s[0].wrong), Unit: "wrong answers", Bar: report.AtMost(0)})
			if procs == 0 {
				one.Rows = append(one.Rows, rows...)
			} else {
				two.Rows = append(two.Rows, rows...)
			}
		}
	}
	r.Add(one)
	r.Add(two)
}

func memory(b *testing.B, r *report.Report) {
	s := report.Section{Title: "Memory", Intro: "Heap that each of 1,000,000 keys keeps, beyond its text and what the caller prepared. Weir's keys are exact, and idle ones are dropped; of the others only sethvargo/go-limiter ever drops any."}
	const keys = 1_000_000
	for _, p := range peersFor(keys) {
		if p.Name != inproc.Weir && strings.HasPrefix(p.Name, inproc.Weir) {
			continue
		}
		bytes, err := inproc.BytesPerKey(p, keys)
		if err != nil {
			b.Fatal(err)
		}
		s.Rows = append(s.Rows, report.Row{What: "one limit", Who: p.Name, Median: bytes, Unit: "bytes"})
	}
	s.Rows = compare(s.Rows, map[string]*report.Bar{inproc.Weir: report.AtMost(72)})
	const further = 3
	base, err := inproc.BytesOfLimits(nil, keys/4)
	if err != nil {
		b.Fatal(err)
	}
	for _, limit := range []string{"1/h", "quota 10/day", "quota 10/day calendar", "sliding 10/day"} {
		bytes, err := inproc.BytesOfLimits([]string{limit, limit, limit}, keys/4)
		if err != nil {
			b.Fatal(err)
		}
		bar := report.AtMost(40)
		if limit == "1/h" {
			bar = report.AtMost(24)
		}
		s.Rows = append(s.Rows, report.Row{What: "each further " + limit, Who: inproc.Weir, Median: (bytes - base) / further, Unit: "bytes", Bar: bar})
	}
	r.Add(s)
}

func grow(b *testing.B, r *report.Report) []report.Plot {
	s := report.Section{Title: "Growth", Image: "img/growth.png", Intro: "Processor time of one decision on one processor, and heap a key, by the number of keys (Zipf, s = 1.1); and by the number of limits in one call, on 10,000 keys. Beyond a few thousand keys everybody waits for memory: a table of that size does not fit the processor's caches. A store of a thousand keys is 270 kB, a block for each of 64 shards."}
	peers := []inproc.Peer{inproc.Ours()[0]}
	peers = append(peers, inproc.Rivals()...)
	plots := []report.Plot{{Title: "ns a decision, by keys"}, {Title: "bytes a key, by keys"}, {Title: "ns a call, by limits in it"}}
	for n := 1000; n <= *growth; n *= 10 {
		name := fmt.Sprintf("1e%d keys", len(fmt.Sprint(n))-1)
		plots[0].Places, plots[1].Places = append(plots[0].Places, name), append(plots[1].Places, name)
		keys, sequence := inproc.Keys(n), measure.Zipf(n)
		times := make([]samples, len(peers))
		turns := min(*rounds, 3)
		if n > 1_000_000 {
			turns = 1 // filling takes longer than anything else here
		}
		for range turns {
			for i, p := range peers {
				instance, err := p.Start(inproc.Never, keys)
				if err != nil {
					b.Fatal(err)
				}
				measure.Heap()
				c := measure.Loop(1, *turn, sequence, true, instance.Take)
				times[i].add(c.CPU, c)
				instance.Close()
			}
		}
		var rows, sizes []report.Row
		for i, p := range peers {
			rows = append(rows, times[i].row(name, p.Name, "ns"))
			bytes, err := inproc.BytesPerKey(p, n)
			if err != nil {
				b.Fatal(err)
			}
			sizes = append(sizes, report.Row{What: name, Who: p.Name, Median: bytes, Unit: "bytes a key"})
			if n == 1000 {
				plots[0].Lines = append(plots[0].Lines, report.Line{Name: p.Name})
				plots[1].Lines = append(plots[1].Lines, report.Line{Name: p.Name})
			}
			plots[0].Lines[i].Values = append(plots[0].Lines[i].Values, rows[i].Median)
			plots[1].Lines[i].Values = append(plots[1].Lines[i].Values, bytes)
		}
		s.Rows = append(append(s.Rows, compare(rows, nil)...), compare(sizes, nil)...)
	}
	const n = 10_000
	keys, sequence := inproc.Keys(n), measure.Zipf(n)
	limits := []int{1, 2, 4, 8}
	times := make([]samples, len(limits))
	for range *rounds {
		for i, n := range limits {
			instance, err := inproc.Several(n).Start(inproc.Never, keys)
			if err != nil {
				b.Fatal(err)
			}
			c := measure.Loop(1, *turn, sequence, true, instance.Take)
			times[i].add(c.CPU, c)
		}
	}
	plots[2].Lines = []report.Line{{Name: inproc.Weir}}
	for i, n := range limits {
		row := times[i].row("limits in one call", fmt.Sprintf("%s, %d", inproc.Weir, n), "ns")
		bytes, err := inproc.BytesOfLimits(slices.Repeat([]string{"1/h"}, n-1), 100_000)
		if err != nil {
			b.Fatal(err)
		}
		row.Note = strings.TrimPrefix(fmt.Sprintf("%s, %.0f bytes a key", row.Note, bytes), ", ")
		s.Rows = append(s.Rows, row)
		plots[2].Places = append(plots[2].Places, fmt.Sprint(n))
		plots[2].Lines[0].Values = append(plots[2].Lines[0].Values, row.Median)
	}
	r.Add(s)
	return plots
}

func wrongAnswers(b *testing.B, r *report.Report) {
	s := report.Section{Title: "Wrong answers", Intro: "What a limit of 100,000 a second allows in one go two seconds after it was drained, which should be 100,000 and a little. Wrong answers to the calls of the other tables are in their notes; throttled answers errors when two processors ask for one key."}
	for _, p := range append(inproc.Ours()[:1], inproc.Rivals()...) {
		began := time.Now()
		allowed, err := inproc.Refill(p)
		if err != nil {
			b.Fatal(err)
		}
		note := "right"
		if most := 100_000 * (time.Since(began).Seconds() - 1); float64(allowed) < 100_000 || float64(allowed) > most {
			note = "WRONG"
		}
		s.Rows = append(s.Rows, report.Row{What: "100,000/s", Who: p.Name, Median: float64(allowed), Unit: "allowed", Note: note})
	}
	r.Add(s)
}
