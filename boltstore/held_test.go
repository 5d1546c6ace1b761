package boltstore_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/boltstore"
)

// hold opens a file and keeps it until it is killed.
func hold(path string) error {
	s, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent ends
	return err
}

// refused opens a file that is in use, which must fail at once.
func refused(t *testing.T, path string, pid int) {
	t.Helper()
	began := time.Now()
	for what, try := range map[string]func() error{
		"Open": func() error {
			s, err := boltstore.Open(path, boltstore.Options{})
			if err == nil {
				s.Close()
			}
			return err
		},
		"Check":   func() error { _, err := boltstore.Check(path); return err },
		"Compact": func() error { _, _, err := boltstore.Compact(path); return err },
	} {
		err := try()
		var h *boltstore.HeldError
		if !errors.As(err, &h) || h.PID != pid || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
			t.Errorf("%s: %v; want a HeldError of process %d", what, err, pid)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the refusals took %v", took)
	}
}

func TestFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	// A process id of long ago, and one that is none, say nothing.
	for _, stale := range []string{"2147483646\n", "weir\n", ""} {
		if err := os.WriteFile(path+".lock", []byte(stale), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd, lines := startChild(t, "hold", path)
		if !lines.Scan() {
			t.Fatal("the child does not hold the file")
		}
		refused(t, path, cmd.Process.Pid)
		kill(t, cmd, lines, func(line string) { t.Errorf("the child said %q", line) })
		if _, err := os.Stat(path + ".lock"); err != nil {
			t.Fatalf("a killed process can't have removed its id: %v", err)
		}
		s := open(t, path, boltstore.Options{})
		refused(t, path, os.Getpid())
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path + ".lock"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Close the process id is still there: %v", err)
		}
	}
}
