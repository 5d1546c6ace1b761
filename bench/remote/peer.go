// Package remote lists limiters that keep their counts in Redis, and the floors
// under them: scripts sent by the same client with everything prepared. It
// drives them from a fixed number of callers in a closed loop.
package remote

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/redisstore"
)

// The names that bars refer to.
const (
	Weir      = "weir, every call asks"
	Default   = "weir, as it comes"
	Store     = "weir's store alone"
	RedisRate = "redis_rate"
	Raw       = "floor: weir's script, prepared"
	Minimal   = "floor: one-integer script"
)

// Peer is one limiter, or one floor, for a number of callers.
type Peer struct {
	Name string
	New  func(ctx context.Context, addr string, callers int, limit inproc.Limit, keys []string) (*Instance, error)
}

// Instance is a peer at work.
type Instance struct {
	// Take decides one call on the key with this number.
	Take func(ctx context.Context, key int) (bool, error)
	// Fill takes of a key for the first time, so that it is there.
	Fill  func(ctx context.Context, key int) (bool, error)
	Close func()
}

// Start makes an instance in which every key is present.
func (p Peer) Start(ctx context.Context, addr string, callers int, limit inproc.Limit, keys []string) (*Instance, error) {
	i, err := p.New(ctx, addr, callers, limit, keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if i.Fill == nil {
		i.Fill = i.Take
	}
	if err := everyKey(ctx, len(keys), i.Fill); err != nil {
		i.Close()
		return nil, fmt.Errorf("%s: fill: %w", p.Name, err)
	}
	return i, nil
}

// Peers are all, weir first.
func Peers() []Peer {
	return []Peer{
		{Weir, func(ctx context.Context, addr string, _ int, limit inproc.Limit, keys []string) (*Instance, error) {
			return ours(addr, limit, keys, weir.Options{NoCoalescing: true})
		}},
		{Default, func(ctx context.Context, addr string, _ int, limit inproc.Limit, keys []string) (*Instance, error) {
			return ours(addr, limit, keys, weir.Options{})
		}},
		{Store, alone},
		{RedisRate, redisRate},
		{Raw, raw},
		{Minimal, minimal},
	}
}

func connect(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
}

func ours(addr string, l inproc.Limit, keys []string, o weir.Options) (*Instance, error) {
	client, err := connect(addr)
	if err != nil {
		return nil, err
	}
	i, err := oursOn(client, l, keys, o)
	if err != nil {
		client.Close()
	}
	return i, err
}

func oursOn(client rueidis.Client, l inproc.Limit, keys []string, o weir.Options) (*Instance, error) {
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	return oursIn(store, client.Close, l, keys, o)
}

func oursIn(store weir.Store, done func(), l inproc.Limit, keys []string, o weir.Options) (*Instance, error) {
	limit, err := inproc.WeirLimit(l)
	if err != nil {
		return nil, err
	}
	o.Deadline = 10 * time.Second // a busy machine is no failure of the store
	limiter := weir.NewLimiter(store, o)
	made := inproc.WeirKeys(keys)
	take := func(ctx context.Context, key int, cost int64) (bool, error) {
		d, err := limiter.Take(ctx, weir.Op{Limit: limit, Key: made[key], Cost: cost})
		return d.Allowed, err
	}
	i := &Instance{Close: done, Take: func(ctx context.Context, key int) (bool, error) { return take(ctx, key, 1) }}
	if l.Burst > 1 {
		// So much that the buckets are in use throughout, not full: see inproc.
		first := int64(l.Rate) * 1000
		i.Fill = func(ctx context.Context, key int) (bool, error) { return take(ctx, key, first) }
	}
	return i, nil
}

// tap keeps the last writes that a Limiter offered to a store.
type tap struct {
	weir.Store
	last atomic.Pointer[[]weir.Write]
}

func (t *tap) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	copied := slices.Clone(tries)
	for i := range copied {
		copied[i].If, copied[i].Do = slices.Clone(copied[i].If), slices.Clone(copied[i].Do)
	}
	t.last.Store(&copied)
	return t.Store.Apply(ctx, item, tries, state)
}

// alone has the store apply, for every key, the write that a Limiter offered it
// for one: what the store costs, without what plans its writes.
func alone(ctx context.Context, addr string, _ int, l inproc.Limit, keys []string) (*Instance, error) {
	client, err := connect(addr)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		client.Close()
		return nil, err
	}
	seen := &tap{Store: store}
	i, err := oursIn(seen, client.Close, l, keys, weir.Options{NoCoalescing: true})
	if err == nil {
		err = i.settle(ctx)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	tries, made := *seen.last.Load(), inproc.WeirKeys(keys)
	i.Take = func(ctx context.Context, key int) (bool, error) {
		var state weir.Cells
		applied, _, err := store.Apply(ctx, made[key], tries, &state)
		return applied >= 0, err
	}
	return i, nil
}

