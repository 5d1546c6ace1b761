package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/cmd/weir/internal/diff"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

func newDiff(c *common) *cobra.Command {
	var from []string
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "What a policy changes against another, and for whom",
		Long: `Compare two policies as they are in force, and say what changes for whom: limits
plan by plan, exemptions, who counts as whom. A file that is merely written in
another way has no changes.

With a decision log, changed limits are tried on the calls in it, at their times:
how many would be refused that were not, and of how many callers. That needs every
call: write the log with --decision-log-allowed 1. A sample is refused.
` + fmt.Sprintf(exitHelp, "there are changes"),
		Example: `  weir diff weir.yaml new.yaml
  weir diff weir.yaml new.yaml --from decisions=decisions.jsonl --format markdown`,
		Annotations: map[string]string{formatsKey: "text,json,markdown"},
		RunE:        func(cmd *cobra.Command, args []string) error { return runDiff(cmd.Context(), c, args, from) },
	}
	cmd.Flags().StringArrayVar(&from, "from", nil, "try changed limits on the calls of a log: `[decisions=]FILE`, plain or gzip; may be repeated, the earlier log first")
	return cmd
}

const tryDiff = "weir diff weir.yaml new.yaml"

// diffReport is the JSON of diff.
type diffReport struct {
	SchemaVersion int           `json:"schema_version"`
	Old           string        `json:"old"`
	New           string        `json:"new"`
	Changes       []diff.Change `json:"changes"`
	Fresh         []string      `json:"fresh"` // limits whose counters start with nothing used
	Gone          []string      `json:"gone"`  // limits whose counters nobody looks at any more
	Log           *diffLog      `json:"log"`   // null without one
}

