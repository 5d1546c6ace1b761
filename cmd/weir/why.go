package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/engine"
)

func newWhy(c *common) *cobra.Command {
	var from []string
	cmd := &cobra.Command{
		Use:   "why ID",
		Short: "Explain a refusal by the id that its caller was given",
		Long: `Explain a refusal by its id: denialId in its body, denial_id in logs.

weir proxy keeps the last refusals, no more than five a second, in the records of
its store, which holds some 4,000 of them for a week; --from looks into a decision
log instead, which has them all. Only there are those of edge rules, which ask no
store. A store in the memory of another process cannot be asked, nor one in a file
while another process has it open.
` + fmt.Sprintf(exitHelp, "nothing is known of the id"),
		Example: `  weir why 3k2v9q8r1m0aa
  weir why 3k2v9q8r1m0aa --from decisions=decisions.jsonl`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage("weir why 3k2v9q8r1m0aa", "weir why takes one id, and got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(from) > 0 {
				inputs, err := parseFrom(from, "weir why "+args[0]+" --from decisions=decisions.jsonl", "decisions")
				if err != nil {
					return err
				}
				return whyOfLog(cmd.Context(), c, inputs, args[0])
			}
			return withRecords(cmd, c, "", func(k *counters) error { return whyOfStore(cmd.Context(), c, k, args[0]) })
		},
	}
	cmd.Flags().StringArrayVar(&from, "from", nil, "look into a decision log: `[decisions=]FILE`")
	return cmd
}

func whyOfStore(ctx context.Context, c *common, k *counters, id string) error {
	if k.records == nil {
		return fmt.Errorf("%s keeps no records of refusals", k.store)
	}
	d, ok, err := engine.FindDenial(ctx, k.records, id)
	if err != nil {
		return err
	}
	if !ok {
		return errHint{errNo{fmt.Errorf("%s keeps nothing of the refusal %s: it is old, one of many at once, or of an edge rule", k.store, id), false},
			"weir why " + id + " --from decisions=decisions.jsonl"}
	}
	return showWhy(c, &d)
}

// errFound ends the reading of a log.
var errFound = errors.New("found")

func whyOfLog(ctx context.Context, c *common, inputs []logInput, id string) error {
	for _, in := range inputs {
		var d engine.Denial
		_, err := decisions.ReadFile(ctx, in.file, func(r *engine.Record) error {
			if r.DenialID != id || r.Allowed || r.Shadow {
				return nil
			}
			d = engine.Denial{
				ID: id, Time: r.Time, Layer: r.Layer, Limit: r.Limit, LimitText: r.LimitText, Operation: r.Operation, Plan: r.Plan,
				KeyHash: r.KeyHash, Reason: r.Reason, Cost: r.Cost, RetryAfter: r.RetryAfterSeconds,
				Others: []engine.DenialOf{},
			}
			if l, err := weir.ParseLimit(r.LimitText); err == nil {
				d.Max = l.Max()
				if used := max(l.Max()-r.Remaining, 0); !r.Unknown {
					d.Used = &used
				}
			}
			return errFound
		})
		switch {
		case errors.Is(err, errFound):
			return showWhy(c, &d)
		case err != nil:
			return err
		}
	}
	return errHint{errNo{fmt.Errorf("no line of the log is of the refusal %s", id), false}, "weir why " + id}
}

// whyReport is the JSON of why.
type whyReport struct {
	SchemaVersion int `json:"schema_version"`
	engine.Denial
}

func showWhy(c *common, d *engine.Denial) error {
	if c.format == "json" {
		return writeJSON(c.stdout, whyReport{1, *d})
	}
	_, err := fmt.Fprintln(c.stdout, whyText(d))
	return err
}

func usedText(d *engine.Denial) string {
	if d.Used == nil {
		return "An unknown part"
	}
	return strconv.FormatInt(*d.Used, 10)
}

// whyText explains a refusal in sentences.
func whyText(d *engine.Denial) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: refused at %s by the %s limit %s", d.ID, d.Time.UTC().Format(time.RFC3339), d.Layer, d.Limit)
	if d.LimitText != "" {
		fmt.Fprintf(&b, " (%s", d.LimitText)
		if d.Plan != "" {
			fmt.Fprintf(&b, ", plan %s", d.Plan)
		}
		b.WriteByte(')')
	}
	b.WriteString(".\n")
	if d.KeyHash != "" {
		fmt.Fprintf(&b, "The caller is %s in logs. ", d.KeyHash)
	}
	switch d.Reason {
	case weir.ReasonNever.String():
		fmt.Fprintf(&b, "The call cost %d, and the limit can never hold more than %d.", d.Cost, d.Max)
	case weir.ReasonInFlight.String():
		fmt.Fprintf(&b, "%s of %d were used or held by calls under way, and the call cost %d.", usedText(d), d.Max, d.Cost)
	case weir.ReasonUnavailable.String():
		b.WriteString("The store could not be asked, and the limit says on_store_error: deny.")
	default:
		fmt.Fprintf(&b, "%s of %d were used, and the call cost %d.", usedText(d), d.Max, d.Cost)
	}
	if d.RetryAfter > 0 {
		fmt.Fprintf(&b, " The caller was told to try again %d seconds later.", d.RetryAfter)
	}
	if !d.RetryAt.IsZero() {
		fmt.Fprintf(&b, " The same call would have passed at %s.", d.RetryAt.Add(time.Second-1).UTC().Format(time.RFC3339)) // no second too early
	}
	for _, o := range d.Others {
		verdict := "refused too"
		if o.Allowed {
			verdict = fmt.Sprintf("would have allowed it, with %d left", o.Remaining)
		}
		fmt.Fprintf(&b, "\n%s limit %s %s.", o.Layer, o.Limit, verdict)
	}
	return b.String()
}
