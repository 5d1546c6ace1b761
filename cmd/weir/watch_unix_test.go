//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weirlabs/weir/policy"
)

// A file that changes while it is read is not believed.
func TestAPolicyThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := syscall.Mkfifo(keys, 0o600); err != nil { // whoever reads it waits for a writer
		t.Fatal(err)
	}
	text := "weir: 1\nauth: {api_keys: {header: x-api-key, file: keys}}\ngateway: {plans: {basic: %d/s}}\n"
	file := writeFile(t, filepath.Join(dir, "weir.yaml"), fmt.Sprintf(text, 10))
	src := &sources{path: file}
	for i, meanwhile := range []func(){
		func() { writeFile(t, file, fmt.Sprintf(text, 100)) },
		func() {},
	} {
		type result struct {
			p   *policy.Policy
			err error
		}
		read := make(chan result)
		go func() {
			p, err := src.load()
			read <- result{p, err}
		}()
		f, err := os.OpenFile(keys, os.O_WRONLY, 0) // returns when the policy is read, and its keys are waited for
		if err != nil {
			t.Fatal(err)
		}
		meanwhile()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r := <-read
		if i == 0 && !errors.Is(r.err, errChanging) {
			t.Errorf("written while it was read: %v", r.err)
		}
		if i == 1 && (r.err != nil || r.p.Rules()[0].Limit.Max() != 100) {
			t.Errorf("at rest: %v", r.err)
		}
	}
}
