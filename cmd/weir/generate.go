package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/generate"
	"github.com/weirlabs/weir/policy"
)

type generateFlags struct {
	check, force, approximate, keepData bool

	api  string
	open []string
	env  []string
}

// target is a form in which a policy can be generated.
type target struct {
	name  string
	short string
	write func(*policy.Policy, generate.Options) (generate.Output, error)
}

func newGenerate(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write the policy as infrastructure for AWS",
		Long: `Write the policy as infrastructure for AWS: edge rules as a web ACL, gateway plans as
usage plans, and for the application the table, a role, the function, alarms and a
dashboard. Where a service cannot do what the policy says, that is an error which
names what comes nearest, or with --approximate a line at the head of the files.
` + fmt.Sprintf(exitHelp, "the folder differs (--check)"),
		Example: `  weir generate cloudformation -o aws
  weir generate terraform -o aws --approximate
  weir generate cloudformation -o aws --check`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("weir generate cloudformation -o aws", "weir generate cloudformation, or terraform?")
		},
	}
	for _, t := range []target{
		{"cloudformation", "A template of CloudFormation, and a file that deploys it with Serverless", generate.CloudFormation},
		{"terraform", "The same for Terraform's AWS provider", generate.Terraform},
	} {
		cmd.AddCommand(newTarget(c, t))
	}
	return cmd
}

func newTarget(c *common, t target) *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use:         t.name,
		Short:       t.short,
		Args:        noArgs,
		Example:     "  weir generate " + t.name + " -c weir.yaml -o aws",
		Annotations: map[string]string{folderKey: "true"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return runGenerate(c, &f, t) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.approximate, "approximate", false, "generate what comes nearest where AWS cannot do what the policy says")
	fl.BoolVar(&f.check, "check", false, "write nothing, and say what differs in the folder")
	fl.BoolVar(&f.force, "force", false, "overwrite files that weir did not write")
	fl.BoolVar(&f.keepData, "keep-data", true, "protect the table from deletion")
	fl.StringVar(&f.api, "api", "", "`KIND` of API in front: rest, http or appsync (default: what the policy needs)")
	fl.StringArrayVar(&f.open, "open", nil, "`'METHOD /PATH'` of an HTTP API that asks for no token; may be repeated")
	fl.StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` in the function's environment, which stands for ${NAME} in the policy; may be repeated")
	return cmd
}

func runGenerate(c *common, f *generateFlags, t target) error {
	try := "weir generate " + t.name + " -c " + shellWord(c.config) + " -o aws"
	if c.out == "" {
		return usage(try, "no folder to write to is given")
	}
	api, err := apiFlag(f.api, try)
	if err != nil {
		return err
	}
	// The same whatever folder the command was given in: paths in the files are
	// from the folder that they are in.
	from := seenFrom(c.out, c.config)
	o := generate.Options{File: from, Command: f.command(t, from, "."), API: api, Open: f.open, Approximate: f.approximate, LoseData: !f.keepData}
	if o.Environment, err = environment(f.env, try); err != nil {
		return err
	}
	command := f.command(t, c.config, c.out)
	p, err := loadFilled(c.config, o.Environment)
	if err != nil {
		if name := unfilled(c.config, o.Environment); name != "" {
			return errHint{err, command + " --env " + name + "=VALUE"}
		}
		return err
	}
	out, err := t.write(p, o)
	var gaps generate.Gaps
	if errors.As(err, &gaps) {
		return usage(command+" --approximate", "%s: %w", c.config, err)
	} else if err != nil {
		return usage("weir generate "+t.name+" --help", "%w", err)
	}
	for _, g := range out.Gaps {
		c.say("weir: %s: %s", c.config, g)
	}
	if f.check {
		return checkFolder(c, out.Files, t, command)
	}
	return writeFolder(c, out.Files, f.force)
}

// command is the command line that writes the same again.
func (f *generateFlags) command(t target, config, out string) string {
	words := []string{"weir generate", t.name, "-c", shellWord(config), "-o", shellWord(out)}
	if f.api != "" {
		words = append(words, "--api", f.api)
	}
	for _, o := range f.open {
		words = append(words, "--open", shellWord(o))
	}
	for _, e := range f.env {
		words = append(words, "--env", shellWord(e))
	}
	if f.approximate {
		words = append(words, "--approximate")
	}
	if !f.keepData {
		words = append(words, "--keep-data=false")
	}
	return strings.Join(words, " ")
}

// checkFolder compares a folder with what would be written.
func checkFolder(c *common, files []generate.File, t target, command string) error {
	differs := false
	for _, f := range files {
		path := filepath.Join(c.out, f.Name)
		have, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(c.stdout, "%s is missing\n", path)
			differs = true
		case err != nil:
			return err
		case !bytes.Equal(have, f.Text):
			line, is, want := firstDifference(string(have), string(f.Text))
			fmt.Fprintf(c.stdout, "%s:%d differs\n  is      %s\n  should  %s\n", path, line, is, want)
			differs = true
		}
	}
	stale, err := staleFiles(c.out, files, t)
	if err != nil {
		return err
	}
	for _, path := range stale {
		fmt.Fprintf(c.stdout, "%s is not generated any more\n", path)
		differs = true
	}
	if differs {
		return errHint{errNo{fmt.Errorf("%s is not what the policy generates", c.out), false}, command}
	}
	c.say("weir: %s is what the policy generates", c.out)
	return nil
}

// firstDifference is the first line in which two texts differ.
func firstDifference(is, want string) (line int, a, b string) {
	x, y := strings.Split(is, "\n"), strings.Split(want, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return i + 1, x[i], y[i]
		}
	}
	if len(x) < len(y) {
		return len(x), "(the end)", y[len(x)-1]
	}
	return len(y), x[len(y)-1], "(the end)"
}

// writeFolder writes the files. Somebody's own files of the same names stay, all
// or none: nothing is written before all have been looked at.
func writeFolder(c *common, files []generate.File, force bool) error {
	for _, f := range files {
		path := filepath.Join(c.out, f.Name)
		have, err := os.ReadFile(path)
		if err == nil && !generate.Written(have) {
			if !force {
				return usage("weir generate --help", "%s is there, and weir did not write it: name another folder, or overwrite it with --force", path)
			}
			c.say("weir: %s was not written by weir, and is overwritten", path)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(c.out, f.Name)
		if err := os.WriteFile(path, f.Text, 0o644); err != nil {
			return err
		}
		c.say("weir: wrote %s", path)
	}
	return nil
}
