//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The whole kind: wherever a policy names a file, a pipe that nobody writes to is a
// mistake at once, and nothing waits for it.
func TestNobodyWaitsForANamedPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "weir.yaml")
	for _, c := range []struct{ path, text, want string }{
		{pipe, "", "the policy cannot be read: it is a named pipe, not a file [WEIR1001]"},
		{filepath.Join(dir, "link"), "", "the policy cannot be read: it is a named pipe, not a file [WEIR1001]"},
		{file, "weir: 1\ninclude: [pipe]\n", "weir.yaml:2:11: error: `pipe` cannot be read: it is a named pipe, not a file [WEIR1603]"},
		{file, "weir: 1\ninclude: [" + pipe + "]\n", "cannot be read: it is a named pipe, not a file [WEIR1603]"},
		{file, "weir: 1\nauth: {api_keys: {header: x-api-key, file: pipe}}\n", "`pipe` cannot be read: it is a named pipe, not a file [WEIR1603]"},
		{file, "weir: 1\nauth: {jwt: {public_key_file: link}}\n", "`link` cannot be read: it is a named pipe, not a file [WEIR1603]"},
	} {
		if c.text != "" {
			writeFile(t, c.path, c.text)
		}
		for _, command := range []string{"check", "explain -c", "diff " + c.path} {
			var out, errs bytes.Buffer
			if code := run(t.Context(), append(strings.Fields(command), c.path), &out, &errs); code == 0 || !strings.Contains(out.String()+errs.String(), c.want) {
				t.Errorf("weir %s %s of %q: exit %d\n%s%s", command, c.path, c.text, code, out.String(), errs.String())
			}
		}
	}
	// One that becomes a pipe under a proxy leaves the last good policy in force.
	part := writeFile(t, filepath.Join(dir, "part.yaml"), "application: {limits: [{name: a, match: GET /a, by: ip, limit: 10/s}]}\n")
	writeFile(t, file, "weir: 1\ninclude: [part.yaml]\n")
	w := watching(t, file)
	if err := os.Rename(pipe, part); err != nil {
		t.Fatal(err)
	}
	w.rest(t)
	if !strings.Contains(w.log.String(), "it is a named pipe") || w.limit() != 10 {
		t.Errorf("limit %d, log:\n%s", w.limit(), w.log.String())
	}
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	writeFile(t, part, "application: {limits: [{name: a, match: GET /a, by: ip, limit: 20/s}]}\n")
	if w.rest(t); w.limit() != 20 {
		t.Errorf("a file again, and the limit is %d", w.limit())
	}
}
