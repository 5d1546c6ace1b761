package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A hint is a command that works as it is printed. Where it is written, in the
// middle of a command's work, it says only what is particular to it: what was
// typed on the command line to find the policy and the store is added here.

// typable makes a hint what one can type after the command that failed.
func typable(failed *cobra.Command, try string) string {
	switch {
	case strings.HasPrefix(try, "--"): // a flag in place of the one that was wrong
		name, _, _ := strings.Cut(strings.TrimPrefix(try, "--"), " ")
		return retyped(failed, failed.Flags().Args(), name) + " " + try
	case !strings.HasPrefix(try, "weir ") || strings.Contains(try, " --help") || strings.Contains(try, " --from decisions="):
		return try
	}
	words := strings.Fields(try)
	support := slices.Contains([]string{"keys", "accounts", "usage", "why", "store"}, words[1])
	if !support && !slices.Contains([]string{"explain", "cost", "report", "drift"}, words[1]) && try != "weir check" {
		return try
	}
	names := []string{"config", "environment", "store"}
	if strings.HasPrefix(try+" ", failed.CommandPath()+" ") {
		names = append(names, "reason", "expires", "dry-run") // a change is the same change, and no more than a look if that was meant
	}
	for _, name := range names {
		f := failed.Flag(name)
		switch {
		case f == nil, strings.Contains(try+" ", " --"+name+" "), name == "store" && !support:
			continue
		case name == "config":
			if _, err := os.Stat(f.Value.String()); err != nil || slices.Contains(words, "-c") {
				continue // that is what was wrong
			}
		}
		try += typedFlag(f)
	}
	return try
}

// retyped is a command as it was typed, with other arguments and without one of
// its flags.
func retyped(cmd *cobra.Command, args []string, without string) string {
	text := cmd.CommandPath()
	for _, a := range args {
		text += " " + shellWord(a)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != without && f.Name != "help" {
			text += typedFlag(f)
		}
	})
	return text
}

// typedFlag is a flag as it was given on the command line, and "" when it was not:
// the environment's still holds.
func typedFlag(f *pflag.Flag) (text string) {
	if value, set := os.LookupEnv(variable(f)); !f.Changed || set && value == f.Value.String() {
		return ""
	}
	values := []string{f.Value.String()}
	if list, several := f.Value.(pflag.SliceValue); several {
		values = list.GetSlice()
	}
	for _, v := range values {
		switch {
		case f.Name == "store":
			u, err := parseStore(v)
			if err != nil {
				continue
			}
			text += " " + u.flag()
		case f.Name == "config":
			text += " -c " + shellWord(v)
		case f.NoOptDefVal == v:
			text += " --" + f.Name
		default:
			text += " --" + f.Name + " " + shellWord(v)
		}
	}
	return text
}

// variable is the environment's name of a flag.
func variable(f *pflag.Flag) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
