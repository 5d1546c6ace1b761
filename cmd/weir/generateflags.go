package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlabs/weir/cmd/weir/internal/generate"
)

// apiFlag is the kind of API that --api names.
func apiFlag(kind, try string) (generate.API, error) {
	switch api := generate.API(kind); api {
	case "", generate.REST, generate.HTTP, generate.AppSync:
		return api, nil
	}
	return "", usage(try+" --api rest", "--api is rest, http or appsync, not %q", kind)
}

// variableName is what Lambda takes as the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]+$`)

// environment reads NAME=VALUE, each name once.
func environment(pairs []string, try string) (out []generate.Variable, err error) {
	try += " --env NAME=VALUE"
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
			return nil, usage(try, "--env %q is not NAME=VALUE", pair)
		case !variableName.MatchString(name):
			return nil, usage(try, "--env %q: a name is a letter and then letters, digits or _, two at least", name)
		case name == "BUCKET_TABLE" || name == "WEIR_LOG_KEY" || strings.HasPrefix(name, "AWS_"):
			return nil, usage(try, "--env %s is set by the stack or by AWS: give another name", name)
		case slices.ContainsFunc(out, func(v generate.Variable) bool { return v.Name == name }):
			return nil, usage(try, "--env %s is given twice", name)
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return nil, usage(try, "the value of --env %s is no text in UTF-8", name)
		}
		out = append(out, generate.Variable{Name: name, Value: value})
	}
	return out, nil
}

// unfilled is the first ${NAME} of a policy's text that no variable fills, or "".
func unfilled(path string, have []generate.Variable) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, m := range regexp.MustCompile(`\$\{([A-Za-z][A-Za-z0-9_]+)\}`).FindAllSubmatch(text, -1) {
		name := string(m[1])
		if !slices.ContainsFunc(have, func(v generate.Variable) bool { return v.Name == name }) {
			return name
		}
	}
	return ""
}

// seenFrom is a file's path from a folder, or as it was given where there is none.
func seenFrom(dir, file string) string {
	from, err := filepath.Abs(dir)
	if err != nil {
		return file
	}
	to, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	path, err := filepath.Rel(from, to)
	if err != nil {
		return file
	}
	return filepath.ToSlash(path)
}

// staleFiles are files of a folder that weir wrote in this form, and would not
// write now.
func staleFiles(dir string, files []generate.File, t target) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || slices.ContainsFunc(files, func(f generate.File) bool { return f.Name == e.Name() }) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if generate.Written(text) && bytes.Contains(text, []byte("\n# Generate: weir generate "+t.name+" ")) {
			out = append(out, path)
		}
	}
	return out, nil
}

// bare are words that a shell takes as they stand.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)

// shellWord writes a word for a shell, on one line.
func shellWord(word string) string {
	switch {
	case bare.MatchString(word):
		return word
	case strings.ContainsFunc(word, unicode.IsControl):
		return "$'" + strings.ReplaceAll(strings.ReplaceAll(strings.Trim(strconv.Quote(word), `"`), `\"`, `"`), "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
