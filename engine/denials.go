package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// A refusal has an id, and somebody who has only that id asks why. What it was
// refused for is kept in the store's records, in a fixed number of places: the
// place follows from the id, and a later refusal takes it over. The record so is
// bounded however many are refused, and finding one is one read.

// Bounds of what is kept of refusals.
const (
	denialPlaces = 4096
	denialsKept  = 5                  // a second and process: a refusal may not cost a write each under attack
	denialAge    = 7 * 24 * time.Hour // after which a place is empty again
	denialTime   = 100 * time.Millisecond
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
	Used       int64        `json:"used"`
	Max        int64        `json:"max"`
	RetryAfter int64        `json:"retry_after_seconds"`
	RetryAt    time.Time    `json:"retry_at"` // when the same call would pass
	Others     []DenialOf   `json:"others"`   // what else was asked of the call
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

// denials says which refusals are kept.
type denials struct{ second, kept atomic.Int64 }

func (d *denials) due(now int64) bool {
	s := now / int64(time.Second)
	if last := d.second.Load(); last != s && d.second.CompareAndSwap(last, s) {
		d.kept.Store(0)
	}
	return d.kept.Add(1) <= denialsKept
}

// keepDenial notes why a request was refused. What fails is not kept: the
// refusal itself does not depend on it.
func (e *Engine) keepDenial(ctx context.Context, o *Outcome) {
	v := o.Speaks()
	if e.denied == nil || v == nil || v.Reason == weir.ReasonUnavailable || !e.denials.due(o.at()) {
		return
	}
	d := Denial{
		ID: o.DenialID, Time: o.Time().UTC(), Layer: v.Rule.Layer, Limit: v.Rule.Name, LimitText: v.Limit.String(),
		Operation: v.Rule.Operation, Plan: v.Rule.Plan, KeyHash: o.KeyHash(v), Reason: v.Reason.String(),
		Cost: v.Cost, Used: v.Used, Max: v.Limit.Max(), RetryAfter: Seconds(v.RetryAfter),
		RetryAt: o.Time().Add(v.RetryAfter).UTC(), Others: []DenialOf{},
	}
	for i := range o.Verdicts {
		if w := &o.Verdicts[i]; w != v && !w.Shadow && w.Reason != weir.ReasonNotAsked {
			d.Others = append(d.Others, DenialOf{w.Rule.Layer, w.Rule.Name, w.Allowed, w.Remaining})
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), denialTime)
	defer cancel()
	key := denialKey(d.ID)
	_, version, err := e.denied.Get(ctx, key)
	if err == nil {
		_ = e.denied.Put(ctx, key, text, version, o.Time().Add(denialAge))
	}
}

// FindDenial is what the records keep of the refusal with an id. ok is false when
// they keep nothing of it: it is too old, a later one has taken its place, or it
// was one of too many at once.
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
