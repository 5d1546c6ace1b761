package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// HeldError says that another Store has the file open, in this process or in
// another.
type HeldError struct {
	Path string
	PID  int // of the process that holds it; 0 when it is not known

	// Elsewhere says which process it is by what that wrote into the file's
	// .lock, when it runs on another machine or in another container: its id
	// means nothing here.
	Elsewhere string
}

func (e *HeldError) Error() string {
	switch {
	case e.Elsewhere != "":
		return fmt.Sprintf("boltstore: %s is held by a process of another machine or container; by %s it is %s: stop it there, or name another file", e.Path, pidFile(e.Path), e.Elsewhere)
	case e.PID == 0:
		return fmt.Sprintf("boltstore: %s is held by another process: wait for it to end, or name another file", e.Path)
	case e.PID == os.Getpid():
		return fmt.Sprintf("boltstore: %s is held by this process, %d, already: share one Store", e.Path, e.PID)
	}
	return fmt.Sprintf("boltstore: %s is held by process %d: stop it, or name another file", e.Path, e.PID)
}

// holder is what is known of a process that holds a file: its id, the namespace
// that this id is of and when it began, where the system tells, and its host.
//
// The lock is bbolt's own, on the file itself, and ends with the process. This
// stands in a file beside it, a word a line, and only ever explains a lock that
// is held: one left over from a crash says nothing.
type holder struct {
	pid                    int
	host, namespace, began string
}

// self is the holder that this process is.
func self() holder {
	h := holder{pid: os.Getpid()}
	h.host, _ = os.Hostname()
	h.namespace, _ = os.Readlink("/proc/self/ns/pid")
	h.began = began(h.pid)
	return h
}

// began tells a process from a later one with its id: the time at which it
// began, since the machine did. It is "" where there is no /proc.
func began(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name of the program, in brackets, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

func (h holder) text() []byte {
	return fmt.Appendf(nil, "%d\n%s\n%s\n%s\n", h.pid, h.host, h.namespace, h.began)
}

func readHolder(path string) (h holder, ok bool) {
	b, err := os.ReadFile(pidFile(path))
	if err != nil {
		return h, false
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 4 {
		return h, false
	}
	h.pid, err = strconv.Atoi(lines[0])
	h.host, h.namespace, h.began = lines[1], lines[2], lines[3]
	return h, err == nil && h.pid > 0
}

// pidFile is beside the file itself.
func pidFile(path string) string { return resolved(path) + ".lock" }

// resolved is the file that links lead to.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
}

// writePID notes that this process holds a file. What another user's process has
// left, and can't be written, is removed.
func writePID(path string) error {
	name := pidFile(path)
	err := os.WriteFile(name, self().text(), 0o644)
	if errors.Is(err, fs.ErrPermission) && os.Remove(name) == nil {
		err = os.WriteFile(name, self().text(), 0o644)
	}
	return err
}

// removePID takes that back, unless another process holds what is there by now.
func removePID(path string) {
	if h, ok := readHolder(path); ok && h == self() {
		_ = os.Remove(pidFile(path))
	}
}

// held says who holds a file. One that has just taken hold may not have written
// its id yet, and of that no system tells: so it is looked for once more, for a
// tenth of a second, before a caller is refused who is told nothing better.
func held(path string) *HeldError {
	e := &HeldError{Path: path}
	me := self()
	for range 20 {
		h, ok := readHolder(path)
		switch {
		case !ok:
		case h.host != me.host || h.namespace != me.namespace:
			e.Elsewhere = fmt.Sprintf("process %d of %s", h.pid, h.host)
		case alive(h.pid) && began(h.pid) == h.began:
			e.PID, e.Elsewhere = h.pid, ""
			return e
		}
		time.Sleep(5 * time.Millisecond)
	}
	return e
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, fs.ErrPermission)
}
