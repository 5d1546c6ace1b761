package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// codesText explains every code by examples: the files of policy/testdata/codes and
// of testdata/codes, one after the other. A test writes it.
//
//go:embed codes.txt
var codesText string

// codeExample is an example of a code, and what is said of it.
type codeExample struct {
	code, why, said string
	without         string // what the program that says it lacks; "" for weir itself
	files           []codeFile
}

type codeFile struct{ name, text string }

// codeExamples are all examples, in the order of their codes.
func codeExamples() []codeExample {
	var out []codeExample
	for _, part := range strings.Split("\n"+codesText, "\n== WEIR")[1:] {
		name, rest, _ := strings.Cut("WEIR"+part, " ==\n")
		code, _, _ := strings.Cut(name, "-")
		e := codeExample{code: code}
		for _, s := range strings.Split("\n"+rest, "\n-- ") {
			name, text, _ := strings.Cut(s, " --\n")
			switch name {
			case "":
			case "why":
				e.why = strings.TrimSpace(text)
			case "want":
				e.said = strings.TrimSpace(text)
			case "without":
				e.without = strings.TrimSpace(text)
			default:
				e.files = append(e.files, codeFile{name, strings.TrimRight(text, "\n") + "\n"})
			}
		}
		out = append(out, e)
	}
	return out
}

// explainedCodes are all codes, in their order. Of a code with several examples it
// is the first.
func explainedCodes() []codeExample {
	return slices.CompactFunc(codeExamples(), func(a, b codeExample) bool { return a.code == b.code })
}

// policy is the example as people read it: further files below the policy, each
// under its name.
func (e *codeExample) policy() string {
	var parts []string
	for _, f := range e.files {
		if f.name != "weir.yaml" {
			f.text = "# " + f.name + "\n" + f.text
		}
		parts = append(parts, f.text)
	}
	return strings.Join(parts, "\n")
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
		who := "weir check"
		if e.without != "" {
			who = "a program without " + e.without
		}
		_, err := fmt.Fprintf(c.stdout, "%s\n\n%s\n\nFor example, this policy:\n\n%s\nOf it %s says:\n\n%s\n", e.code, e.why, indented(e.policy()), who, indented(e.said))
		return err
	}
	return usage("weir help codes", "there is no code %s", code)
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}
