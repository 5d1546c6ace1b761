package main

import (
	"errors"
	"io"
	"io/fs"
	"regexp"
	"strings"
)

// demoFiles serves the example's files with what the demo needs of its own and
// no file should hold: trust in this machine as a proxy, so that scenarios can
// come from many addresses, and an API key that was made a moment ago.
type demoFiles struct {
	base    fs.FS
	policy  string // name of the policy file
	keyLine string // "" until it is known which plans there are
}

func (d demoFiles) Open(name string) (fs.File, error) {
	f, err := d.base.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<20))
	if err != nil {
		return nil, err
	}
	changed := string(text)
	switch {
	case name == d.policy:
		changed = trustLoopback(changed)
	case !strings.Contains(changed, "-----BEGIN"): // the other file that a policy names is one of keys
		changed += "\n" + d.keyLine + "\n"
	}
	return textFile{strings.NewReader(changed)}, nil
}

type textFile struct{ *strings.Reader }

func (textFile) Stat() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }
func (textFile) Close() error               { return nil }

var (
	proxiesFlow  = regexp.MustCompile(`(?m)^trusted_proxies:[ \t]*\[`)
	proxiesBlock = regexp.MustCompile(`(?m)^(trusted_proxies:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*)([ \t]*)- `)
	proxiesAny   = regexp.MustCompile(`(?m)^trusted_proxies:`)
)

// trustLoopback adds 127.0.0.1/32 to the policy's trusted proxies.
func trustLoopback(text string) string {
	const own = "127.0.0.1/32"
	switch {
	case proxiesFlow.MatchString(text):
		return proxiesFlow.ReplaceAllString(text, "trusted_proxies: ["+own+", ")
	case proxiesBlock.MatchString(text):
		return proxiesBlock.ReplaceAllString(text, "${1}${2}- "+own+"\n${2}- ")
	case proxiesAny.MatchString(text):
		return text // a mistake, which the loader names better
	}
	return strings.TrimRight(text, "\n") + "\ntrusted_proxies: [" + own + "]\n"
}
