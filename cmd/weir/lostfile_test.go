package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file that is cut off under a proxy: each request is decided as its limit says
// for a store that fails, log and health page say so, and the process ends when
// it is told to.
func TestFileLostInUse(t *testing.T) {
	up := newRecorder(t, nil)
	dir := t.TempDir()
	store := filepath.Join(dir, "weir.db")
	policy := writeFile(t, filepath.Join(dir, "weir.yaml"), `weir: 1
application:
  limits:
    - {name: some, match: GET /some, by: ip, limit: quota 100/day, on_store_error: allow}
    - {name: none, match: GET /none, by: ip, limit: quota 100/day, on_store_error: deny}
`)
	p := startWeir(t, nil, "proxy", "--to", up.URL, "-c", policy, "--listen", "127.0.0.1:0", "--store", "bolt:"+store+"?sync=always")
	asks := func(path string, status int) (body string) {
		t.Helper()
		res, body := do(t, "GET", p.url+path)
		if res.StatusCode != status {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, status)
		}
		return body
	}
	asks("/some", 200)
	asks("/none", 200)
	if is := asks("/.weir/healthz", 200); is != "{\"ok\":true}\n" {
		t.Errorf("health: %s", is)
	}
	if err := os.Truncate(store, 0); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		asks("/some", 200)
		asks("/none", 503)
	}
	p.line("store could not be asked: request served without counting it")
	if is := asks("/.weir/healthz", 200); !strings.Contains(is, `"store":"failing"`) {
		t.Errorf("health: %s", is)
	}
	if code := p.end(syscall.SIGTERM); code != 3 {
		t.Errorf("SIGTERM: exit %d, want 3", code)
	}
	if said := p.log(); !strings.Contains(said, store+" was damaged while it was in use") {
		t.Errorf("it does not say why:\n%s", said)
	}
}
