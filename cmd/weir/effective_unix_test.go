//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
)

// A policy that comes through a pipe of the shell is read once, and is printed as one
// in a file is.
func TestEffectiveOfAPipe(t *testing.T) {
	for _, text := range []string{
		"weir: 1\nname: a\n",
		"weir: 1\napplication: {limits: [{name: a, by: ip, limit: 1/s}]}\n", // with findings
		"weir: 1\nnme: a\n",
	} {
		said := func(file string) (int, string) {
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"check", "--effective", file}, &out, &errs)
			return code, out.String() + errs.String()
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		w.Close()
		name := fmt.Sprintf("/dev/fd/%d", r.Fd())
		code, got := said(name)
		file := writeFile(t, t.TempDir()+"/weir.yaml", text)
		wantCode, want := said(file)
		if got = string(bytes.ReplaceAll([]byte(got), []byte(name), []byte(file))); code != wantCode || got != want || got == "" {
			t.Errorf("%s\nexit %d\n%s\nwant exit %d\n%s", text, code, got, wantCode, want)
		}
	}
}
