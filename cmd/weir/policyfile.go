package main

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlabs/weir/policy"
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

// loadPolicy reads a policy file. The error is policy.Problems.
func loadPolicy(path string) (*policy.Policy, error) {
	return policy.Load(folder(filepath.Dir(path)), filepath.Base(path), policy.Options{File: path, CheckStore: checkStore})
}
