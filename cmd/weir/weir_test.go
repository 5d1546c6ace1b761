package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlabs/weir/cmd/weir/internal/shop"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/redistest"
)

// TestMain registers the real main as the command weir, for scripts and for
// tests that need a process of its own.
func TestMain(m *testing.M) {
	// The race detector would let every weir that a test starts sleep for a
	// second when it ends.
	proxyDeadline = 20 * time.Second // also in those processes
	os.Setenv(goRace, strings.TrimSpace("atexit_sleep_ms=1 "+os.Getenv(goRace)))
	testscript.Main(m, map[string]func(){"weir": main})
}

const goRace = "GORACE"

// TestScripts runs every script of testdata/script. $SHOP is a shop, $PROXY a
// weir in front of it with the limit 0.5/m burst 10 by address; $REDIS is the URL
// of a Redis that all scripts share, each with a prefix of its own. The command
// dynalite starts a DynamoDB-compatible server and sets $DYNAMO; exits CODE COMMAND
// runs a command that must end so; calls STORE N METHOD PATH [SUB] runs a proxy
// with the script's weir.yaml on a store, and makes calls through it; answers STORE
// STATUS METHOD PATH SUB [BODY] makes one, and compares; damage FILE
// wipes the pages of a bolt file; unpack TEXT FILE makes a file of what base64 and
// gzip have made text of.
func TestScripts(t *testing.T) {
	t.Setenv("TEST_SECRET", testSecret)
	redis := "redis://" + redistest.Start(t, redistest.Options{}).Addr
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			s := httptest.NewServer(shop.New())
			env.Defer(s.Close)
			url, stop, err := inProcess("proxy", "--to", s.URL, "--limit", "0.5/m burst 10", "--listen", "127.0.0.1:0", "-q")
			if err != nil {
				return err
			}
			env.Defer(stop)
			env.Setenv("SHOP", s.URL)
			env.Setenv(goRace, os.Getenv(goRace))
			env.Setenv("PROXY", url)
			env.Setenv("REDIS", redis)
			root, err := os.Getwd()
			env.Setenv("REPO", root+"/../..")
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dynalite": func(ts *testscript.TestScript, neg bool, args []string) {
				s, err := dynalite.Launch(dynalite.Options{})
				ts.Check(err)
				ts.Defer(s.Close)
				ts.Setenv("DYNAMO", s.URL)
			},
			"calls": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 4 {
					ts.Fatalf("usage: calls STORE N METHOD PATH [SUB]")
				}
				if file, is := strings.CutPrefix(args[0], "bolt:"); is {
					args[0] = "bolt:" + ts.MkAbs(file)
				}
				ts.Check(callsThroughProxy(ts.MkAbs("weir.yaml"), ts.Getenv("SHOP"), args))
			},
			"answers": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 5 {
					ts.Fatalf("usage: answers STORE STATUS METHOD PATH SUB [BODY]")
				}
				if file, is := strings.CutPrefix(args[0], "bolt:"); is {
					args[0] = "bolt:" + ts.MkAbs(file)
				}
				ts.Check(answerThroughProxy(ts.MkAbs("weir.yaml"), ts.Getenv("SHOP"), args))
			},
			"damage": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 2 || args[1] != "pages" && args[1] != "root" {
					ts.Fatalf("usage: damage FILE pages|root")
				}
				b, err := os.ReadFile(ts.MkAbs(args[0]))
				ts.Check(err)
				if args[1] == "root" {
					clear(b[:os.Getpagesize()]) // one of the two
				} else {
					clear(b[2*os.Getpagesize():]) // all but the two roots
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
			},
			"unpack": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 2 {
					ts.Fatalf("usage: unpack TEXT FILE")
				}
				r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(ts.ReadFile(args[0]))))
				ts.Check(err)
				b, err := io.ReadAll(r)
				ts.Check(err)
				ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE COMMAND...")
				}
				err := ts.Exec(args[1], args[2:]...)
				if got := fmt.Sprint(exitStatus(err)); got != args[0] {
					ts.Fatalf("exit %s, want %s", got, args[0])
				}
			},
		},
	})
}

