package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/cost"
	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/cmd/weir/internal/logs"
	"github.com/weirlabs/weir/cmd/weir/internal/report"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

type reportFlags struct {
	from   []string
	since  string
	region string
	shadow bool
	policy bool // -c is given: the edge's rules are those of a policy
}

func newReport(c *common) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report",
		Short: "What each layer stopped, and what that cost",
		Long: `Read the logs of AWS WAF, of API Gateway and weir's decision log, and say per
layer and month what was refused and what it cost. Refusals of one client by one
limit that are less than 10 minutes apart are one episode, with a guess what it
was; refusals by a plan are callers a day. Logs may be in any order, in parts, and
compressed with gzip; lines that are none are counted and never guessed at.
` + fmt.Sprintf(exitHelp, "never"),
		Example: `  weir report --from decisions=decisions.jsonl
  weir report --shadow --from decisions=decisions.jsonl
  weir report --from waf=aws-waf-logs.gz --from gateway=access.log.gz --from decisions=d1.jsonl --since 2026-06-01 --json`,
		Annotations: map[string]string{formatsKey: "text,json,markdown"},
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.policy = cmd.Flags().Changed("config")
			return runReport(cmd.Context(), c, &f, time.Now())
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.from, "from", nil, "a log, plain or gzip: `[waf|gateway|decisions=]FILE`, - for standard input; may be repeated")
	fl.BoolVar(&f.shadow, "shadow", false, "say instead whom limits that watch would have refused, and what would have spared them")
	fl.StringVar(&f.since, "since", "", "pass over what is older than a `DATE`, as 2026-06-01, or than a time, as 30d or 12h")
	fl.StringVar(&f.region, "region", "us-east-1", "AWS `REGION` whose prices to take")
	return cmd
}

const tryReport = "weir report --from decisions=decisions.jsonl"

func runReport(ctx context.Context, c *common, f *reportFlags, now time.Time) error {
	if f.shadow {
		since, err := parseSince(f.since, now)
		if err != nil {
			return err
		}
		return reportShadow(ctx, c, f.from, since)
	}
	inputs, err := parseFrom(f.from, tryReport, "waf", "gateway", "decisions")
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return usage(tryReport, "a report needs logs, and none is named")
	}
	since, err := parseSince(f.since, now)
	if err != nil {
		return err
	}
	prices, err := cost.In(f.region)
	if err != nil {
		return usage(tryReport+" --region us-east-1", "%w", err)
	}
	read := reader{to: report.New(since), costs: report.Costs{Prices: prices}}
	if f.policy {
		if read.costs.Rules, err = edgeRules(c); err != nil {
			return err
		}
	}
	var sums []report.Input
	for _, in := range inputs {
		one, err := read.file(ctx, in)
		if err != nil {
			return err
		}
		if one.Bad > 0 && one.Bad == one.Lines {
			return usage(tryReport, "no line of %s is of a log that weir knows; the first: %s", in.file, one.Why)
		}
		sums = append(sums, one)
	}
	r := read.to.Report(read.costs)
	r.Inputs = sums
	switch c.format {
	case "json":
		return writeJSON(c.stdout, r)
	case "markdown":
		return writeReportMarkdown(c.stdout, &r)
	}
	return writeReportText(c, &r)
}

// edgeRules is how many rules the web ACL of a policy has.
func edgeRules(c *common) (n int, err error) {
	p, err := c.loadPolicy(c.config)
	if err != nil {
		return 0, err
	}
	for _, r := range p.Rules() {
		if r.Layer == policy.Edge && r.Mode != policy.Off {
			n++
		}
	}
	return n, nil
}

// parseSince reads a day, an instant, or how long ago.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	if days, found := strings.CutSuffix(s, "d"); found {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36_500 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usage(tryReport+" --since 2026-06-01", "--since %q is neither a day, as 2026-06-01, nor a time, as 30d or 12h", s)
}

// reader brings the lines of all logs into one report.
type reader struct {
	to    *report.Collector
	costs report.Costs
}

