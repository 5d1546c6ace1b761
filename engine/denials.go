package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// A refusal has an id, and somebody who has only that id asks why. What it was
// refused for is kept in the store's records, in a fixed number of places: the
// place follows from the id, and a later refusal takes it over. The record so is
// bounded however many are refused, and finding one is one read.
//
// A refusal does not wait for that. One goroutine writes what is to be kept, a few
// wait for it, and what is too much is not kept. What this process's memory refused
// asks no store, and nothing is kept while the store is known to be away.

// Bounds of what is kept of refusals.
const (
	denialPlaces  = 4096
	denialsKept   = 5                  // a second and process: a refusal may not cost a write each under attack
	denialsQueued = 16                 // that wait to be written
	denialAge     = 7 * 24 * time.Hour // after which a place is empty again
	denialTime    = time.Second        // for writing one, and for all that wait when the engine is closed
	denialPause   = time.Second        // after a write that failed
)

// Denial is what is kept of a refusal by a limit. It holds no raw key unless the
// policy's log_keys says so.
type Denial struct {
	ID         string       `json:"denial_id"`
	Time       time.Time    `json:"time"`
	Layer      policy.Layer `json:"layer"`
	Limit      string       `json:"limit"`
	LimitText  string       `json:"limit_text"`
	Operation  string       `json:"operation"`
	Plan       string       `json:"plan"`
	KeyHash    string       `json:"key_hash"`
	Reason     string       `json:"reason"`
	Cost       int64        `json:"cost"`
	Used       *int64       `json:"used"` // nil: not known
	Max        int64        `json:"max"`
	RetryAfter int64        `json:"retry_after_seconds"` // as the caller was told: 0 when no wait helps
	RetryAt    time.Time    `json:"retry_at,omitzero"`   // when the same call would pass if nobody else called; zero: not known, or never
	Others     []DenialOf   `json:"others"`              // what else was asked of the call
}

// DenialOf is one of the other limits of a refused call.
type DenialOf struct {
	Layer     policy.Layer `json:"layer"`
	Limit     string       `json:"limit"`
	Allowed   bool         `json:"allowed"`
	Remaining int64        `json:"remaining"`
}

func denialKey(id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return fmt.Sprintf("denial/%03x", h.Sum32()%denialPlaces)
}

// denials keeps refusals in records.
type denials struct {
	records weir.Records // nil when nobody asked for that
	now     func() int64

	kept      perSecond
	restUntil atomic.Int64 // Unix ns until which nothing is written after a failure

	start sync.Once
	end   sync.Once
	queue chan Denial
	stop  chan struct{}
	done  chan struct{}
	life  context.Context // of all writing: it ends some time after close
	cut   context.CancelFunc
}

func newDenials(r weir.Records, now func() int64) *denials {
	d := &denials{records: r, now: now, queue: make(chan Denial, denialsQueued), stop: make(chan struct{}), done: make(chan struct{})}
	d.life, d.cut = context.WithCancel(context.Background())
	return d
}

// rests reports whether writing has failed just now.
func (d *denials) rests(now int64) bool {
	rest := d.restUntil.Load()
	return now < rest && rest-now <= int64(denialPause)
}

// due reports whether a refusal may be kept at a time.
func (d *denials) due(now int64) bool {
	return !d.rests(now) && d.kept.allow(now, denialsKept)
}

// keep has a refusal written, unless too many wait for that.
func (d *denials) keep(one Denial) {
	d.start.Do(func() { go d.run() })
	select {
	case d.queue <- one:
	default:
	}
}

func (d *denials) run() {
	defer close(d.done)
	for {
		select {
		case one := <-d.queue:
			ctx, cancel := context.WithTimeout(d.life, denialTime)
			d.write(ctx, &one)
			cancel()
		case <-d.stop:
			d.drain()
			return
		}
	}
}

func (d *denials) drain() {
	for d.life.Err() == nil {
		select {
		case one := <-d.queue:
			d.write(d.life, &one)
		default:
			return
		}
	}
}

// close returns when what waits is written, or can't be in time.
func (d *denials) close() {
	d.start.Do(func() { close(d.done) })
	d.end.Do(func() {
		close(d.stop)
		time.AfterFunc(denialTime, d.cut) // also the write under way
	})
	<-d.done
	d.cut()
}

// write keeps one refusal. What fails is not kept.
func (d *denials) write(ctx context.Context, one *Denial) {
	if d.rests(d.now()) {
		return
	}
	text, err := json.Marshal(one)
	if err != nil {
		return
	}
	key := denialKey(one.ID)
	_, version, err := d.records.Get(ctx, key)
	if err == nil {
		err = d.records.Put(ctx, key, text, version, one.Time.Add(denialAge))
	}
	if err != nil && !errors.Is(err, weir.ErrConflict) {
		d.restUntil.Store(d.now() + int64(denialPause))
	}
}

// keepDenial notes why a request was refused. The wait that it was told is longer
// than it had to be.
func (e *Engine) keepDenial(o *Outcome, longer time.Duration) {
	v := o.Speaks()
	if e.denials == nil || v == nil || v.Reason == weir.ReasonUnavailable || o.Degraded ||
		v.Rule.Layer == policy.Edge && !o.st.policy.EdgeShared() || !e.denials.due(o.at()) || e.rest.Stats().Open {
		return
	}
	used := v.Used
	d := Denial{
		ID: o.DenialID(), Time: o.Time().UTC(), Layer: v.Rule.Layer, Limit: v.Rule.Name, LimitText: v.Limit.String(),
		Operation: v.Rule.Operation, Plan: v.Rule.Plan, KeyHash: o.KeyHash(v), Reason: v.Reason.String(),
		Cost: v.Cost, Max: v.Limit.Max(), RetryAfter: Seconds(v.RetryAfter), Others: []DenialOf{},
	}
	if !v.Unknown {
		d.Used = &used
	}
	if v.Reason == weir.ReasonLimit { // who waits for calls under way does not know when they end
		d.RetryAt = o.Time().Add(v.RetryAfter - longer).UTC()
	}
	for i := range o.Verdicts {
		if w := &o.Verdicts[i]; w != v && !w.Shadow && w.Reason != weir.ReasonNotAsked {
			d.Others = append(d.Others, DenialOf{w.Rule.Layer, w.Rule.Name, w.Allowed, w.Remaining})
		}
	}
	e.denials.keep(d)
}

// FindDenial is what the records keep of the refusal with an id. ok is false when
// they keep nothing of it: it is too old, a later one has taken its place, it was
// one of too many at once, or an edge rule refused it, which asks no store.
func FindDenial(ctx context.Context, r weir.Records, id string) (d Denial, ok bool, err error) {
	text, _, err := r.Get(ctx, denialKey(id))
	if err != nil || len(text) == 0 {
		return d, false, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, false, fmt.Errorf("engine: the record of denial %s cannot be read: %w", id, err)
	}
	return d, d.ID == id, nil
}
