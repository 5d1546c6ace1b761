package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weirlabs/weir/policy"
)

// sources reads a policy, again and again, and knows the files that it is read
// from: the policy itself and those that it names.
type sources struct {
	path    string // of the policy
	options policy.Options
	opening func(name string) // hears of each file before it is opened; nil for nobody

	mu    sync.Mutex
	known []string // of the last reading; while that fails, of earlier ones too
}

// errChanging: a file was written while it was read.
var errChanging = errors.New("the files of the policy change while they are read")

// load reads the policy. What was read while somebody wrote is not believed.
func (s *sources) load() (*policy.Policy, error) {
	before := statesOf(s.files())
	r := &recording{folder: folder(filepath.Dir(s.path)), opening: s.opening}
	p, err := loadPolicyFrom(r, s.path, s.options)
	s.mu.Lock()
	if err == nil {
		s.known = nil
	}
	for _, name := range r.names {
		if !slices.Contains(s.known, name) {
			s.known = append(s.known, name)
		}
	}
	s.mu.Unlock()
	// Files that are met for the first time have no state before; their own time
	// of change is compared by whoever looks next.
	if !slices.EqualFunc(before, statesOf(namesOf(before)), fileState.same) {
		return nil, errChanging
	}
	return p, err
}

// files are those to watch.
func (s *sources) files() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		return []string{s.path}
	}
	return slices.Clone(s.known)
}

// recording is a folder that remembers what was opened.
type recording struct {
	folder  folder
	opening func(name string)
	names   []string
}

func (r *recording) Open(name string) (fs.File, error) {
	full := name
	if !filepath.IsAbs(full) {
		full = filepath.Join(string(r.folder), filepath.FromSlash(name))
	}
	r.names = append(r.names, full)
	if r.opening != nil {
		r.opening(full)
	}
	return r.folder.Open(name)
}

// fileState tells one content of a file from another, as far as that shows without
// reading it. A link that points elsewhere is another file, whatever it holds.
type fileState struct {
	name     string
	resolved string
	info     fs.FileInfo // nil: there is none
}

func statesOf(names []string) []fileState {
	states := make([]fileState, len(names))
	for i, name := range names {
		s := fileState{name: name}
		if real, err := filepath.EvalSymlinks(name); err == nil {
			if info, err := os.Stat(real); err == nil {
				s.resolved, s.info = real, info
			}
		}
		states[i] = s
	}
	return states
}

func namesOf(states []fileState) []string {
	names := make([]string, len(states))
	for i := range states {
		names[i] = states[i].name
	}
	return names
}

func (s fileState) same(o fileState) bool {
	switch {
	case s.name != o.name || s.resolved != o.resolved || (s.info == nil) != (o.info == nil):
		return false
	case s.info == nil:
		return true
	}
	return os.SameFile(s.info, o.info) && s.info.Size() == o.info.Size() && s.info.ModTime().Equal(o.info.ModTime())
}
