package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/weirlabs/weir"
)

// Client is what deciding needs of a *dynamodb.Client. Create, Check and List
// need a whole one.
type Client interface {
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Options of [New].
type Options struct {
	// Table is the name of the table. Required.
	Table string

	// Prefix is put before every key, so that several programs can share a
	// table. At most 512 bytes; default none.
	Prefix string

	// MaxKeep is the longest time for which an item that is not written may be
	// relied on. 0, the default, is for ever. Limits with a longer horizon are
	// refused when they are used.
	MaxKeep time.Duration

	// Now is the clock, in Unix nanoseconds; it is believed as it is. Default:
	// this machine's clock, corrected when three of DynamoDB's replies in a row
	// show that it is wrong by more than two seconds.
	Now func() int64

	// Observer hears of every round trip. Default nobody.
	Observer *weir.Observer
}

// Store is a table. It implements [weir.Store] and [weir.Records] and is safe
// for concurrent use.
type Store struct {
	client   Client
	table    string
	prefix   string
	maxKeep  time.Duration
	clock    clock
	observer *weir.Observer

	// once turns the SDK's own retries off: a take that is sent twice must be
	// recognised by its nonce, and that is the pipeline's work. (Failed
	// conditions would also drain the SDK's allowance of retries.)
	once func(*dynamodb.Options)

	// returnsOld is set when a failed condition has come with the old item.
	// Until then a failed condition without one may mean that the server does
	// not send it, and is followed by a read.
	returnsOld atomic.Bool
}

var (
	_ weir.Store   = (*Store)(nil)
	_ weir.Records = (*Store)(nil)
)

const maxPrefix = 512

// New makes a Store of a table, which need not exist yet: see [Store.Create].
// It sends nothing. The client stays the caller's; its retries are switched off
// for the calls that decide.
func New(client Client, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("dynamostore: no client; make one with NewClient or dynamodb.NewFromConfig")
	}
	if !isTableName(o.Table) {
		return nil, fmt.Errorf("dynamostore: table name %q: 3 to 255 letters, digits, -, _ and . are needed", o.Table)
	}
	if len(o.Prefix) > maxPrefix {
		return nil, fmt.Errorf("dynamostore: prefix of %d bytes; use at most %d", len(o.Prefix), maxPrefix)
	}
	if o.MaxKeep < 0 {
		return nil, fmt.Errorf("dynamostore: MaxKeep %v is negative; use 0 for no bound", o.MaxKeep)
	}
	s := &Store{
		client:   client,
		table:    o.Table,
		prefix:   o.Prefix,
		maxKeep:  o.MaxKeep,
		observer: o.Observer,
		once: func(o *dynamodb.Options) {
			o.Retryer = aws.NopRetryer{}
			o.RetryMaxAttempts = 1
		},
	}
	s.clock.local = o.Now
	if o.Now == nil {
		s.clock.local = func() int64 { return time.Now().UnixNano() }
		s.clock.correct = true
	}
	return s, nil
}

func isTableName(s string) bool {
	return len(s) >= 3 && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	})
}

// gap spares writes of a busy item: they cost money, and a partition takes about
// a thousand a second. Eight processes at 8 ms spend as many.
const gap = 8 * time.Millisecond

// Caps implements [weir.Store]: the clock is the caller's, and a write may have
// been applied although its reply was lost.
func (s *Store) Caps() weir.Caps {
	return weir.Caps{LossyReplies: true, MaxKeep: s.maxKeep, Gap: gap}
}

// Close implements [weir.Store]. The client is the caller's and stays open.
func (s *Store) Close() error { return nil }

// Skew is how far DynamoDB's clock was ahead of this process's at the last
// reply, to about half a second; negative when it was behind, 0 before the
// first reply. Of two clocks that differ by d, with d up to ten seconds, the one
// ahead admits once at most min(burst, d x rate) too many, and the one behind
// starves. Beyond that each takes what the other has written for a mistake of
// somebody's clock and repairs it, again and again: such a limit is not kept. With
// the default clock, which is corrected when it is more than two seconds off, that
// does not happen; with an Options.Now of your own, keep it right.
func (s *Store) Skew() time.Duration { return time.Duration(s.clock.measured.Load()) }

