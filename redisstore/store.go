package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
)

// Options of [New] and [Open]. The zero value is right for a start.
type Options struct {
	// Prefix is put before every key, so that several programs can share a
	// server. At most 512 bytes; default none. In a cluster, braces in it would
	// put all items on one node and are refused.
	Prefix string

	// MaxKeep is the longest time for which an item that is not written may be
	// relied on. 0, the default, is for ever. Limits with a longer horizon are
	// refused when they are used.
	MaxKeep time.Duration

	// Resend lets a write be sent again whose reply was lost with its
	// connection: items then hold the nonces of their last four writes, so that
	// it is not applied twice, unless four or more others were applied to the item
	// in between, as to a key that several processes write at once: then it may be
	// counted twice, and never goes uncounted. That costs a server a third of its
	// decisions. By default such a call is a failure of the store, whose outcome is unknown;
	// the failure mode of the limit decides it. When a connection to Redis
	// breaks, the server is mostly gone as well, and sending again would fail.
	Resend bool

	// OneByOne sends every call as a script of its own. Without it, calls that
	// wait at the same time share a script, which spares a server half of its
	// work. Needed only where something between shares keys out to several
	// servers by itself: to a proxy of that kind, several keys in one script are
	// wrong, and [Store.Check] finds that out. A cluster client needs no setting:
	// its calls always go one by one.
	OneByOne bool

	// Observer hears of every call. Default nobody.
	Observer *weir.Observer
}

// Store keeps items on one server, on the primary that a Sentinel names, or in a
// cluster. It implements [weir.Store] and [weir.Records] and is safe for
// concurrent use.
type Store struct {
	client    func(context.Context) (rueidis.Client, error)
	connected func() rueidis.Client // nil while there is no connection yet
	close     func() error
	where     string // for errors: the server, without its password
	prefix    string
	maxKeep   time.Duration
	resend    bool
	observer  *weir.Observer
	names     names
	put       lua
	remove    lua
	batches   batches
	calls     sync.Pool // of *call
}

var (
	_ weir.Store    = (*Store)(nil)
	_ weir.Records  = (*Store)(nil)
	_ weir.Gatherer = (*Store)(nil)
	_ weir.Deleter  = (*Store)(nil)
)

const maxPrefix = 512

// New makes a Store on a client of the caller's, who closes it. It sends
// nothing. Any client will do that writes to a primary: of a single server, of
// Sentinel or of a cluster; client-side caching is not used.
func New(client rueidis.Client, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("redisstore: no client; make one with rueidis.NewClient, or use Open")
	}
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	s.client = func(context.Context) (rueidis.Client, error) { return client, nil }
	s.connected = func() rueidis.Client { return client }
	s.close = func() error { return nil }
	s.where = "redis"
	return s, nil
}

func newStore(o Options) (*Store, error) {
	if len(o.Prefix) > maxPrefix {
		return nil, fmt.Errorf("redisstore: prefix of %d bytes; use at most %d", len(o.Prefix), maxPrefix)
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("redisstore: prefix %q: braces are a hash tag, which would put all items on one node of a cluster; use other characters", o.Prefix)
	}
	if o.MaxKeep < 0 {
		return nil, fmt.Errorf("redisstore: MaxKeep %v is negative; use 0 for no bound", o.MaxKeep)
	}
	return &Store{
		prefix:   o.Prefix,
		maxKeep:  o.MaxKeep,
		resend:   o.Resend,
		observer: o.Observer,
		put:      newLua(putScript),
		remove:   newLua(deleteScript),
		batches:  batches{oneByOne: o.OneByOne, late: impatience},
	}, nil
}

// Caps implements [weir.Store]: the clock is the server's, and replies may be
// lost if writes are to be sent again: see Options.Resend.
func (s *Store) Caps() weir.Caps {
	return weir.Caps{OwnClock: true, LossyReplies: s.resend, MaxKeep: s.maxKeep}
}

// Close implements [weir.Store]. It closes the client that [Open] made; a client
// given to [New] stays open.
func (s *Store) Close() error { return s.close() }

// Apply implements [weir.Store]. It is one round trip, whatever tries hold, and
// a second one only after a server has lost its scripts, by a restart or a
// failover: a script that is not there has not run. Calls that come while others
// are on their way to a single server go there together.
//
// A write with a nonce that is already on the item is reported as applied: it is the
// same write, whose reply was lost. When a connection breaks or the context
// ends after a write was sent, the error wraps [weir.ErrOutcomeUnknown].
func (s *Store) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (applied int, now int64, err error) {
	state.Reset()
	if !item.Valid() {
		return -1, 0, s.errorf("apply", "the key is empty or longer than %d bytes", weir.MaxKey)
	}
	c := s.call(ctx, item, tries)
	if err := ctx.Err(); err != nil {
		return -1, 0, s.failed(c, notSent{err})
	}
	client, err := s.client(ctx)
	if err != nil {
		return -1, 0, s.failed(c, notSent{err})
	}
	if !s.batches.together(client) {
		s.batches.send(ctx, client, &flight{batch: []*call{c}})
		return s.answered(c, state)
	}
	c.deadline, _ = ctx.Deadline()
	if !s.enter(client, waiter{call: c}) {
		return -1, 0, s.failed(c, notSent{errWaiting})
	}
	select {
	case <-c.done:
		return s.answered(c, state)
	case <-ctx.Done():
		return -1, 0, c.abandon(ctx.Err())
	}
}

