package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// codesText explains every code by an example: the files of policy/testdata/codes,
// one after the other. A test writes it.
//
//go:embed codes.txt
var codesText string

// explainedCode is what is said of a code.
type explainedCode struct {
	code, why, policy, said string
}

// explainedCodes are all codes, in their order. Of a code with several examples it
// is the first.
func explainedCodes() []explainedCode {
	var out []explainedCode
	for _, part := range strings.Split("\n"+codesText, "\n== WEIR")[1:] {
		part = "WEIR" + part
		name, rest, _ := strings.Cut(part, " ==\n")
		code, _, _ := strings.Cut(name, "-")
		if len(out) > 0 && out[len(out)-1].code == code {
			continue
		}
		sections := strings.Split("\n"+rest, "\n-- ")
		e := explainedCode{code: code}
		for _, s := range sections {
			name, text, _ := strings.Cut(s, " --\n")
			switch name {
			case "why":
				e.why = strings.TrimSpace(text)
			case "want":
				e.said = strings.TrimSpace(text)
			case "":
			default:
				if name != "weir.yaml" {
					text = "# " + name + "\n" + text
				}
				if e.policy = strings.TrimRight(e.policy, "\n"); e.policy != "" {
					e.policy += "\n\n"
				}
				e.policy += text
			}
		}
		out = append(out, e)
	}
	return out
}

var codeForm = regexp.MustCompile(`^(?i:WEIR)?(\d{4})$`)

// newHelp is `weir help`, which knows the codes beside the commands.
func newHelp(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | CODE | codes]",
		Short: "Help about a command, or about a code of weir check",
		Long: `Help about a command; about a code that weir check names, such as WEIR1007; or the
list of all codes.
`,
		Example: "  weir help proxy\n  weir help WEIR1007\n  weir help codes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "codes" {
				for _, e := range explainedCodes() {
					if _, err := fmt.Fprintf(c.stdout, "%s  %s\n", e.code, e.why); err != nil {
						return err
					}
				}
				return nil
			}
			if len(args) == 1 && codeForm.MatchString(args[0]) {
				return helpCode(c, "WEIR"+codeForm.FindStringSubmatch(args[0])[1])
			}
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noArgs(cmd.Root(), args)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func helpCode(c *common, code string) error {
	for _, e := range explainedCodes() {
		if e.code != code {
			continue
		}
		_, err := fmt.Fprintf(c.stdout, "%s\n\n%s\n\nFor example, this policy:\n\n%s\nOf it weir check says:\n\n%s\n", e.code, e.why, indented(e.policy), indented(e.said))
		return err
	}
	return usage("weir help codes", "there is no code %s", code)
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}
