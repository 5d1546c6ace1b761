package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// The whole kind: wherever a store's URL has a password, what is printed to be looked
// at has none, and loads again.
func TestEffectiveShowsNoPassword(t *testing.T) {
	dir := t.TempDir()
	for _, store := range []string{
		"redis://u:SE+CR%20ET@h:6379/", "redis://:SE+CR%20ET@h:6379", "rediss://u:SE+CR%20ET@h:6379/1?prefix=p", "redis+cluster://u:SE+CR%20ET@a:1?addr=b:2",
	} {
		for _, text := range []string{
			"weir: 1\nstore: \"" + store + "\"\n",
			"weir: 1\nstore: '" + store + "'\nname: a\n",
			"weir: 1\nname: a\nenvironments:\n  prod: {store: \"" + store + "\"}\n",
		} {
			file := writeFile(t, filepath.Join(dir, "weir.yaml"), text)
			args := []string{"check", "--effective", file}
			if strings.Contains(text, "prod") {
				args = append(args, "--environment", "prod")
			}
			var out, errs bytes.Buffer
			if code := run(t.Context(), args, &out, &errs); code != 0 || strings.Contains(out.String()+errs.String(), "SE+CR") || !strings.Contains(out.String(), "xxxxx@") || !strings.Contains(errs.String(), "WEIR_STORE") {
				t.Errorf("%s: exit %d\n%s%s", text, code, out.String(), errs.String())
			}
			if _, err := loadPolicy(writeFile(t, filepath.Join(dir, "again.yaml"), out.String())); err != nil {
				t.Errorf("%s: what is printed does not load: %v", text, err)
			}
		}
	}
	// Without a password nothing is left out.
	file := writeFile(t, filepath.Join(dir, "weir.yaml"), "weir: 1\nstore: \"redis://h:6379/\"\n")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check", "--effective", file}, &out, &errs); code != 0 || !strings.Contains(out.String(), "redis://h:6379/") || errs.Len() > 0 {
		t.Errorf("exit %d\n%s%s", code, out.String(), errs.String())
	}
}
