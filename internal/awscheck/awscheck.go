// Package awscheck says what is wrong with a CloudFormation template, in two
// ways. [Validate] runs AWS's own validator, which knows the schema of every
// resource. [Check] knows what the schemas do not say and a deployment would find
// out, or nobody would: that a gateway response is only live with a deployment
// after it, that an alarm looks at a metric which somebody writes, that a role
// can do no more than a decision needs.
//
// Neither needs the network or an account. Only tests import this package.
package awscheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/weirlabs/weir/internal/npm"
)

// Finding is one thing that is wrong with a template.
type Finding struct {
	Rule     string // of AWS's validator, as "E3012"; of Check a name, as "waf-priority"
	Resource string // its logical id; "" for the template as a whole
	Problem  string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s", f.Resource, f.Rule, f.Problem)
}

// Validate runs AWS's validator over template files, in one process: starting it
// takes seconds, and a template some hundredths of one. The result has the
// findings of each file in the order given. Advice that no template escapes is
// left out: that some properties cannot be changed in place, and that resources
// have no tags of their own.
func Validate(ctx context.Context, files ...string) ([][]Finding, error) {
	node, err := npm.Node()
	if err != nil {
		return nil, err
	}
	_, self, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(self) {
		return nil, errors.New("the folder of validate.mjs is unknown in a test built with -trimpath; build without it")
	}
	dir := filepath.Dir(self)
	if err := npm.Install(dir); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, node, append([]string{filepath.Join(dir, "validate.mjs")}, files...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the validator failed: %w: %s", err, complaint.String())
	}
	lines := json.NewDecoder(bytes.NewReader(out))
	var all [][]Finding
	for _, file := range files {
		var line struct {
			File        string
			Diagnostics []struct {
				RuleID  string
				Message string
				Entity  struct{ LogicalID string }
			}
		}
		if err := lines.Decode(&line); err != nil || line.File != file {
			return nil, fmt.Errorf("the validator said nothing of %s: %v", file, err)
		}
		found := []Finding{}
		for _, d := range line.Diagnostics {
			found = append(found, Finding{d.RuleID, d.Entity.LogicalID, d.Message})
		}
		all = append(all, found)
	}
	return all, nil
}
