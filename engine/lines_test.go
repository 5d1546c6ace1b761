package engine

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// R07: whatever a store does, a limit writes at most one line a minute that it
// fails and one that it answers again, the first of each at once, and the lines
// tell of every decision that was made without it.
func TestR07_AStoreThatFailsNowAndThenIsToldOnceAMinute(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		fails func(n int) error
	}{
		{"one key is busy, another is not", 20 * time.Millisecond, func(n int) error {
			if n%2 == 0 {
				return weir.ErrThrottled
			}
			return nil
		}},
		{"one call in ten fails", 700 * time.Millisecond, func(n int) error {
			if n%10 == 0 {
				return errors.New("no route to host")
			}
			return nil
		}},
		{"away for two of ten seconds", 250 * time.Millisecond, func(n int) error {
			if n%40 < 8 {
				return errors.New("no route to host")
			}
			return nil
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &remote{s: memstore.New(memstore.Options{})}
			r := newRig(t, strings.Replace(simple, "quota 2/h", "quota 1000000/h", 1), func(o *Options) { o.Store, o.Decisions = store, nil })
			began, degraded := time.Now(), 0
			for n := 0; time.Since(began) < 10*time.Minute; n++ {
				store.fails = c.fails(n)
				if r.ask("/", fmt.Sprint(n%2)).Degraded {
					degraded++
				}
				if lines := strings.Count(r.log.String(), "\n"); n == 0 && lines != 1 {
					t.Errorf("%s: %d lines of the first failure", c.name, lines)
				}
				<-time.After(c.every)
			}
			store.fails = nil
			<-time.After(time.Minute)
			r.ask("/", "0")
			log := r.log.String()
			failed, again := strings.Count(log, "could not be asked"), strings.Count(log, "answers again")
			if failed < 9 || failed > 11 || again < 9 || again > 11 {
				t.Errorf("%s: in ten minutes %d lines that it fails, %d that it answers", c.name, failed, again)
			}
			told := 0
			for _, said := range regexp.MustCompile(`"decisions_without_it":(\d+)`).FindAllStringSubmatch(log, -1) {
				n, err := strconv.Atoi(said[1])
				if err != nil {
					t.Fatal(err)
				}
				told += n
			}
			if told != degraded {
				t.Errorf("%s: %d decisions without the store, and %d are told of", c.name, degraded, told)
			}
		})
	}
}
