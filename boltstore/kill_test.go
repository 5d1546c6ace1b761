package boltstore_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

// With SyncAlways every take that was answered is in the file after kill -9, and
// none that nobody asked for; the file always opens.
func TestCase_B235_KilledAlwaysLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	var all answered
	for cycle := range 30 {
		cmd, lines := startChild(t, "take", "always", path)
		for range 1 + cycle*7%100 { // killed at ever other places
			if !lines.Scan() {
				t.Fatalf("cycle %d: the child ended by itself", cycle)
			}
			all.hear(lines.Text())
		}
		kill(t, cmd, lines, all.hear)
		if len(all.wrong) > 0 {
			t.Fatalf("cycle %d: the child said %q", cycle, all.wrong)
		}
		for n, has := range held(t, path) {
			said := all.units[n]
			if has < said || has > said+int64(cycle)+1 {
				t.Fatalf("cycle %d: the file holds %d units of taker %d, and %d were answered; at most one for each cycle was on its way", cycle, has, n, said)
			}
		}
	}
}

// With SyncInterval what is lost was taken in the last second.
func TestCase_B235_KilledIntervalLosesASecond(t *testing.T) {
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "weir.db")
			var a answered
			cmd, lines := startChild(t, "take", "interval", path)
			for lines.Scan() {
				a.hear(lines.Text())
				if len(a.times) > 0 && time.Since(a.times[0]) > 1700*time.Millisecond {
					break // since the first answer: a busy machine may start the child late
				}
			}
			killed := time.Now()
			kill(t, cmd, lines, a.hear)
			if len(a.wrong) > 0 {
				t.Fatalf("the child said %q", a.wrong)
			}
			said, last := int64(len(a.times)), int64(0)
			for _, at := range a.times {
				if at.After(killed.Add(-time.Second)) {
					last++
				}
			}
			if last == said {
				t.Fatalf("all %d takes were answered within the last second: that tests nothing", said)
			}
			var has int64
			for _, n := range held(t, path) {
				has += n
			}
			if has < said-last || has > said+takers {
				t.Errorf("%d takes were answered, %d of them in the last second, and the file holds %d", said, last, has)
			}
		})
	}
}

// A day's counter is what it was after the process has ended, whichever way.
func TestCase_B236_ADailyQuotaOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	op := weir.Op{Limit: parse(t, "quota 5/day calendar Europe/Berlin"), Key: weir.NewKey("account", "a")}
	for restart := range int64(5) {
		s := open(t, path, boltstore.Options{})
		d, err := limiterOn(s).Take(context.Background(), op)
		if err != nil || !d.Allowed || d.Used != restart+1 {
			t.Fatalf("after restart %d: %+v, %v", restart, d, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path, boltstore.Options{})
	defer s.Close()
	if d, err := limiterOn(s).Take(context.Background(), op); err != nil || d.Allowed {
		t.Fatalf("the sixth of five: %+v, %v", d, err)
	}
}
