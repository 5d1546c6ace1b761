// Package dynalite starts a real DynamoDB-compatible server for tests, and
// breaks the connection to it on purpose.
//
// [Start] runs dynalite (an npm package, pinned in package-lock.json) through
// server.js, which adds what weir needs and dynalite lacks: the old item in a
// failed condition, and time to live. [Transport] is an http.RoundTripper that
// loses requests and replies, sends twice, holds, throttles and fails: no
// emulator does that.
//
// What this server does not show, so that no test may be believed about it:
// throttling, capacity of one partition, deletion by time to live, stale reads,
// retries inside AWS's request router, and signatures (any credentials pass).
//
// Only tests import this package.
package dynalite

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/weirlabs/weir/internal/npm"
)

// Options of [Start]. The zero value is a server with all features, in memory.
type Options struct {
	// Plain leaves out ReturnValuesOnConditionCheckFailure, as old servers do:
	// a failed condition then comes without the old item.
	Plain bool

	// Dir is a folder in which the tables are kept on disk, so that a second
	// server started on it after Close finds them. Empty: in memory.
	Dir string
}

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	// URL is the endpoint, for example "http://127.0.0.1:40123". Any region and
	// any credentials are accepted.
	URL string

	cmd  *exec.Cmd
	stop func() error
	once sync.Once
}

// Start starts a server on a free port of the loopback address and waits until
// it answers. The server ends with the test, and also when the test's process
// dies. Without Node, or when the npm packages can't be installed, the test
// fails with the command that helps; it is never skipped.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Launch(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Launch is Start for a TestMain that gives one server to many tests. The caller
// closes it.
func Launch(o Options) (*Server, error) {
	s, err := start(o)
	if err != nil {
		return nil, fmt.Errorf("dynalite: %w", err)
	}
	return s, nil
}

// Close ends the server's process and waits for it. A second call does nothing.
func (s *Server) Close() {
	s.once.Do(func() {
		s.cmd.Process.Kill()
		s.stop()
		s.cmd.Wait()
	})
}

func start(o Options) (*Server, error) {
	node, err := npm.Node()
	if err != nil {
		return nil, err
	}
	dir, err := sourceDir()
	if err != nil {
		return nil, err
	}
	if err := npm.Install(dir); err != nil {
		return nil, err
	}
	args := []string{filepath.Join(dir, "server.js")}
	if o.Plain {
		args = append(args, "--plain")
	}
	if o.Dir != "" {
		args = append(args, "--path", o.Dir)
	}
	cmd := exec.Command(node, args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	stdin, err := cmd.StdinPipe() // server.js ends when this closes
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, fmt.Errorf("server.js did not start: it printed %q and %q; try: node %s", line, complaint.String(), args[0])
	}
	return &Server{URL: "http://127.0.0.1:" + port, cmd: cmd, stop: stdin.Close}, nil
}

// sourceDir is the folder of server.js: that of this very file.
func sourceDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the folder of server.js is unknown in a test built with -trimpath; build without it")
	}
	return filepath.Dir(file), nil
}
