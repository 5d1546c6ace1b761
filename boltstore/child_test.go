package boltstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

// The test binary is its own child: with childVariable set it does what that
// says, on a file, and is killed or ends.
const childVariable = "WEIR_BOLTSTORE_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childVariable); what != "" {
		if err := child(strings.Fields(what)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is: hold FILE | take always|interval FILE | ghosts FILE | full FILE.
func child(args []string) error {
	switch args[0] {
	case "hold":
		return hold(args[1])
	case "take":
		return takeForEver(args[1], args[2])
	case "ghosts":
		return ghosts(args[1])
	case "full":
		return full(args[1])
	}
	return fmt.Errorf("no child does %q", args)
}

// startChild starts one; its lines come through the scanner.
func startChild(t *testing.T, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// It ends with this process: its input does.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // the test has failed
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, bufio.NewScanner(out)
}

// kill is kill -9. It hears what is still in the pipe, which was said before the
// kill, and waits until the process is gone.
func kill(t *testing.T, cmd *exec.Cmd, lines *bufio.Scanner, hear func(line string)) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		hear(lines.Text())
	}
	// Its status is that it was killed.
	_ = cmd.Wait()
}

const (
	takers    = 8
	dailyText = "quota 1000000000/day"
)

func takerKey(n int) weir.Key { return weir.NewKey("taker", strconv.Itoa(n)) }

// takeForEver takes one unit after the other and says so when it has one.
func takeForEver(mode, path string) error {
	o := boltstore.Options{}
	if mode == "always" {
		o.Sync = boltstore.SyncAlways
	}
	s, err := boltstore.Open(path, o)
	if err != nil {
		return err
	}
	daily, err := weir.ParseLimit(dailyText)
	if err != nil {
		return err
	}
	limiter := limiterOn(s)
	var wg sync.WaitGroup
	for n := range takers {
		op := weir.Op{Limit: daily, Key: takerKey(n)}
		said := fmt.Appendln(nil, n)
		wg.Go(func() {
			for {
				d, err := limiter.Take(context.Background(), op)
				if err != nil || !d.Allowed {
					fmt.Fprintln(os.Stderr, d, err)
					return
				}
				if _, err := os.Stdout.Write(said); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// answered is what a child has said: units by taker, and when each was read.
type answered struct {
	units [takers]int64
	times []time.Time
	wrong []string // lines that are none
}

func (a *answered) hear(line string) {
	n, err := strconv.Atoi(line)
	if err != nil || n < 0 || n >= takers {
		a.wrong = append(a.wrong, line)
		return
	}
	a.units[n]++
	a.times = append(a.times, time.Now())
}

// held is how many units the file counts for each taker.
func held(t *testing.T, path string) (units [takers]int64) {
	t.Helper()
	s := open(t, path, boltstore.Options{})
	defer s.Close()
	limiter := limiterOn(s)
	for n := range units {
		ds, err := limiter.Peek(context.Background(), weir.Op{Limit: parse(t, dailyText), Key: takerKey(n)})
		if err != nil {
			t.Fatal(err)
		}
		units[n] = ds[0].Used
	}
	return units
}

// limiterOn is a limiter that has as long as a busy machine may need.
func limiterOn(s weir.Store) *weir.Limiter {
	return weir.NewLimiter(s, weir.Options{Deadline: time.Minute})
}
