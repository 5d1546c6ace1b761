// Package redistest starts real Redis servers for tests: one, a cluster of
// three, or a primary with its replica and a Sentinel.
//
// A server runs on a free port, keeps what it writes in a folder of the test,
// never on the usual port 6379, and ends with the test, by its process id. What
// is missing on the machine fails the test with the command that helps; nothing
// is skipped.
//
// Only tests import this package.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to be ready, on a slow machine too.
const patience = time.Minute

// Options of [Start]. The zero value is a server without password, TLS or
// persistence.
type Options struct {
	// TLS makes the server speak TLS only, with a certificate for 127.0.0.1 of
	// an authority of its own: see Server.CA.
	TLS bool

	// Config are further lines of redis.conf, for example "maxmemory 2mb".
	Config []string
}

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	// Addr is where it listens, for example "127.0.0.1:21345".
	Addr string
	// CA is the file of the authority that signed its certificate, with TLS.
	CA string

	mu      sync.Mutex
	command []string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// Start starts a server and waits until it takes connections.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	dir := tb.TempDir()
	s := &Server{}
	config := append([]string{"save \"\"", "appendonly no"}, o.Config...)
	launch(tb, s, func(port int) []string {
		lines := append([]string{"bind 127.0.0.1", "dir " + dir}, config...)
		if o.TLS {
			s.CA = certificates(tb, dir)
			lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", port), "tls-auth-clients no",
				"tls-cert-file "+filepath.Join(dir, "server.pem"), "tls-key-file "+filepath.Join(dir, "server.key"), "tls-ca-cert-file "+s.CA)
		} else {
			lines = append(lines, fmt.Sprintf("port %d", port))
		}
		return []string{program(tb, "redis-server"), write(tb, dir, "redis.conf", lines)}
	})
	return s
}

// Kill ends the server at once, as a crash does, and waits for it.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// Pause makes the server hang until Resume: connections stay open and nothing
// is answered.
func (s *Server) Pause(tb testing.TB) { s.signal(tb, syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume(tb testing.TB) { s.signal(tb, syscall.SIGCONT) }

func (s *Server) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		tb.Fatal("redistest: the server has ended")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

// Restart starts a server again that was killed, on the same port. Without
// persistence it is empty.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.run(); err != nil {
		tb.Fatalf("redistest: restart: %v", err)
	}
}

// Do runs one command on the server with redis-cli, a client other than the one
// under test, and returns what it prints.
func (s *Server) Do(tb testing.TB, args ...string) string {
	tb.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	all := []string{"-h", host, "-p", port}
	if s.CA != "" {
		all = append(all, "--tls", "--cacert", s.CA)
	}
	return cli(tb, append(all, args...)...)
}

func cli(tb testing.TB, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program(tb, "redis-cli"), args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("redistest: redis-cli %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Await polls until a condition holds, for at most a minute.
func Await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-over:
			tb.Fatalf("redistest: after %v still waiting for: %s", patience, what)
		}
	}
}

// launch runs a server on a free port. A port can be taken between the look and
// the start, so it tries more than one.
func launch(tb testing.TB, s *Server, command func(port int) []string) {
	tb.Helper()
	var err error
	for range 5 {
		port := freePort(tb)
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s.command = command(port)
		if err = s.run(); err == nil {
			tb.Cleanup(s.Kill)
			return
		}
	}
	tb.Fatalf("redistest: start: %v", err)
}

func (s *Server) run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.SysProcAttr = endWithTest()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	ready := make(chan error, 1)
	go func() {
		defer close(ended)
		log, lines := bufio.NewReader(out), ""
		for {
			line, err := log.ReadString('\n')
			lines += line
			if strings.Contains(line, "Ready to accept connections") || strings.Contains(line, "+monitor master") {
				ready <- nil
				break
			}
			if err != nil {
				ready <- fmt.Errorf("%s ended before it was ready: %s", s.command[0], lines)
				break
			}
		}
		io.Copy(io.Discard, log)
		cmd.Wait()
	}()
	select {
	case err = <-ready:
	case <-time.After(patience):
		err = fmt.Errorf("%s is not ready after %v", s.command[0], patience)
	}
	if err != nil {
		cmd.Process.Kill()
		<-ended
		return err
	}
	s.cmd, s.ended = cmd, ended
	return nil
}

// freePort looks for a port that nobody listens on, nor on the one 10,000
// higher, which a cluster's node uses too. It stays below the ports that the
// system gives to outgoing connections.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := 10000 + rand.IntN(12000)
		if free(port) && free(port+10000) {
			return port
		}
	}
	tb.Fatal("redistest: no free port between 10000 and 22000")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		debian := map[string]string{"redis-cli": "redis-tools"}[name]
		if debian == "" {
			debian = name
		}
		tb.Fatalf("redistest: %s is needed and not installed; on Debian: apt-get install %s", name, debian)
	}
	return path
}

func write(tb testing.TB, dir, name string, lines []string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return path
}
