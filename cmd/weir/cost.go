package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/cost"
	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

type costFlags struct {
	rps        float64
	keys       int64
	denied     float64
	region     string
	maxUSD     float64
	integrator float64
	from       []string
}

func newCost(c *common) *cobra.Command {
	var f costFlags
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Dollars a month on AWS, and at worst",
		Long: `Say what a policy costs on AWS in a month: AWS WAF at the edge, writes to a
DynamoDB table for gateway and application. Every figure stands with its formula,
its price and the price's date. The traffic is told by flags, or taken from a
decision log; a flag wins over the log.
` + fmt.Sprintf(exitHelp, "the month costs more than --max-usd"),
		Example: `  weir cost --rps 3 --denied-share 0.2
  weir cost --from decisions=decisions.jsonl --max-usd 50 --json`,
		Annotations: map[string]string{formatsKey: "text,json,markdown"},
		Args:        cobra.NoArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return runCost(cmd, c, &f) },
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.rps, "rps", 0, "requests a second, on average over the month")
	fl.Int64Var(&f.keys, "keys", 10_000, "callers that the store knows at a time")
	fl.Float64Var(&f.denied, "denied-share", 0, "which part of the requests is refused by gateway and application limits, 0 to 1")
	fl.StringVar(&f.region, "region", "us-east-1", "AWS `REGION` whose prices to take")
	fl.Float64Var(&f.maxUSD, "max-usd", 0, "exit with 1 when the month costs more `DOLLARS`")
	fl.Float64Var(&f.integrator, "integrator-usd", 1, "what one integrator costs a month to look after without a gateway, in `DOLLARS`")
	fl.StringArrayVar(&f.from, "from", nil, "take the traffic from a log, plain or gzip: `[decisions=]FILE`, - for standard input; may be repeated")
	return cmd
}

func runCost(cmd *cobra.Command, c *common, f *costFlags) error {
	p, err := c.loadPolicy(c.config)
	if err != nil {
		return err
	}
	prices, err := cost.In(f.region)
	if err != nil {
		return usage("weir cost --region us-east-1 --rps 3", "%w", err)
	}
	t, err := f.traffic(cmd, c, p)
	if err != nil {
		return err
	}
	r := cost.Estimate(p, t, prices)
	switch c.format {
	case "json":
		err = writeJSON(c.stdout, r)
	case "markdown":
		err = writeCostMarkdown(c.stdout, &r)
	default:
		err = writeCostText(c, &r)
	}
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("max-usd") && float64(r.TotalUSD.Cents()) > math.Round(f.maxUSD*100) {
		return errNo{err: fmt.Errorf("the month costs %s dollars, more than --max-usd %.2f", r.TotalUSD, f.maxUSD)}
	}
	return nil
}

// traffic is what the flags say, and what the logs say beside them.
func (f *costFlags) traffic(cmd *cobra.Command, c *common, p *policy.Policy) (cost.Traffic, error) {
	const try = "weir cost --rps 3 --denied-share 0.2"
	set := cmd.Flags().Changed
	t := cost.Traffic{RPS: f.rps, Keys: f.keys, DeniedShare: f.denied, IntegratorUSD: f.integrator}
	bad := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }
	const most = 1e9 // requests a second: beyond any service, and no figure overflows
	switch {
	case bad(f.rps) || f.rps > most:
		return cost.Traffic{}, usage(try, "--rps %v: requests a second are from 0 to %.0g", f.rps, float64(most))
	case bad(f.denied) || f.denied > 1:
		return cost.Traffic{}, usage(try, "--denied-share %v: a share is from 0 to 1", f.denied)
	case f.keys < 0 || f.keys > 1e12:
		return cost.Traffic{}, usage(try, "--keys %d: the number of callers is from 0 to 1e12", f.keys)
	case bad(f.maxUSD):
		return cost.Traffic{}, usage(try+" --max-usd 50", "--max-usd %v is no amount of money", f.maxUSD)
	case bad(f.integrator) || f.integrator < 0.01:
		return cost.Traffic{}, usage(try+" --integrator-usd 1", "--integrator-usd %v: at least a cent", f.integrator)
	case len(f.from) > 0:
		seen, err := f.observed(cmd.Context(), c, p, t)
		if err != nil {
			return t, err
		}
		if !set("rps") {
			t.RPS = seen.RPS
		}
		if !set("denied-share") {
			t.DeniedShare = seen.DeniedShare
		}
		if !set("keys") {
			t.Keys = seen.Keys
		}
	case !set("rps"):
		return t, errHint{errUsage{errors.New("a bill depends on the traffic, and none is given")}, try}
	}
	return t, nil
}

