package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// common holds what every command shares.
type common struct {
	config      string
	environment string
	store       string
	format      string
	json        bool
	out         string
	quiet       bool
	verbose     bool
	color       string

	stdout io.Writer // of the process, or the file of -o
	stderr io.Writer
}

const exitHelp = `
Exit codes: 0 done, or no objection; 1 %s; 2 usage error, or a policy
that does not load; 3 a store, server or file could not be reached; 130 interrupted.`

const storeUsage = "where counters live: memory:, bolt:FILE, redis://HOST:6379 or dynamodb:TABLE (`URL`; default: "

// folderKey marks commands whose -o is a folder that they write themselves.
const folderKey = "folder"

// formats are what a command can write, the first by default.
const formatsKey = "formats"

func newRoot(stdout, stderr io.Writer, args []string) *cobra.Command {
	c := &common{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:   "weir",
		Short: "Per-customer rate limits and quotas from one policy file",
		Long: `weir keeps per-customer rate limits and quotas that hold across every instance of
your API, from one policy file, on the store you already have.

Every flag is also read from the environment: --store as WEIR_STORE, --json as
WEIR_JSON=true. A flag on the command line wins.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		Version:       versionOf().String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true

	f := root.PersistentFlags()
	f.StringVarP(&c.config, "config", "c", "weir.yaml", "policy `FILE`")
	f.StringVar(&c.environment, "environment", "", "the part of the policy's environments: that is laid over it (`NAME`)")
	f.StringVar(&c.store, "store", "", storeUsage+"the policy's store)")
	f.StringVar(&c.format, "format", "", "output `FORMAT`: text, json, ...")
	f.BoolVar(&c.json, "json", false, "short for --format json")
	f.StringVarP(&c.out, "output", "o", "", "write the output to `PATH` instead of stdout")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "say only what went wrong")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "say more")
	f.StringVar(&c.color, "color", "auto", "colour the output: auto, always or never (`WHEN`)")

	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd.CommandPath()+" --help", "%w", err)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := flagsFromEnv(cmd); err != nil {
			return err
		}
		return c.settle(cmd)
	}
	root.PersistentPostRunE = func(*cobra.Command, []string) error { return c.close() }
	root.SetHelpCommand(newHelp(c))
	root.AddCommand(
		newDemo(c),
		newProxy(c),
		newCheck(c), newInit(c),
		newSchema(c),
		newExplain(c),
		newTest(c),
		newDiff(c),
		newProbe(c),
		newStore(c),
		newKeys(c),
		newAccounts(c),
		newUsage(c), newWhy(c),
		newCost(c),
		newReport(c),
		newGenerate(c),
		newDrift(c),
		newVersion(c),
	)
	return root
}

// noArgs refuses words that no command knows, and names the nearest that one does.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usage(cmd.CommandPath()+" --help", "%s takes no argument, but got %q", cmd.CommandPath(), args[0])
	}
	try := cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		try = cmd.CommandPath() + " " + near[0]
	}
	return usage(try, "%s has no command %q", cmd.CommandPath(), args[0])
}

// flagsFromEnv gives every flag that is not on the command line the value of
// WEIR_FLAG, if that is set.
func flagsFromEnv(cmd *cobra.Command) error {
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		value, set := os.LookupEnv(name)
		if !set || f.Changed || f.Name == "help" || f.Name == "version" || failed != nil {
			return
		}
		if (f.Name == "format" || f.Name == "json") && cmd.Annotations[formatsKey] == "" {
			return // set for other commands; this one has a single form
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = usage("unset "+name, "the environment variable %s: %w", name, err)
		}
	})
	return failed
}

// settle checks the common flags, and opens the file of -o.
func (c *common) settle(cmd *cobra.Command) error {
	if c.json {
		if c.format != "" && c.format != "json" {
			return usage(cmd.CommandPath()+" --json", "--json and --format %s contradict each other", c.format)
		}
		c.format = "json"
	}
	if known := cmd.Annotations[formatsKey]; known != "" {
		list := strings.Split(known, ",")
		if c.format == "" {
			c.format = list[0]
		}
		if !slices.Contains(list, c.format) {
			return usage(cmd.CommandPath()+" --format "+list[0], "%s has no format %q; it has %s", cmd.CommandPath(), c.format, strings.Join(list, ", "))
		}
	} else if c.format != "" {
		return usage(cmd.CommandPath()+" --help", "%s has one form of output; --format and --json do not apply", cmd.CommandPath())
	}
	if !slices.Contains([]string{"auto", "always", "never"}, c.color) {
		return usage(cmd.CommandPath()+" --color never", "--color is auto, always or never, not %q", c.color)
	}
	if c.quiet && c.verbose {
		return usage(cmd.CommandPath()+" -v", "-q and -v contradict each other")
	}
	if c.out != "" && cmd.Annotations[folderKey] == "" {
		f, err := os.Create(c.out)
		if err != nil {
			return fmt.Errorf("the output file cannot be written: %w", err)
		}
		c.stdout = f
	}
	return nil
}

// close ends the file of -o. What could not be written is an error: half a file
// must not look like a whole one.
func (c *common) close() error {
	if f, ok := c.stdout.(*os.File); ok && f.Name() == c.out {
		if err := f.Close(); err != nil {
			return fmt.Errorf("the output file is not complete: %w", err)
		}
	}
	return nil
}

// say writes a line for people to stderr, unless -q.
func (c *common) say(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.stderr, format+"\n", args...)
	}
}

// logger writes log lines to w: warnings and errors, with -v everything, with
// -q errors only.
func (c *common) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case c.verbose:
		level = slog.LevelDebug
	case c.quiet:
		level = slog.LevelError
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// paint colours text for a terminal, when it is one.
func (c *common) paint(code, text string) string {
	on := c.color == "always"
	if f, ok := c.stdout.(*os.File); ok && c.color == "auto" && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		if st, err := f.Stat(); err == nil {
			on = st.Mode()&os.ModeCharDevice != 0
		}
	}
	if !on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	green = "32"
	red   = "31"
	bold  = "1"
)
