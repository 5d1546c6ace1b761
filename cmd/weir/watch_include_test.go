package main

import (
	"path/filepath"
	"slices"
	"testing"
)

// An included file is watched as the policy itself, also one that is included only
// since the last reading.
func TestIncludedFilesAreWatched(t *testing.T) {
	dir := t.TempDir()
	file, part, more := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "part.yaml"), filepath.Join(dir, "more.yaml")
	_, ten := twoHalves(10)
	_, twenty := twoHalves(20)
	_, thirty := twoHalves(30)
	head, _ := twoHalves(0)
	writeFile(t, part, ten)
	writeFile(t, more, thirty)
	writeFile(t, file, head+"include: [part.yaml]\n")
	w := watching(t, file)
	writeFile(t, part, twenty+"\n")
	if w.rest(t); w.limit() != 20 {
		t.Errorf("a part of the policy changed, and the limit is %d", w.limit())
	}
	writeFile(t, file, head+"include: [more.yaml]\n# another\n")
	if w.rest(t); w.limit() != 30 {
		t.Errorf("another part is included, and the limit is %d", w.limit())
	}
	writeFile(t, more, ten+"\n\n")
	if w.rest(t); w.limit() != 10 {
		t.Errorf("the new part changed, and the limit is %d", w.limit())
	}
	for _, name := range w.server.engine.Policy().Files() {
		if !slices.Contains(w.server.o.files(), filepath.Join(dir, name)) {
			t.Errorf("%s is not watched: %v", name, w.server.o.files())
		}
	}
}
