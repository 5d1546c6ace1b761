package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/cmd/weir/internal/shadow"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

const tryShadow = "weir report --shadow --from decisions=decisions.jsonl"

// shadowReport is the JSON of report --shadow.
type shadowReport struct {
	SchemaVersion int            `json:"schema_version"`
	Limits        []shadow.Limit `json:"limits"`
	Log           diffLog        `json:"log"`
}

// reportShadow says whom limits that watch would have refused.
func reportShadow(ctx context.Context, c *common, from []string, since time.Time) error {
	inputs, err := parseFrom(from, tryShadow, "decisions")
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return usage(tryShadow, "the report needs a decision log, and none is named")
	}
	var p *policy.Policy // says how limits read, where the log does not
	if _, err := os.Stat(c.config); err == nil {
		if p, err = c.loadPolicy(c.config); err != nil {
			return err
		}
	}
	all := shadow.New(since, p)
	var sum decisions.Summary
	for _, in := range inputs {
		var unfit error
		s, err := decisions.ReadFile(ctx, in.file, func(d *engine.Record) error {
			unfit = all.Add(ctx, d)
			return unfit
		})
		if unfit != nil && ctx.Err() == nil {
			return usage(tryShadow, "%s: %w", in.file, unfit)
		}
		if err != nil {
			return err
		}
		if s.Bad > 0 && s.Lines == 0 {
			return usage(tryShadow, "no line of %s is a decision; the first: %s", in.file, s.Why)
		}
		sayBad(c, in.file, &s)
		sum.Add(s)
	}
	r := &shadowReport{SchemaVersion: 1, Limits: all.Limits(), Log: diffLog{sum.Lines, sum.Bad, sum.From, sum.To}}
	switch c.format {
	case "json":
		return writeJSON(c.stdout, r)
	case "markdown":
		return r.writeMarkdown(c)
	}
	return r.write(c)
}

func (r *shadowReport) write(c *common) error {
	w := &failing{to: c.stdout}
	if len(r.Limits) == 0 {
		w.line("no limit of the log watches: run it with mode: shadow, or the proxy with --shadow")
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		w.line("%s", c.paint(bold, shadowTitle(l)))
		if l.Denied == 0 {
			w.line("  would have refused nobody, of %.0f requests of %s", l.Requests, plural(l.Callers, "caller"))
			continue
		}
		w.line("  would have refused %d of %.0f requests, of %d of %s, between %s and %s",
			l.Denied, l.Requests, l.Hurt, plural(l.Callers, "caller"), l.First.UTC().Format(time.RFC3339), l.Last.UTC().Format(time.RFC3339))
		if l.Spare != nil {
			w.line("  spares all of them: %s", l.Spare.All)
			if l.Spare.Most != l.Spare.All {
				w.line("  spares nine in ten: %s", l.Spare.Most)
			}
		}
		if l.Note != "" {
			w.line("  %s", l.Note)
		}
		for j := range l.Top {
			one := &l.Top[j]
			line := fmt.Sprintf("  %-26s %s", one.Key, plural(int(one.Denied), "refusal"))
			if one.Needs != "" {
				line += ", needs " + one.Needs
			}
			w.line("%s", line)
		}
		if more := l.Hurt - len(l.Top); more > 0 {
			w.line("  and %s more", plural(more, "caller"))
		}
	}
	return w.err
}

func shadowTitle(l *shadow.Limit) string {
	s := l.Layer + " " + l.Name
	if l.Plan != "" {
		s += ", plan " + l.Plan
	}
	if l.Text != "" {
		s += ": " + l.Text
	}
	return s
}

func (r *shadowReport) writeMarkdown(c *common) error {
	w := &failing{to: c.stdout}
	cell := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	w.line("| limit | would have refused | callers | spares all | spares nine in ten |\n| --- | --- | --- | --- | --- |")
	for i := range r.Limits {
		l := &r.Limits[i]
		all, most := l.Note, ""
		if l.Spare != nil {
			all, most = l.Spare.All, l.Spare.Most
		}
		w.line("| %s | %d of %.0f requests | %d of %d | %s | %s |", cell(shadowTitle(l)), l.Denied, l.Requests, l.Hurt, l.Callers, cell(all), cell(most))
	}
	return w.err
}