// deleteScript deletes a key that no decision can read, and only such a key: between
// a read and this, somebody else may have mended it, and counted in it. It takes no
// right that deciding does not take: a time to live that is over removes any key.
const deleteScript = `local n=redis.pcall('HLEN',KEYS[1])
if type(n)=='number' then if 2*n<=tonumber(ARGV[1]) then return 0 end
elseif not string.find(n.err,'WRONGTYPE',1,true) then return n end
redis.call('PEXPIRE',KEYS[1],0)
return 1`

// Delete implements [weir.Deleter].
func (s *Store) Delete(ctx context.Context, item weir.Key) error {
	const what = "delete"
	if !item.Valid() {
		return s.errorf(what, "the key is empty or longer than %d bytes", weir.MaxKey)
	}
	client, err := s.client(ctx)
	if err != nil {
		return s.explain(what, notSent{err})
	}
	began := time.Now()
	deleted, err := s.remove.eval(ctx, client, []string{s.prefix + item.String()}, strconv.Itoa(maxTexts)).AsInt64()
	err = s.explainWrite(what, err)
	s.trip(ctx, weir.Trip{Took: time.Since(began), Applied: deleted == 1, Err: err})
	return err
}

// answered is the answer to a call of Apply's.
func (s *Store) answered(c *call, state *weir.Cells) (applied int, now int64, err error) {
	applied, now, err = c.Read(state)
	s.free(c)
	return applied, now, err
}

// Gather implements [weir.Gatherer]. It reports false where every call goes by
// itself, and while there is no connection yet.
func (s *Store) Gather(q weir.Question) bool {
	if s.batches.oneByOne {
		return false
	}
	client := s.connected()
	return client != nil && s.batches.together(client) && s.enter(client, waiter{question: q})
}

// answer is what the script has answered to a call. It fills state.
func (s *Store) answer(c *call, state *weir.Cells) (applied int, now int64, err error) {
	if c.err != nil {
		return -1, 0, s.failed(c, c.err)
	}
	r, err := s.names.decode(c.text, c.writes.fields, state)
	if err == nil && r.applied >= len(c.tries) {
		err = fmt.Errorf("the script says that write %d of %d was applied", r.applied, len(c.tries))
	}
	if err != nil {
		if err = s.errorf("apply", "%w", err); r.applied >= 0 {
			err = fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, err)
		}
		s.trip(c.ctx, weir.Trip{Took: time.Since(c.began), Err: err})
		return -1, 0, err
	}
	if r.applied >= 0 && !r.again {
		c.tries[r.applied].Apply(state, c.now)
	}
	if s.observer != nil {
		s.trip(c.ctx, weir.Trip{Took: time.Since(c.began), Applied: r.applied >= 0})
	}
	return r.applied, c.now, nil
}

// failed explains, and reports, why a call has no answer.
func (s *Store) failed(c *call, err error) error {
	err = s.explainWrite("apply", err)
	s.trip(c.ctx, weir.Trip{Took: time.Since(c.began), Err: err})
	return err
}

func (s *Store) trip(ctx context.Context, t weir.Trip) {
	if s.observer != nil && s.observer.Trip != nil {
		s.observer.Trip(ctx, t)
	}
}

// lua is a script with the name under which servers know it.
type lua struct{ source, sha string }

func newLua(source string) lua {
	sum := sha1.Sum([]byte(source)) // Redis's own naming, no secret
	return lua{source, hex.EncodeToString(sum[:])}
}

// eval runs a script. Neither this nor the client repeats what may have run.
func (l *lua) eval(ctx context.Context, client rueidis.Client, keys []string, args ...string) rueidis.RedisResult {
	return l.again(ctx, client, client.Do(ctx, l.named(client, keys, args...)), keys, args...)
}

// named asks for a script by its name.
func (l *lua) named(client rueidis.Client, keys []string, args ...string) rueidis.Completed {
	return client.B().Evalsha().Sha1(l.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// again runs a script that the server did not know by its name.
func (l *lua) again(ctx context.Context, client rueidis.Client, r rueidis.RedisResult, keys []string, args ...string) rueidis.RedisResult {
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		return client.Do(ctx, client.B().Eval().Script(l.source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	return r
}

// maxScripts bounds the forms for which a store keeps scripts. A server keeps
// what it was sent, some kilobytes each.
const maxScripts = 256

// scripts are those that a store has made for forms.
type scripts struct {
	mu    sync.Mutex
	known map[string]*lua
	order []string // the forms, from the oldest on
}

// of is the script for a form.
func (s *scripts) of(e *encoded) *lua {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.known[string(e.form)]; l != nil {
		return l
	}
	if len(s.order) == maxScripts {
		delete(s.known, s.order[0])
		s.order = slices.Delete(s.order, 0, 1)
	}
	if s.known == nil {
		s.known = map[string]*lua{}
	}
	l := newLua(readForm(e.form).script())
	s.known[string(e.form)] = &l
	s.order = append(s.order, string(e.form))
	return &l
}
