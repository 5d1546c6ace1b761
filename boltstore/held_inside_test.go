package boltstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What stands in the .lock of a held file names a process only if that can be it.
func TestHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	me := self()
	parent := me
	parent.pid = os.Getppid()
	parent.began = began(parent.pid)
	change := func(h holder, do func(*holder)) holder { do(&h); return h }
	for name, c := range map[string]struct {
		text      []byte
		pid       int
		elsewhere string
	}{
		"this process":    {me.text(), me.pid, ""},
		"another process": {parent.text(), parent.pid, ""},
		"a process with the id of an earlier one":   {change(me, func(h *holder) { h.began = "1" }).text(), 0, ""},
		"a process that has ended":                  {change(me, func(h *holder) { h.pid = 1<<31 - 2 }).text(), 0, ""},
		"the same id in another namespace":          {change(me, func(h *holder) { h.namespace = "pid:[1]" }).text(), 0, "of " + me.host},
		"the same id on another machine":            {change(me, func(h *holder) { h.host = "elsewhere" }).text(), 0, "of elsewhere"},
		"an id alone, as earlier versions wrote it": {[]byte("1\n"), 0, ""},
		"nothing":  {nil, 0, ""},
		"no words": {[]byte("weir\n\n\n\n"), 0, ""},
	} {
		if err := os.WriteFile(path+".lock", c.text, 0o644); err != nil {
			t.Fatal(err)
		}
		e := held(path)
		if e.PID != c.pid || (e.Elsewhere != "") != (c.elsewhere != "") || !strings.Contains(e.Elsewhere, c.elsewhere) {
			t.Errorf("%s: %+v; want process %d, elsewhere %q", name, e, c.pid, c.elsewhere)
		}
		if said := e.Error(); strings.Contains(said, "this process") != (name == "this process") || !strings.Contains(said, path) {
			t.Errorf("%s: %s", name, said)
		}
		removePID(path)
		if _, err := os.Stat(path + ".lock"); os.IsNotExist(err) != (name == "this process") {
			t.Errorf("%s: another's .lock is removed, or this process's stays: %v", name, err)
		}
	}
}
