package account

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// Options of a [Book]. Records is required.
type Options struct {
	Records weir.Records

	// Deadline bounds one question to the store. The default is 100 ms; until the
	// first answer it is a second at least, for connections and credentials.
	Deadline time.Duration

	// MaxKeep is the longest time for which the store keeps an item; 0 is for ever.
	// A limit of a caller's own that needs more is passed over.
	MaxKeep time.Duration

	// Most is how many callers are remembered, at least. Default 32,768.
	Most int

	Logger *slog.Logger // of records that cannot be followed; default: slog.Default()
	Now    func() int64 // Unix nanoseconds; default: the machine's clock
}

// Book is what a process knows of callers. It is safe for concurrent use and
// runs no goroutine of its own.
//
// What it answers is never older than it is asked to be, save while the store
// does not answer: then it goes on with what it knew last, and says so. What it
// never knew is an error.
type Book struct {
	o      Options
	count  counter // nil for a store that others write to as well
	index  entry
	shards [shards]shard

	asked atomic.Bool // the store has answered once
	store breaker
	told  atomic.Int64 // Unix ns of the last line about a record
}

// counter is a store of this process that knows how often any record has changed.
type counter interface{ RecordChanges() uint64 }

const shards = 16

// shard remembers callers in two generations: when the young one is full it
// becomes the old one, and what was in that is forgotten.
type shard struct {
	mu         sync.Mutex
	young, old map[weir.Key]*entry
}

// entry is what is known of one record.
type entry struct {
	turn     chan struct{} // holds one while somebody asks the store
	known    atomic.Pointer[known]
	resolved atomic.Pointer[resolved]
	bad      atomic.Pointer[bad] // when the record was last found to be none that can be read
}

// bad is a record that cannot be read. It is asked for once a pause, and nobody
// else's is the worse for it.
type bad struct {
	err error
	at  int64 // Unix ns
}

type known struct {
	record  *Record // of a caller
	index   *Index  // of the index
	version string
	at      int64  // Unix ns when it was asked for
	changes uint64 // of records before that, as the counter has it
}

// resolved is what a record and the wildcards say together at an instant.
type resolved struct {
	record *Record
	index  *Index
	from   int64
	until  int64 // Unix ns at which something of it ends
	caller Caller
}

// Caller is what is known of one caller.
type Caller struct {
	Account *policy.Account // nil when nothing is said of it
	Banned  bool
	Stale   error // why what is known is older than it may be; nil when it is not
}

