package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// A file that changes while it is read is not believed.
func TestAPolicyThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	keys := writeFile(t, filepath.Join(dir, "keys"), "# none yet\n")
	text := "weir: 1\nauth: {api_keys: {header: x-api-key, file: keys}}\ngateway: {plans: {basic: %d/s}}\n"
	file := writeFile(t, filepath.Join(dir, "weir.yaml"), fmt.Sprintf(text, 10))
	src := &sources{path: file}
	src.opening = func(name string) {
		if name == keys { // the policy itself is read by now
			writeFile(t, file, fmt.Sprintf(text, 100))
		}
	}
	if _, err := src.load(); !errors.Is(err, errChanging) {
		t.Errorf("written while it was read: %v", err)
	}
	src.opening = nil
	if p, err := src.load(); err != nil || p.Rules()[0].Limit.Max() != 100 {
		t.Errorf("at rest: %v", err)
	}
}