func (r *reader) file(ctx context.Context, in logInput) (report.Input, error) {
	sum := report.Input{Kind: in.kind, Name: in.file}
	var q report.Request
	count, err := logs.ReadFile(ctx, in.file, func(line []byte) (string, error) {
		if sum.Kind == "" {
			sum.Kind = report.KindOf(line)
		}
		var why string
		switch sum.Kind {
		case "waf":
			why = report.ParseWAF(line, &q)
		case "gateway":
			why = report.ParseGateway(line, &q)
		case "decisions":
			var d engine.Record
			if why = decisions.Parse(line, &d); why == "" {
				if !report.FromDecision(&d, &q) {
					sum.Served++
					return "", nil
				}
			}
		default:
			why = "it is a line of no log that weir knows"
		}
		if why != "" {
			return why, nil
		}
		taken, err := r.to.Add(&q)
		switch {
		case err != nil:
			return "", errHint{errUsage{err}, tryReport + " --since 30d"}
		case !taken:
			sum.Older++
		case q.Refused:
			sum.Refused++
		default:
			sum.Served++
		}
		return "", nil
	})
	if err != nil {
		return sum, err
	}
	sum.Lines, sum.Bad, sum.FirstBad, sum.Why, sum.Cut = count.Lines, count.Bad, count.FirstBad, count.Why, count.Cut
	switch sum.Kind {
	case "waf":
		r.costs.WAF = true
	case "gateway":
		r.costs.REST = true
	}
	return sum, nil
}

func writeReportText(c *common, r *report.Report) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "layer\tmonth\trequests in the logs\trefused\tcost\n")
	for _, l := range r.Layers {
		for _, m := range l.Months {
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%d\t%s\n", l.Layer, m.Month, m.Requests, m.Denied, m.USD)
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%d\t%s\n", c.paint(bold, string(l.Layer)), "in all", l.Requests, l.Denied, l.USD)
	}
	for _, l := range r.Layers {
		fmt.Fprintf(w, "\n%s: %s\n", l.Layer, summary(&l))
		for _, e := range l.Episodes {
			if e.Kind == report.PlanLimit && !c.verbose {
				continue
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", e.Start.Format("2006-01-02 15:04"), e.End.Sub(e.Start).Round(time.Second), e.Kind, plain(e.Limit), plain(e.Client), e.Reason)
		}
	}
	fmt.Fprintln(w)
	for _, l := range r.Layers {
		fmt.Fprintf(w, "cost of %s, in US dollars: %s\n", l.Layer, l.Formula)
	}
	fmt.Fprintf(w, "prices of %s, %s\n", r.Region, r.PricesAsOf)
	for _, in := range r.Inputs {
		fmt.Fprintln(w, in.String())
	}
	return w.Flush()
}

// summary says in a line what a layer stopped.
func summary(l *report.Layer) string {
	var parts []string
	for _, k := range l.Kinds {
		switch {
		case k.Kind == report.PlanLimit:
		case k.Runs < k.Episodes && (k.Kind == report.CredentialStuffing || k.Kind == report.Scraper):
			parts = append(parts, fmt.Sprintf("%d x %s (from %s)", k.Runs, k.Kind, plural(k.Clients, "client")))
		default:
			parts = append(parts, fmt.Sprintf("%d x %s", k.Episodes, k.Kind))
		}
	}
	if callers := l.Callers(); callers != "" {
		parts = append(parts, callers)
	}
	if len(parts) == 0 {
		return "nothing refused"
	}
	return strings.Join(parts, ", ")
}

func writeReportMarkdown(w io.Writer, r *report.Report) error {
	var b strings.Builder
	b.WriteString("| layer | refused | cost | what |\n| --- | ---: | ---: | --- |\n")
	for _, l := range r.Layers {
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", l.Layer, l.Denied, l.USD, summary(&l))
	}
	for _, l := range r.Layers {
		if !hasIncidents(&l) {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| start | lasted | kind | limit | client | why |\n| --- | --- | --- | --- | --- | --- |\n", l.Layer)
		for _, e := range l.Episodes {
			if e.Kind != report.PlanLimit {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", e.Start.Format("2006-01-02 15:04"), e.End.Sub(e.Start).Round(time.Second),
					e.Kind, cell(e.Limit), cell(e.Client), e.Reason)
			}
		}
	}
	b.WriteString("\n")
	for _, l := range r.Layers {
		fmt.Fprintf(&b, "- cost of %s, in US dollars: %s\n", l.Layer, l.Formula)
	}
	fmt.Fprintf(&b, "- prices of %s, %s\n", r.Region, r.PricesAsOf)
	for _, in := range r.Inputs {
		fmt.Fprintf(&b, "- %s\n", in.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func hasIncidents(l *report.Layer) bool {
	for _, k := range l.Kinds {
		if k.Kind != report.PlanLimit {
			return true
		}
	}
	return false
}

// cell keeps foreign text inside its cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(plain(s), "|", `\|`)
}

// plain is foreign text without what a terminal would act upon.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
