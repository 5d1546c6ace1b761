package main

import (
	"slices"
	"strings"
)

// logInput is one --from [KIND=]FILE.
type logInput struct {
	kind string // "" when the flag does not say
	file string // - is standard input
}

// parseFrom reads the values of --from. kinds are those that the command takes;
// try is the command line to show when one is wrong.
func parseFrom(values []string, try string, kinds ...string) ([]logInput, error) {
	var list []logInput
	stdin := false
	for _, v := range values {
		in := logInput{file: v}
		if kind, file, found := strings.Cut(v, "="); found && slices.Contains(kinds, kind) {
			in = logInput{kind, file}
		} else if found && !strings.ContainsAny(kind, "/.") {
			return nil, usage(try, "--from %s: there is no kind of log %q here; there is %s", v, kind, strings.Join(kinds, ", "))
		}
		if in.file == "" {
			return nil, usage(try, "--from %q names no file", v)
		}
		if in.file == "-" {
			if stdin {
				return nil, usage(try, "standard input can be read once, and --from names it twice")
			}
			stdin = true
		}
		list = append(list, in)
	}
	return list, nil
}