// callsThroughProxy makes calls of one caller, or of the address, through a proxy
// that ends when they are answered.
func callsThroughProxy(policy, service string, args []string) error {
	store, path, who := args[0], args[3], ""
	n, err := strconv.Atoi(args[1])
	if err == nil && len(args) > 4 {
		who, err = signed(jwt.MapClaims{"sub": args[4]})
	}
	if err != nil {
		return err
	}
	url, stop, err := inProcess("proxy", "-q", "--to", service, "-c", policy, "--listen", "127.0.0.1:0", "--store", store)
	if err != nil {
		return err
	}
	defer stop()
	for range n {
		r, err := http.NewRequest(args[2], url+path, nil)
		if err != nil {
			return err
		}
		if who != "" {
			r.Header.Set("Authorization", who)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		if err := res.Body.Close(); err != nil {
			return err
		}
		if res.StatusCode == http.StatusServiceUnavailable {
			return errors.New("the store did not answer")
		}
	}
	return nil
}

// answerThroughProxy makes one call, and compares its answer.
func answerThroughProxy(policy, service string, args []string) error {
	who, err := signed(jwt.MapClaims{"sub": args[4]})
	if err != nil {
		return err
	}
	url, stop, err := inProcess("proxy", "-q", "--to", service, "-c", policy, "--listen", "127.0.0.1:0", "--store", args[0])
	if err != nil {
		return err
	}
	defer stop()
	r, err := http.NewRequest(args[2], url+args[3], nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", who)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if strconv.Itoa(res.StatusCode) != args[1] || len(args) > 5 && strings.TrimSpace(string(body)) != args[5] {
		return fmt.Errorf("%s %s of %s: %s %s", args[2], args[3], args[4], res.Status, body)
	}
	return nil
}

func exitStatus(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return 0
}

// inProcess runs a serving command in this process until stop, and gives the
// URL of its first line.
func inProcess(args ...string) (url string, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, args, io.Discard, in)
		in.Close()
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	go io.Copy(io.Discard, lines)
	stop = func() {
		cancel()
		<-done
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return strings.TrimPrefix(strings.TrimSpace(first), "weir: listening on "), stop, nil
}

// process is weir in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	first string
	url   string

	mu     sync.Mutex
	stderr strings.Builder
	lines  chan string
	ended  bool
}

// startWeir starts a command that serves, and waits for its first line.
func startWeir(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startWeirIn(t, t.TempDir(), env, args...) // where it may leave a file
}

func startWeirIn(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("weir", args...), lines: make(chan string, 10_000)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = dir
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
	})
	go func() {
		s := bufio.NewScanner(pipe)
		for s.Scan() {
			p.mu.Lock()
			p.stderr.WriteString(s.Text() + "\n")
			p.mu.Unlock()
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	p.first = p.line("")
	p.url = strings.TrimPrefix(p.first, "weir: listening on ")
	if p.url == p.first {
		t.Fatalf("the first line on stderr is %q", p.first)
	}
	return p
}

// line waits for a line of stderr that holds a text.
func (p *process) line(holds string) string {
	p.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case l, more := <-p.lines:
			if !more {
				p.t.Fatalf("stderr ended without %q:\n%s", holds, p.log())
			}
			if strings.Contains(l, holds) {
				return l
			}
		case <-timeout:
			p.t.Fatalf("no line with %q in 20 s:\n%s", holds, p.log())
		}
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// end sends a signal and waits for the exit code.
func (p *process) end(s syscall.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	for range p.lines { // until stderr closes
	}
	p.ended = true
	err := p.cmd.Wait()
	if e, is := err.(*exec.ExitError); is {
		return e.ExitCode()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return 0
}
