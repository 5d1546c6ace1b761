// Command testreport runs a go test command that prints JSON, shows what
// failed while it runs, and judges the run more strictly than go test does:
//
//	go run ./internal/testreport go test -json -race ./...
//
// It starts the command itself, so no pipe can swallow an exit code. The run
// fails when a test failed, when the command exited other than with 0, when any
// test was skipped (a skipped test guards nothing, and nobody looks), when a
// package with test files ran no test, and when no test ran at all. The last line is
//
//	N passed, N failed, N skipped
//
// counting every test, subtest, example and fuzz seed by itself, and every
// package that failed outside its tests, for example to build, as one failure.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "testreport: no command: run it as\n  go run ./internal/testreport go test -json ./...")
		os.Exit(2)
	}
	os.Exit(run(os.Stdout, os.Stderr, os.Args[1], os.Args[2:]...))
}

// run starts a command, reports on what it prints and returns the exit code.
func run(stdout, stderr io.Writer, name string, args ...string) int {
	began := time.Now()
	cmd := exec.Command(name, args...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(stderr, "testreport: %s did not start: %v\n", name, err)
		return 2
	}
	r := newReport(stdout)
	readErr := r.read(out)
	if readErr != nil {
		fmt.Fprintf(stderr, "testreport: the output of %s could not be read: %v\n", name, readErr)
		_, _ = io.Copy(io.Discard, out) // let the command end; the run has failed already
	}
	exitErr := cmd.Wait()
	if !r.finish(time.Since(began), exitErr) || readErr != nil {
		return 1
	}
	return 0
}
