package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

// folder serves a policy and the files that it names: relative to the policy,
// or absolute.
type folder string

func (d folder) Open(name string) (fs.File, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(string(d), filepath.FromSlash(name))
	}
	return os.Open(name)
}

// loadPolicy reads a policy file as it is where no environment is named. The error is
// policy.Problems.
func loadPolicy(path string) (*policy.Policy, error) {
	return loadPolicyOf(path, policy.Options{})
}

// loadPolicy reads a policy file in the environment of --environment.
func (c *common) loadPolicy(path string) (*policy.Policy, error) {
	return loadPolicyOf(path, policy.Options{Environment: c.environment})
}

func loadPolicyOf(path string, o policy.Options) (*policy.Policy, error) {
	return loadPolicyFrom(folder(filepath.Dir(path)), path, o)
}

// loadPolicyFrom reads a policy by way of a file system that begins in its folder.
func loadPolicyFrom(fsys fs.FS, path string, o policy.Options) (*policy.Policy, error) {
	o.File, o.CheckStore, o.Expressions = path, checkStore, expression.Compile
	return policy.Load(fsys, filepath.Base(path), o)
}

// placeOf is where a finding is: in a file, or in a flag.
func placeOf(p policy.Problem) string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}