// NewBook returns a Book that knows nothing yet. It asks no store.
func NewBook(o Options) *Book {
	if o.Deadline <= 0 {
		o.Deadline = 100 * time.Millisecond
	}
	if o.Most <= 0 {
		o.Most = 32 << 10
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	b := &Book{o: o, index: entry{turn: make(chan struct{}, 1)}}
	b.count, _ = o.Records.(counter)
	return b
}

// Look says what is known of a caller, at most maxAge old. It asks the store
// only for what is older, and for a single caller's record only when the policy
// needs it or anything was ever said of callers of this kind. An error means
// that nothing is known.
func (b *Book) Look(ctx context.Context, c policy.Caller, maxAge time.Duration) (Caller, error) {
	x, stale, err := b.get(ctx, &b.index, indexKey, maxAge)
	if err != nil {
		return Caller{}, err
	}
	index := x.index
	read := c.Needed || index.Kinds[c.Kind].Records
	if !read && len(index.lengths[c.Kind]) == 0 {
		return Caller{Stale: stale}, nil
	}
	e := b.entry(c.Key)
	record := new(Record)
	if read {
		r, late, err := b.get(ctx, e, recordKey(c.Key), maxAge)
		if err != nil {
			return Caller{}, err
		}
		record = r.record
		if late != nil {
			stale = late
		}
	}
	out := b.resolve(e, c, record, index)
	out.Stale = stale
	return out, nil
}

// Silent reports, without asking the store, that what is known is fresh, and that
// nothing was ever said of anybody. Only records that the policy needs are worth
// a look then. Every request asks this: a look at the clock would be a tenth of it.
func (b *Book) Silent(maxAge time.Duration) bool {
	k := b.index.known.Load()
	if k == nil || !k.index.silent {
		return false
	}
	if b.count != nil && b.count.RecordChanges() == k.changes {
		return true
	}
	age := b.o.Now() - k.at
	return age >= 0 && age < int64(maxAge)/2
}

// KeepFor is how long an item must be kept for limits that stand in for the
// policy's, of any of the callers that its key is made of. It asks no store.
func (b *Book) KeepFor(item weir.Key) (d time.Duration) {
	x := b.index.known.Load()
	if x == nil || len(x.index.Kinds) == 0 {
		return 0
	}
	for text, more := item.String(), true; more; {
		var part string
		part, text, more = strings.Cut(text, "|")
		kind, _, _ := strings.Cut(part, "#")
		d = max(d, time.Duration(x.index.Kinds[kind].KeepSeconds)*time.Second)
	}
	return d
}

// entry is the place of a caller.
func (b *Book) entry(key weir.Key) *entry {
	s := &b.shards[key.Hash()%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.young[key]; e != nil {
		return e
	}
	e := s.old[key]
	if e == nil {
		e = &entry{turn: make(chan struct{}, 1)}
	}
	if len(s.young) >= max(b.o.Most/shards, 1) {
		s.old, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[weir.Key]*entry{}
	}
	s.young[key] = e
	return e
}

// get returns what is known of a record, and asks the store when that is old.
// The first caller who finds it half as old as it may be asks, while others go
// on with it; when it is too old, all wait for the same answer. stale is why it
// is older than that nevertheless.
func (b *Book) get(ctx context.Context, e *entry, key string, maxAge time.Duration) (k *known, stale, err error) {
	k = e.known.Load()
	if k != nil {
		age := b.o.Now() - k.at
		if age >= 0 && age < int64(maxAge)/2 {
			return k, nil, nil
		}
		if age >= 0 && age < int64(maxAge) {
			select {
			case e.turn <- struct{}{}:
			default:
				return k, nil, nil // somebody asks already
			}
			defer func() { <-e.turn }()
			if again := e.known.Load(); again != k {
				return again, nil, nil
			}
			if next, err := b.ask(ctx, e, key, k); err == nil {
				return next, nil, nil
			}
			return k, nil, nil // it is not too old yet
		}
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-e.turn }()
	if again := e.known.Load(); again != nil && again != k {
		return again, nil, nil
	}
	next, err := b.ask(ctx, e, key, k)
	switch {
	case err == nil:
		return next, nil, nil
	case k != nil:
		return k, err, nil
	}
	return nil, nil, err
}

// ask reads a record from the store. Who calls has the entry's turn.
func (b *Book) ask(ctx context.Context, e *entry, key string, old *known) (*known, error) {
	now := b.o.Now()
	if w := e.bad.Load(); w != nil && now >= w.at && now-w.at < int64(pause) {
		return nil, w.err
	}
	if err := b.store.refuses(now); err != nil {
		return nil, err
	}
	changes := b.changes()
	value, version, err := b.read(ctx, key)
	var none *UnreadableError
	if errors.As(err, &none) {
		e.bad.Store(&bad{err, now})
	}
	if err != nil {
		return nil, err
	}
	next := &known{version: version, at: now, changes: changes}
	switch {
	case old != nil && version != "" && old.version == version:
		next.record, next.index = old.record, old.index
	case e == &b.index:
		next.index, err = decodeIndex(value)
	default:
		next.record = new(Record)
		err = decode(value, next.record, &next.record.Schema, key)
	}
	if err != nil {
		e.bad.Store(&bad{err, now})
		return nil, err
	}
	e.bad.Store(nil)
	e.known.Store(next)
	return next, nil
}

func (b *Book) changes() uint64 {
	if b.count == nil {
		return 0
	}
	return b.count.RecordChanges()
}

// read gets a record within the deadline.
func (b *Book) read(ctx context.Context, key string) (value []byte, version string, err error) {
	within, cancel := b.within(ctx)
	defer cancel()
	value, version, err = get(within, b.o.Records, key, key)
	var none *UnreadableError
	switch {
	case err == nil, errors.As(err, &none): // the store has answered
		b.asked.Store(true)
		b.store.well()
	case ctx.Err() == nil:
		shared := nameless{strings.ReplaceAll(err.Error(), strings.TrimPrefix(key, recordPrefix), "a caller"), err}
		b.store.failed(shared, b.o.Now()) // others hear of it
	}
	return value, version, err
}

// nameless is an error of one caller's record without the caller's key.
type nameless struct {
	text string
	err  error
}

func (n nameless) Error() string { return n.text }
func (n nameless) Unwrap() error { return n.err }

func (b *Book) within(ctx context.Context) (context.Context, context.CancelFunc) {
	d := b.o.Deadline
	if !b.asked.Load() {
		d = max(d, time.Second)
	}
	return context.WithTimeout(ctx, d)
}

// pinTrips bounds how often a pin is tried against other writers.
const pinTrips = 8

// Pin lets an account keep a version of a plan, unless it keeps one already, and
// says what is known of the account then. Of any number of processes that pin at
// once one succeeds, and the others keep what that one pinned.
func (b *Book) Pin(ctx context.Context, c policy.Caller, pin policy.Pin) (Caller, error) {
	e := b.entry(c.Key)
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return Caller{}, ctx.Err()
	}
	defer func() { <-e.turn }()
	x := b.index.known.Load()
	if x == nil {
		return Caller{}, errors.New("Pin without Look")
	}
	k := e.known.Load()
	for range pinTrips {
		if k == nil {
			var err error
			if k, err = b.ask(ctx, e, recordKey(c.Key), nil); err != nil {
				return Caller{}, err
			}
		}
		if k.record.Pins[pin.Plan] != 0 {
			return b.resolve(e, c, k.record, x.index), nil
		}
		next := k.record.clone()
		if next.Pins == nil {
			next.Pins = map[string]int{}
		}
		next.Pins[pin.Plan] = pin.Version
		err := b.put(ctx, recordKey(c.Key), next, k.version)
		switch {
		case err == nil:
			// Its version is not known, so that the next reader takes it anew.
			e.known.Store(&known{record: next, at: k.at})
			return b.resolve(e, c, next, x.index), nil
		case !errors.Is(err, weir.ErrConflict):
			return Caller{}, err
		}
		k = nil
	}
	return Caller{}, weir.ErrBusy
}

func (b *Book) put(ctx context.Context, key string, r *Record, ifVersion string) error {
	if err := b.store.rests(b.o.Now()); err != nil {
		return err
	}
	value, err := encode(r, maxRecord)
	if err != nil {
		return err
	}
	// A store in a file answers when the disk has it. This happens once in an
	// account's life, and no other account waits for it.
	within, cancel := context.WithTimeout(ctx, max(b.o.Deadline, writeDeadline))
	defer cancel()
	return b.o.Records.Put(within, key, value, ifVersion, time.Time{})
}

// writeDeadline is how long the first sight of an account may last.
const writeDeadline = 2 * time.Second
