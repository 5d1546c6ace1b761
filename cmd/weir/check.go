package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/diff"
	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

func newCheck(c *common) *cobra.Command {
	var strict, effective bool
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Find the mistakes in a policy",
		Long: `Read policy files and show every mistake, with its place, the line and what to
write instead. Without a FILE it reads the one of -c.
` + fmt.Sprintf(exitHelp, "there are errors, or warnings with --strict"),
		Example: `  weir check
  weir check --strict --json examples/little-stage/weir.yaml
  weir check --effective --environment staging`,
		Annotations: map[string]string{formatsKey: "text,json,github,sarif"},
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				files = []string{c.config}
			}
			if effective {
				return printEffective(cmd, c, files)
			}
			return check(c, files, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings count as errors")
	cmd.Flags().BoolVar(&effective, "effective", false, "print the policy with everything that it includes and every default")
	return cmd
}

// printEffective prints one policy as it is in force.
func printEffective(cmd *cobra.Command, c *common, files []string) error {
	if len(files) != 1 || c.format != "text" {
		return usage(cmd.CommandPath()+" --effective "+shellWord(files[0]), "--effective prints one policy, as YAML")
	}
	fsys := onceRead{folder(filepath.Dir(files[0])), map[string][]byte{}}
	p, found, err := problemsOf(c, fsys, files[0])
	if err != nil {
		return err
	}
	if p == nil {
		if err := writeProblems(c, found, nil); err != nil {
			return err
		}
		return errNo{errors.New("the policy has mistakes"), true}
	}
	text, err := policy.Effective(fsys, filepath.Base(files[0]), policy.Options{Environment: c.environment, File: files[0], CheckStore: checkStore, Expressions: expression.Compile})
	if err != nil {
		return err
	}
	if shown := diff.WithoutPassword(p.Store()); shown != p.Store() {
		text = bytes.Replace(text, []byte("store: "+strconv.Quote(p.Store())), []byte("store: "+strconv.Quote(shown)), 1)
		c.say("weir: note: the password of the store is left out; give the whole URL by --store or WEIR_STORE")
	}
	_, err = c.stdout.Write(text)
	return err
}

// checkReport is the JSON of check.
type checkReport struct {
	SchemaVersion int            `json:"schema_version"`
	Files         []string       `json:"files"`
	Errors        int            `json:"errors"`
	Warnings      int            `json:"warnings"`
	Problems      []checkProblem `json:"problems"`
}

type checkProblem struct {
	Severity policy.Severity `json:"severity"`
	Code     policy.Code     `json:"code"`
	File     string          `json:"file"`
	Line     int             `json:"line"` // 0: the whole file
	Column   int             `json:"column"`
	Message  string          `json:"message"`
	Hint     string          `json:"hint"`
	Excerpt  string          `json:"excerpt"`
}

func check(c *common, files []string, strict bool) error {
	rep := checkReport{SchemaVersion: 1, Files: files, Problems: []checkProblem{}}
	var all []policy.Problem
	for _, file := range files {
		_, found, err := problemsOf(c, folder(filepath.Dir(file)), file)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	for _, f := range all {
		if f.Severity == policy.Error {
			rep.Errors++
		} else {
			rep.Warnings++
		}
		rep.Problems = append(rep.Problems, checkProblem{f.Severity, f.Code, f.File, f.Line, f.Col, f.Message, f.Hint, f.Excerpt})
	}
	if err := writeProblems(c, all, &rep); err != nil {
		return err
	}
	if c.format != "json" {
		c.say("weir: %s: %s, %s", plural(len(files), "file"), plural(rep.Errors, "error"), plural(rep.Warnings, "warning"))
	}
	if rep.Errors > 0 || strict && rep.Warnings > 0 {
		return errNo{errors.New("the policy has mistakes"), true}
	}
	return nil
}

// problemsOf are the mistakes and findings of one file, which is nil where it has
// mistakes.
func problemsOf(c *common, fsys fs.FS, file string) (*policy.Policy, policy.Problems, error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, usage("weir init -c "+shellWord(file), "there is no policy file %s", file)
	} else if err != nil {
		return nil, nil, fmt.Errorf("the policy cannot be read: %w", err)
	}
	p, err := loadPolicyFrom(fsys, file, policy.Options{Environment: c.environment})
	if err == nil {
		return p, p.Warnings(), nil
	}
	var found policy.Problems
	if errors.As(err, &found) {
		return nil, found, nil
	}
	return nil, nil, err
}

func writeProblems(c *common, all []policy.Problem, rep *checkReport) error {
	switch c.format {
	case "json":
		return writeJSON(c.stdout, rep)
	case "sarif":
		return writeSARIF(c.stdout, all)
	}
	for i := range all {
		text := all[i].String()
		if c.format == "github" {
			text = githubLine(&all[i])
		}
		if _, err := fmt.Fprintln(c.stdout, text); err != nil {
			return err
		}
	}
	return nil
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