// observed is the traffic that the logs show.
func (f *costFlags) observed(ctx context.Context, c *common, p *policy.Policy, t cost.Traffic) (cost.Traffic, error) {
	const try = "weir cost --from decisions=decisions.jsonl"
	inputs, err := parseFrom(f.from, try, "decisions")
	if err != nil {
		return t, err
	}
	var o cost.Observed
	for _, in := range inputs {
		s, err := decisions.ReadFile(ctx, in.file, func(r *engine.Record) error { o.Add(r); return nil })
		if err != nil {
			return t, err
		}
		if s.Bad > 0 || s.Cut {
			c.say("weir: %s: %s passed over that are no decision; the first is line %d: %s", in.file, plural(int(s.Bad), "line"), s.FirstBad, s.Why)
		}
	}
	if other := o.Unknown(p); len(other) > 0 {
		c.say("weir: %s has no limit %s: its calls in the log are priced like all others", c.config, strings.Join(other, ", "))
	}
	if err := o.Traffic(p, &t); err != nil {
		return t, errHint{errUsage{err}, "weir cost --rps 3 --denied-share 0.2"}
	}
	return t, nil
}

func writeCostText(c *common, r *cost.Report) error {
	t := &r.Traffic
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%g requests a second, %d h: %.3f million a month, %.3g%% refused, %d callers. Prices of %s, %s, in US dollars.\n\n",
		t.RPS, t.Hours, t.MillionRequests, 100*t.DeniedShare, t.Keys, r.Region, r.PricesAsOf)
	fmt.Fprintf(w, "layer\twhat\thow\ta month\tat worst\n")
	for _, l := range r.Layers {
		for _, i := range l.Items {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Layer, i.Name, i.Formula, i.USD, i.USDWorst)
		}
	}
	fmt.Fprintf(w, "%s\t\t\t%s\t%s\n\n", c.paint(bold, "total"), r.TotalUSD, r.TotalUSDWorst)
	fmt.Fprintf(w, "one decision writes %d of up to %d bytes: %s of %s\n\n", t.ItemsADecision, t.ItemBytes, plural(t.WriteUnitsAnItem, "write unit"), plural(t.ItemsADecision, "item"))
	for _, part := range costParts(r) {
		fmt.Fprintf(w, "%s\n", part.title)
		for _, i := range part.items {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", i.Name, i.Formula, i.USD, i.USDWorst)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, gatewayLine(r))
	for _, n := range r.Notes {
		fmt.Fprintln(w, "- "+n)
	}
	return w.Flush()
}

type costPart struct {
	title string
	items []cost.Item
}

func costParts(r *cost.Report) []costPart {
	return []costPart{
		{"Under attack, every further million requests costs (usually, at worst):", r.Attack},
		{"The same counters in other stores (a month, at worst):", r.Stores},
	}
}

func gatewayLine(r *cost.Report) string {
	g := &r.Gateway
	return fmt.Sprintf("Usage plans of a REST API would cost %s for these requests. They are cheaper from %s on (%s); with 50, below %.1f million requests a month.",
		g.USD, plural(int(g.BreakEvenIntegrators), "integrator"), g.Formula, g.BreakEvenMillions)
}

func writeCostMarkdown(w io.Writer, r *cost.Report) error {
	t := &r.Traffic
	var b strings.Builder
	fmt.Fprintf(&b, "%g requests a second, %d h: %.3f million a month, %.3g%% refused, %d callers. Prices of %s, %s, in US dollars.\n\n",
		t.RPS, t.Hours, t.MillionRequests, 100*t.DeniedShare, t.Keys, r.Region, r.PricesAsOf)
	b.WriteString("| layer | what | how | a month | at worst |\n| --- | --- | --- | ---: | ---: |\n")
	for _, l := range r.Layers {
		for _, i := range l.Items {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", l.Layer, i.Name, i.Formula, i.USD, i.USDWorst)
		}
	}
	fmt.Fprintf(&b, "| **total** | | | **%s** | **%s** |\n", r.TotalUSD, r.TotalUSDWorst)
	for _, part := range costParts(r) {
		fmt.Fprintf(&b, "\n%s\n\n| what | how | usually | at worst |\n| --- | --- | ---: | ---: |\n", part.title)
		for _, i := range part.items {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", i.Name, i.Formula, i.USD, i.USDWorst)
		}
	}
	fmt.Fprintf(&b, "\n%s\n\n", gatewayLine(r))
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