type diffLog struct {
	Lines int64     `json:"lines"`
	Bad   int64     `json:"bad"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

func runDiff(ctx context.Context, c *common, args, from []string) error {
	if len(args) != 2 {
		return usage(tryDiff, "weir diff compares two files, but got %d", len(args))
	}
	var both [2]*policy.Policy
	for i, file := range args {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return usage(tryDiff, "there is no policy file %s", file)
		}
		p, err := c.loadPolicy(file)
		if err != nil {
			return err
		}
		both[i] = p
	}
	r := &diffReport{SchemaVersion: 1, Old: args[0], New: args[1], Changes: diff.Compare(both[0], both[1])}
	fresh, gone, err := changedCounters(ctx, both[0], both[1])
	if err != nil {
		return err
	}
	r.Changes = append([]diff.Change{}, r.Changes...)
	r.Fresh, r.Gone = append([]string{}, fresh...), append([]string{}, gone...)
	if len(from) > 0 {
		if r.Log, err = replayLog(ctx, c, r.Changes, from); err != nil {
			return err
		}
	}
	switch c.format {
	case "json":
		err = writeJSON(c.stdout, r)
	case "markdown":
		err = r.writeMarkdown(c)
	default:
		err = r.write(c)
	}
	if err == nil && len(r.Changes) > 0 {
		return errNo{fmt.Errorf("there are %s", plural(len(r.Changes), "change")), true}
	}
	return err
}

// replayLog holds changes against logs, one after the other.
func replayLog(ctx context.Context, c *common, changes []diff.Change, from []string) (*diffLog, error) {
	inputs, err := parseFrom(from, tryDiff+" --from decisions=decisions.jsonl", "decisions")
	if err != nil {
		return nil, err
	}
	replay := diff.NewReplay(changes)
	var sum decisions.Summary
	for _, in := range inputs {
		var unfit error
		s, err := decisions.ReadFile(ctx, in.file, func(d *engine.Record) error {
			unfit = replay.Add(ctx, d)
			return unfit
		})
		if unfit != nil && ctx.Err() == nil {
			return nil, usage(tryDiff+" --from decisions=decisions.jsonl", "%s: %w", in.file, unfit)
		}
		if err != nil {
			return nil, err
		}
		sayBad(c, in.file, &s)
		sum.Add(s)
	}
	var thin *diff.Thin
	if err := replay.End(); errors.As(err, &thin) {
		return nil, usage("weir proxy --to http://localhost:3000 --decision-log decisions.jsonl --decision-log-allowed 1", "%w", err)
	} else if err != nil {
		return nil, err
	}
	if sum.Lines == 0 {
		return nil, usage(tryDiff+" --from decisions=decisions.jsonl", "there is no decision in %s", strings.Join(from, ", "))
	}
	return &diffLog{sum.Lines, sum.Bad, sum.From, sum.To}, nil
}

// sayBad tells of lines that are no decisions.
func sayBad(c *common, file string, s *decisions.Summary) {
	if s.Bad > 0 {
		c.say("weir: warning: %s: %s no decision; the first is line %d: %s", file, countOf(s.Bad, "line is", "lines are"), s.FirstBad, s.Why)
	}
	if s.Cut {
		c.say("weir: warning: %s ends before its end: what follows is lost", file)
	}
}

func countOf(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (r *diffReport) write(c *common) error {
	w := &failing{to: c.stdout}
	for i := range r.Changes {
		one := &r.Changes[i]
		effect := one.Effect
		switch effect {
		case diff.Tighter:
			effect = c.paint(red, fmt.Sprintf("%-8s", effect))
		case diff.Looser:
			effect = c.paint(green, fmt.Sprintf("%-8s", effect))
		default:
			effect = fmt.Sprintf("%-8s", effect)
		}
		w.line("%s %s", effect, sentenceOf(one))
		if a := one.Affected; a != nil {
			w.line("         %s", affectedOf(a))
		}
	}
	if len(r.Fresh) > 0 {
		w.line("start with nothing used: %s", strings.Join(r.Fresh, ", "))
	}
	if len(r.Gone) > 0 {
		w.line("are not looked at any more: %s", strings.Join(r.Gone, ", "))
	}
	if w.err == nil {
		c.say("weir: %s to %s: %s", r.Old, r.New, plural(len(r.Changes), "change"))
	}
	return w.err
}

// sentenceOf says one change in words.
func sentenceOf(c *diff.Change) string {
	name := c.Name
	if c.Layer == "settings" {
		name = c.Field
	} else if c.Field != "limit" && c.Layer != "exempt" {
		name += ", " + c.Field
	}
	switch c.Kind {
	case "added":
		return fmt.Sprintf("%s, for %s: new, %s", name, c.Who, c.New)
	case "removed":
		return fmt.Sprintf("%s, for %s: gone, was %s", name, c.Who, c.Old)
	}
	return fmt.Sprintf("%s, for %s: %s becomes %s", name, c.Who, none(c.Old), none(c.New))
}

func none(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// affectedOf says what the log says of a change.
func affectedOf(a *diff.Affected) string {
	if a.Callers == 0 {
		return a.Note
	}
	s := fmt.Sprintf("in the log: %.0f requests of %s", a.Requests, plural(a.Callers, "caller"))
	switch {
	case a.Replayed || a.RefusedBefore+a.RefusedAfter > 0:
		s += fmt.Sprintf("; %d refused before, %d after; refused more often: %s, less often: %s",
			a.RefusedBefore, a.RefusedAfter, plural(a.HurtCallers, "caller"), plural(a.HelpedCallers, "caller"))
	}
	if a.Note != "" {
		s += " (" + a.Note + ")"
	}
	return s
}

func (r *diffReport) writeMarkdown(c *common) error {
	w := &failing{to: c.stdout}
	cell := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	w.line("## %s to %s: %s\n", cell(r.Old), cell(r.New), plural(len(r.Changes), "change"))
	if len(r.Changes) > 0 {
		w.line("| effect | what | for whom | before | after | in the log |\n| --- | --- | --- | --- | --- | --- |")
	}
	for i := range r.Changes {
		one := &r.Changes[i]
		log := ""
		if one.Affected != nil {
			log = affectedOf(one.Affected)
		}
		name := one.Name
		if one.Field != "limit" && one.Field != one.Name {
			name += ", " + one.Field
		}
		w.line("| %s | %s | %s | %s | %s | %s |", one.Effect, cell(name), cell(one.Who), cell(one.Old), cell(one.New), cell(log))
	}
	if len(r.Fresh) > 0 {
		w.line("\nStart with nothing used: %s.", cell(strings.Join(r.Fresh, ", ")))
	}
	if len(r.Gone) > 0 {
		w.line("\nAre not looked at any more: %s.", cell(strings.Join(r.Gone, ", ")))
	}
	return w.err
}
