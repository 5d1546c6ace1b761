package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlabs/weir/cmd/weir/internal/generate"
	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

// filled is a folder in which one file has been filled in.
type filled struct {
	folder
	name, text string
}

func (f filled) Open(name string) (fs.File, error) {
	if name == f.name {
		return textFile{strings.NewReader(f.text)}, nil
	}
	return f.folder.Open(name)
}

// loadFilled reads a policy in which variables stand, as ${NAME}.
func loadFilled(path string, variables []generate.Variable) (*policy.Policy, error) {
	if len(variables) == 0 {
		return loadPolicy(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return loadPolicy(path) // which says it as every command does
	}
	var pairs []string
	for _, v := range variables {
		pairs = append(pairs, "${"+v.Name+"}", v.Value)
	}
	name := filepath.Base(path)
	fsys := filled{folder(filepath.Dir(path)), name, strings.NewReplacer(pairs...).Replace(string(text))}
	return policy.Load(fsys, name, policy.Options{File: path, CheckStore: checkStore, Expressions: expression.Compile})
}
