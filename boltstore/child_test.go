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

// takeForEver takes one unit after the other and says so when it has one, and from
// time to time "commits N", how many there were.
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
			for took := 1; ; took++ {
				d, err := limiter.Take(context.Background(), op)
				if err != nil || !d.Allowed {
					fmt.Fprintln(os.Stderr, d, err)
					return
				}
				if _, err := os.Stdout.Write(said); err != nil {
					return
				}
				if n == 0 && took%100 == 0 {
					fmt.Println("commits", s.Stats().Commits)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// answered is what a child has said: units by taker, and how many there were each
// time that it said how often it had written the file.
type answered struct {
	units   [takers]int64
	all     int64
	commits []commits
	wrong   []string // lines that are none
}

type commits struct{ n, units int64 }

func (a *answered) hear(line string) {
	if text, ok := strings.CutPrefix(line, "commits "); ok {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			a.commits = append(a.commits, commits{n, a.all})
			return
		}
	}
	n, err := strconv.Atoi(line)
	if err != nil || n < 0 || n >= takers {
		a.wrong = append(a.wrong, line)
		return
	}
	a.units[n]++
	a.all++
}

// since is how often the file was written since the child first said so.
func (a *answered) since() int64 {
	if len(a.commits) == 0 {
		return 0
	}
	return a.commits[len(a.commits)-1].n - a.commits[0].n
}

// written is how many units must be in the file: those that had been answered when
// a write began that has ended. When the child said N, what it had said the time
// before was answered; the write after the next one begins later, and has ended
// once the child says N+2.
func (a *answered) written() (units int64) {
	for i := 1; i < len(a.commits); i++ {
		if a.commits[i].n+2 <= a.commits[len(a.commits)-1].n {
			units = a.commits[i-1].units
		}
	}
	return units
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
