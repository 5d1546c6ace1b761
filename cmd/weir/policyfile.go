package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && !shell(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errPipe}
	}
	return os.Open(name)
}

// onceRead is a folder of which every file is read once: a pipe says nothing twice.
type onceRead struct {
	folder folder
	texts  map[string][]byte
}

func (o onceRead) Open(name string) (fs.File, error) {
	text, known := o.texts[name]
	if !known {
		f, err := o.folder.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if text, err = io.ReadAll(io.LimitReader(f, maxPolicyPart)); err != nil {
			return nil, err
		}
		o.texts[name] = text
	}
	return textFile{strings.NewReader(string(text))}, nil
}

// maxPolicyPart is more than any file of a policy may have.
const maxPolicyPart = 65 << 20

// errPipe: to open a pipe is to wait for a writer, who may never come.
var errPipe = errors.New("it is a named pipe, not a file")

// shell reports whether a name is one that a shell gives to a pipe of its own, as in
// `weir check <(generate)`: that has a writer.
func shell(name string) bool {
	return strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/")
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