// settle asks for the first key until a call is like all that follow.
func (i *Instance) settle(ctx context.Context) error {
	fill := i.Fill
	if fill == nil {
		fill = i.Take
	}
	for range 3 { // the second call knows the item, the third knows it in use
		if _, err := fill(ctx, 0); err != nil {
			return err
		}
		if _, err := i.Take(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// recorder keeps the last command that went through it.
type recorder struct {
	rueidis.Client
	last atomic.Pointer[[]string]
}

func (r *recorder) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := slices.Clone(cmd.Commands())
	for i, word := range words {
		words[i] = strings.Clone(word) // the store uses its memory again
	}
	r.last.Store(&words)
	return r.Client.Do(ctx, cmd)
}

// raw sends what weir sends for one call, as it was recorded, for every key: the
// script and its arguments say nothing of the key or of the time.
func raw(ctx context.Context, addr string, _ int, l inproc.Limit, keys []string) (*Instance, error) {
	client, err := connect(addr)
	if err != nil {
		return nil, err
	}
	seen := &recorder{Client: client}
	i, err := oursOn(seen, l, keys, weir.Options{NoCoalescing: true})
	if err == nil {
		err = i.settle(ctx)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	words := *seen.last.Load()
	if len(words) < 5 || words[0] != "EVALSHA" || words[2] != "1" {
		client.Close()
		return nil, fmt.Errorf("weir sent %.80q, not EVALSHA of one key", words)
	}
	texts := make([]string, len(keys))
	for n, k := range inproc.WeirKeys(keys) {
		texts[n] = k.String()
	}
	sha, args := words[1], words[4:]
	i.Take = func(ctx context.Context, key int) (bool, error) {
		answer, err := client.Do(ctx, client.B().Evalsha().Sha1(sha).Numkeys(1).Key(texts[key]).Arg(args...).Build()).ToString()
		return err == nil && !strings.Contains(answer, "\n-1"), err
	}
	return i, nil
}

// oneInteger decides one key with one integer, in microseconds, and little else.
const oneInteger = `local t=redis.call('TIME')
local now=t[1]*1000000+t[2]
local tat=tonumber(redis.call('GET',KEYS[1]) or now)
if tat<now then tat=now end
local new=tat+ARGV[1]
local over=new-now-ARGV[2]
if over>0 then return over end
redis.call('SET',KEYS[1],new,'PX',math.ceil((new-now)/1000))
return over`

func minimal(ctx context.Context, addr string, _ int, l inproc.Limit, keys []string) (*Instance, error) {
	client, err := connect(addr)
	if err != nil {
		return nil, err
	}
	sha, err := client.Do(ctx, client.B().ScriptLoad().Script(oneInteger).Build()).ToString()
	if err != nil {
		client.Close()
		return nil, err
	}
	emission := l.Period.Microseconds() / int64(l.Rate)
	step, window := strconv.FormatInt(emission, 10), strconv.FormatInt(emission*int64(l.Burst), 10)
	texts := make([]string, len(keys))
	for n, k := range keys {
		texts[n] = "one:" + k
	}
	eval := func(ctx context.Context, key int, step string) (bool, error) {
		over, err := client.Do(ctx, client.B().Evalsha().Sha1(sha).Numkeys(1).Key(texts[key]).Arg(step, window).Build()).AsInt64()
		return over <= 0, err
	}
	i := &Instance{Close: client.Close, Take: func(ctx context.Context, key int) (bool, error) { return eval(ctx, key, step) }}
	if l.Burst > 1 {
		first := strconv.FormatInt(emission*int64(l.Rate)*1000, 10)
		i.Fill = func(ctx context.Context, key int) (bool, error) { return eval(ctx, key, first) }
	}
	return i, nil
}

func redisRate(_ context.Context, addr string, callers int, l inproc.Limit, keys []string) (*Instance, error) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: callers})
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: l.Rate, Burst: l.Burst, Period: l.Period}
	take := func(ctx context.Context, key, n int) (bool, error) {
		r, err := limiter.AllowN(ctx, keys[key], limit, n)
		return err == nil && r.Allowed > 0, err
	}
	i := &Instance{
		Close: func() { client.Close() }, // it has nothing left to lose
		Take:  func(ctx context.Context, key int) (bool, error) { return take(ctx, key, 1) },
	}
	if l.Burst > 1 {
		i.Fill = func(ctx context.Context, key int) (bool, error) { return take(ctx, key, l.Rate*1000) }
	}
	return i, nil
}
