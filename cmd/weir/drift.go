package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/generate"
)

type driftFlags struct {
	from   []string
	prefix string
	api    string
}

const tryDrift = "aws wafv2 get-web-acl --scope REGIONAL --name NAME --id ID | weir drift --from waf=-"

func newDrift(c *common) *cobra.Command {
	var f driftFlags
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Compare what is live on AWS with the policy",
		Long: `Read settings as AWS's command line prints them, and say where they are not what the
policy says, and which side is stricter. Only what is given is compared:

  waf        aws wafv2 get-web-acl --scope REGIONAL --name NAME --id ID
  ipset      aws wafv2 get-ip-set --scope REGIONAL --name NAME --id ID   (each of its IP sets)
  usageplan  aws apigateway get-usage-plans   (each page of it; or get-usage-plan, for some)
  table      aws dynamodb describe-table --table-name TABLE
  ttl        aws dynamodb describe-time-to-live --table-name TABLE
` + fmt.Sprintf(exitHelp, "they disagree"),
		Example: `  weir drift --from waf=acl.json --from ipset=office.json --from usageplan=plans.json --from table=table.json
  ` + tryDrift,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return runDrift(c, &f, cmd.InOrStdin()) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.from, "from", nil, "settings: `[waf|ipset|usageplan|table|ttl=]FILE`, - for standard input; may be repeated")
	fl.StringVar(&f.prefix, "path-prefix", "/prod", "what stands before a path where WAF sees it, as the stack's PathPrefix: `/STAGE`")
	fl.StringVar(&f.api, "api", "", "`KIND` of API in front: rest, http or appsync (default: what the policy needs)")
	return cmd
}

func runDrift(c *common, f *driftFlags, stdin io.Reader) error {
	inputs, err := parseFrom(f.from, tryDrift, "waf", "ipset", "usageplan", "table", "ttl")
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return usage(tryDrift, "no live settings are named")
	}
	p, err := loadPolicy(c.config)
	if err != nil {
		return err
	}
	api, err := apiFlag(f.api, tryDrift)
	if err != nil {
		return err
	}
	live := generate.Live{PathPrefix: f.prefix}
	seen := map[string]bool{}
	for _, in := range inputs {
		var text []byte
		if in.file == "-" {
			text, err = io.ReadAll(stdin)
		} else {
			text, err = os.ReadFile(in.file)
		}
		if err != nil {
			return fmt.Errorf("the settings cannot be read: %w", err)
		}
		kind, err := generate.Kind(text)
		if err != nil || kind == "" || in.kind != "" && in.kind != kind {
			return usage(tryDrift, "%s is not what aws prints for %s", in.file, orAny(in.kind))
		}
		if seen[kind] && kind != "ipset" && kind != "usageplan" {
			return usage(tryDrift, "%s is a second one for %s, and the policy is compared with one", in.file, kind)
		}
		seen[kind] = true
		switch kind {
		case "waf":
			live.WebACL = text
		case "ipset":
			live.IPSets = append(live.IPSets, text)
		case "usageplan":
			live.UsagePlans = append(live.UsagePlans, text)
		case "table":
			live.Table = text
		case "ttl":
			live.TimeToLive = text
		}
	}
	found, gaps, err := generate.Drift(p, api, live)
	if err != nil {
		return usage(tryDrift, "%w", err)
	}
	for _, g := range gaps {
		c.say("weir: %s: %s", c.config, g)
	}
	if c.format == "json" {
		report := struct {
			SchemaVersion int                     `json:"schema_version"`
			Disagreements []generate.Disagreement `json:"disagreements"`
		}{1, append([]generate.Disagreement{}, found...)}
		if err := writeJSON(c.stdout, report); err != nil {
			return err
		}
	} else {
		for _, d := range found {
			if _, err := fmt.Fprintln(c.stdout, d); err != nil {
				return err
			}
		}
	}
	c.say("weir: %s", plural(len(found), "disagreement"))
	if len(found) > 0 {
		return errNo{errors.New("what is live is not what the policy says"), true}
	}
	return nil
}

func orAny(kind string) string {
	if kind == "" {
		return "any of waf, ipset, usageplan, table and ttl"
	}
	return kind
}
