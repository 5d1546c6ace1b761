package boltstore_test

import (
	"context"
	"path/filepath"
	"testing"

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

// With SyncInterval, which writes twice a second, nothing is lost that was answered
// when a write began that has ended.
func TestCase_B235_KilledIntervalLosesASecond(t *testing.T) {
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "weir.db")
			var a answered
			cmd, lines := startChild(t, "take", "interval", path)
			for a.since() < 3 && lines.Scan() {
				a.hear(lines.Text())
			}
			kill(t, cmd, lines, a.hear)
			if len(a.wrong) > 0 {
				t.Fatalf("the child said %q", a.wrong)
			}
			if a.written() == 0 {
				t.Fatalf("nothing of %d takes must be in the file: that tests nothing", a.all)
			}
			var has int64
			for _, n := range held(t, path) {
				has += n
			}
			if has < a.written() || has > a.all+takers {
				t.Errorf("%d takes were answered, %d of them before a write that has ended, and the file holds %d", a.all, a.written(), has)
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