// Apply implements [weir.Store]. It looks at the first of tries only and sends
// one UpdateItem, or one strongly consistent GetItem when there is none. A
// second trip, a read, follows in one case: a condition failed, no old item
// came with it, and this server has never sent one.
//
// A write whose nonce is already on the item is reported as applied: it is the
// same write, whose reply was lost.
func (s *Store) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (applied int, now int64, err error) {
	state.Reset()
	now = s.clock.now()
	if !item.Valid() {
		return -1, now, s.errorf("apply", "the key is empty or longer than %d bytes", weir.MaxKey)
	}
	if err := ctx.Err(); err != nil {
		return -1, now, s.explain("apply", err) // nothing was sent
	}
	pk := s.prefix + item.String()
	if len(tries) == 0 || !clockHolds(&tries[0], now) {
		var w *weir.Write // for which the time is not right
		if len(tries) > 0 {
			w = &tries[0]
		}
		old, err := s.read(ctx, "read", pk)
		if err == nil {
			err = decode(old, w, state)
		}
		if err != nil {
			return -1, now, s.explain("read", err)
		}
		return -1, now, nil
	}
	w := &tries[0]
	in := s.encode(w, pk, now)
	if !fits(in) {
		return -1, now, s.errorf("update", "one call asks for more limits of one key than fit into a request, which are about 30, or 16 with notify_at; give some of them another key")
	}
	out, took, err := s.update(ctx, in)
	if err == nil {
		s.trip(ctx, weir.Trip{Took: took, WriteUnits: units(out.ConsumedCapacity), Applied: true})
		if err := decode(out.Attributes, w, state); err != nil {
			return -1, now, fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, s.explain("update", err))
		}
		return 0, now, nil
	}
	old, failed := s.conditionFailed(ctx, err, took)
	if !failed {
		err = s.explainWrite("update", err)
		s.trip(ctx, weir.Trip{Took: took, Err: err})
		return -1, now, err
	}
	if old == nil && !s.returnsOld.Load() {
		if old, err = s.read(ctx, "read", pk); err != nil {
			return -1, now, s.explain("read after a failed condition", err)
		}
	}
	if err := decode(old, w, state); err != nil {
		return -1, now, s.explain("update", err)
	}
	if w.Nonce != 0 && remembers(old, w.Nonce) {
		return 0, now, nil
	}
	if old == nil && !creates(w) && w.Holds(state, now) {
		return 0, now, nil // nothing to remove, and so removed
	}
	return -1, now, nil
}

// update sends an UpdateItem once and measures it.
func (s *Store) update(ctx context.Context, in *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, time.Duration, error) {
	began, sent := time.Now(), s.clock.local()
	out, err := s.client.UpdateItem(ctx, in, s.once)
	var md middleware.Metadata
	if out != nil {
		md = out.ResultMetadata
	}
	s.clock.observe(md, err, sent)
	return out, time.Since(began), err
}

// read gets a whole item as it is now; nil when there is none.
func (s *Store) read(ctx context.Context, what, pk string) (map[string]types.AttributeValue, error) {
	began, sent := time.Now(), s.clock.local()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:              &s.table,
		Key:                    itemKey(pk),
		ConsistentRead:         aws.Bool(true),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, s.once)
	t := weir.Trip{Took: time.Since(began)}
	if err != nil {
		s.clock.observe(middleware.Metadata{}, err, sent)
		t.Err = s.explain(what, err)
		s.trip(ctx, t)
		return nil, err
	}
	s.clock.observe(out.ResultMetadata, nil, sent)
	t.ReadUnits = units(out.ConsumedCapacity)
	s.trip(ctx, t)
	if len(out.Item) == 0 {
		return nil, nil
	}
	return out.Item, nil
}

// conditionFailed tells a failed condition from other errors, reports its trip
// and gives the item as it was, nil when the server sent none. AWS charges a
// failed write by the size of the item but does not say so in the reply.
func (s *Store) conditionFailed(ctx context.Context, err error, took time.Duration) (old map[string]types.AttributeValue, failed bool) {
	var e *types.ConditionalCheckFailedException
	if !errors.As(err, &e) {
		return nil, false
	}
	if len(e.Item) > 0 {
		old = e.Item
		s.returnsOld.Store(true)
	}
	s.trip(ctx, weir.Trip{Took: took, WriteUnits: float64(max(1, (itemSize(old)+1023)/1024))})
	return old, true
}

func (s *Store) trip(ctx context.Context, t weir.Trip) {
	if s.observer != nil && s.observer.Trip != nil {
		s.observer.Trip(ctx, t)
	}
}

func itemKey(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{KeyAttribute: &types.AttributeValueMemberS{Value: pk}}
}

func units(c *types.ConsumedCapacity) float64 {
	if c == nil || c.CapacityUnits == nil {
		return 0
	}
	return *c.CapacityUnits
}

// url is the store as the program writes it, for the commands in messages.
func (s *Store) url() string {
	var params []string
	if c, ok := s.client.(*dynamodb.Client); ok {
		o := c.Options()
		if o.Region != "" {
			params = append(params, "region="+o.Region)
		}
		if o.BaseEndpoint != nil {
			params = append(params, "endpoint="+*o.BaseEndpoint)
		}
	}
	if len(params) == 0 {
		return "dynamodb:" + s.table
	}
	return "dynamodb:" + s.table + "?" + strings.Join(params, "&")
}
