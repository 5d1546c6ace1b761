package account

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// slow are records of which some never answer; all counts what is asked.
type slow struct {
	weir.Records
	never func(key string) bool
	all   atomic.Int64
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, string, error) {
	s.all.Add(1)
	if s.never(key) {
		<-ctx.Done()
		return nil, "", ctx.Err()
	}
	return s.Records.Get(ctx, key)
}

// A record that is slow, or cannot be read, is its own caller's trouble: others are
// asked for meanwhile, and answered.
func TestOneCallersRecordIsNoOthersTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := memstore.New(memstore.Options{})
		poison, late := weir.NewKey("account", "poison"), weir.NewKey("account", "late")
		if err := store.Put(ctx, recordKey(poison), []byte(`{"schema_version":2}`), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		s := &slow{Records: store, never: func(key string) bool { return key == recordKey(late) }}
		b := NewBook(Options{Records: s})
		look := func(key weir.Key) error {
			_, err := b.Look(ctx, policy.Caller{Key: key, Kind: "account", Needed: true}, time.Minute)
			return err
		}
		for i := range 100 {
			if err := look(weir.NewKey("account", fmt.Sprint(i))); err != nil {
				t.Fatalf("after %d: %v", i, err)
			}
			var unreadable *UnreadableError
			if err := look(poison); !errors.As(err, &unreadable) {
				t.Fatalf("%v", err)
			}
			if err := look(late); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
		}
		if asked := s.all.Load(); asked > 1+100+100+15 { // a bad one is read once a second, and all this took ten
			t.Errorf("%d records were asked for", asked)
		}
	})
}

// strange is records of which one is none: the store answers, and has something else.
type strange struct {
	weir.Records
	key   string
	asked int
}

func (s *strange) Get(ctx context.Context, key string) ([]byte, string, error) {
	if key == s.key {
		s.asked++
		return nil, "", fmt.Errorf("get %s: %w", key, weir.ErrNoRecord)
	}
	return s.Records.Get(ctx, key)
}

// What is no record at all is as one that cannot be read: no failure of the store.
func TestWhatIsNoRecordIsNoOthersTrouble(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	poison, now := weir.NewKey("account", "poison"), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	s := &strange{Records: store, key: recordKey(poison)}
	b := NewBook(Options{Records: s, Now: func() int64 { return now }})
	look := func(key weir.Key) error {
		_, err := b.Look(context.Background(), policy.Caller{Key: key, Kind: "account", Needed: true}, time.Minute)
		return err
	}
	var unreadable *UnreadableError
	const seconds = 3
	for i := range seconds {
		for j := range 3 * tolerated {
			if err := look(poison); !errors.As(err, &unreadable) || !errors.Is(err, weir.ErrNoRecord) {
				t.Fatalf("%v", err)
			}
			if err := look(weir.NewKey("account", fmt.Sprint(i, "-", j))); err != nil {
				t.Fatalf("another one: %v", err)
			}
		}
		now += int64(pause)
	}
	if s.asked != seconds {
		t.Errorf("it was asked for %d times in %d seconds", s.asked, seconds)
	}
	e := Editor{Records: s}
	if _, err := e.Read(context.Background(), poison); !errors.As(err, &unreadable) || unreadable.Of != "account#poison" {
		t.Errorf("read by a command: %v", err)
	}
	if _, err := e.Forget(context.Background(), poison); !errors.As(err, &unreadable) {
		t.Errorf("erased by a command: %v", err)
	}
}

// A store that answers nobody is left alone: after a few questions one in a second
// may try, and the first answer ends that.
func TestAStoreThatAnswersNobodyIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		s := &slow{Records: memstore.New(memstore.Options{}), never: func(key string) bool { return away && key != indexKey }}
		b := NewBook(Options{Records: s})
		look := func(id string) error {
			_, err := b.Look(context.Background(), policy.Caller{Key: weir.NewKey("account", id), Kind: "account", Needed: true}, time.Hour)
			return err
		}
		for i := range 50 {
			if look(fmt.Sprint(i)) == nil {
				t.Fatal("answered")
			}
		}
		if s.all.Load() != 1+tolerated {
			t.Errorf("%d questions, want the index and %d", s.all.Load(), tolerated)
		}
		<-time.After(pause)
		asked, done := s.all.Load(), make(chan error)
		for i := range 20 {
			go func() { done <- look(fmt.Sprint("at once ", i)) }()
		}
		for range 20 {
			if <-done == nil {
				t.Fatal("answered")
			}
		}
		if s.all.Load() != asked+1 {
			t.Errorf("%d questions of 20 callers at once, want 1", s.all.Load()-asked)
		}
		away = false
		<-time.After(2 * pause)
		for i := range 20 {
			if err := look(fmt.Sprint("again ", i)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
