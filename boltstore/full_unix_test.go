//go:build unix

package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

// full fills a file up to a bound of its size, which is what a full disk looks
// like from inside, and raises the bound again.
func full(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	free := limit.Cur
	limit.Cur = 256 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	s, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	daily, err := weir.ParseLimit(dailyText)
	if err != nil {
		return err
	}
	ctx := context.Background()
	limiter := limiterOn(s)
	op := func(n int) weir.Op { return weir.Op{Limit: daily, Key: weir.NewKey("filler", fmt.Sprint(n))} }
	taken := 0
	for ; err == nil; taken++ {
		if taken%500 == 499 {
			_ = s.Flush(ctx) // the take says whether it failed
		}
		_, err = limiter.Take(ctx, op(taken))
	}
	taken--
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), syscall.EFBIG.Error()) || errors.Is(err, weir.ErrOutcomeUnknown) {
		return fmt.Errorf("after %d takes: %w", taken, err)
	}
	if _, err := limiter.Take(ctx, op(0)); err == nil {
		return errors.New("a take of an item that is there passed while the file can't be written")
	}
	if err := s.Put(ctx, "record", []byte("value"), "", time.Time{}); err == nil {
		return errors.New("a record passed while the file can't be written")
	}
	if ds, err := limiter.Peek(ctx, op(0)); err != nil || ds[0].Used != 1 {
		return fmt.Errorf("a look while the file can't be written: %v, %w", ds, err)
	}
	limit.Cur = free
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for { // the store tries by itself
		if err := s.Flush(ctx); err == nil {
			break
		}
	}
	if d, err := limiter.Take(ctx, op(0)); err != nil || d.Used != 2 {
		return fmt.Errorf("after there is room again: %+v, %w", d, err)
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println(taken)
	return nil
}

func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	cmd, lines := startChild(t, "full", path)
	var taken int
	if !lines.Scan() {
		t.Fatal("the child has failed")
	}
	if _, err := fmt.Sscan(lines.Text(), &taken); err != nil || taken < 1000 {
		t.Fatalf("%q, %v", lines.Text(), err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	rep, err := boltstore.Check(path)
	if err != nil || len(rep.Damage) > 0 || rep.Items != taken {
		t.Errorf("%+v, %v; want %d items", rep, err, taken)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	_ = os.Remove(path)
}
