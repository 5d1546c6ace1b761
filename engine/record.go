package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// The ways to log a caller: what `log_keys:` may hold.
const (
	logHash  = "hash"
	logPlain = "plain"
	logNone  = "none"
)

// Record is one line of the decision log: what one limit said of one request.
type Record struct {
	Time      time.Time
	Layer     policy.Layer
	Limit     string // the limit's name
	Operation string // "" outside plans
	Plan      string // "" outside plans
	KeyHash   string // 12 bytes of HMAC-SHA256 in hex; the key itself or "" where the policy says so
	Allowed   bool
	Shadow    bool // the limit only watches
	Reason    string
	Cost      int64
	Remaining int64
	Unknown   bool // Remaining is not known: null in JSON
	// RetryAfterSeconds is rounded up; 0 when allowed, and when no wait helps.
	RetryAfterSeconds int64
	Degraded          bool
	DenialID          string  // as in the refused caller's body; "" when allowed
	Weight            float64 // how many decisions the line stands for: 1, or more where allowed ones are sampled
	LimitText         string  // the limit in its grammar, as it was enforced: "0.5/s burst 10"

	Notice int    // the percentage of a quota that this call is the first of its window to reach; 0 without one
	Excess int64  // units of this call beyond a metered quota; below 0 when a settlement gives some back
	Event  string // "" of a decision; "settled" when the line says what became of one, and is none itself
}

// AppendJSON appends the record as one JSON object, without a line end.
func (r *Record) AppendJSON(b []byte) []byte {
	b = append(b, `{"time":"`...)
	b = r.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","layer":`...)
	b = strconv.AppendQuote(b, string(r.Layer))
	b = append(b, `,"limit":`...)
	b = strconv.AppendQuote(b, r.Limit)
	b = append(b, `,"operation":`...)
	b = strconv.AppendQuote(b, r.Operation)
	b = append(b, `,"plan":`...)
	b = strconv.AppendQuote(b, r.Plan)
	b = append(b, `,"key_hash":`...)
	b = strconv.AppendQuote(b, r.KeyHash) // hex, or a key's text: printable ASCII either way
	b = append(b, `,"allowed":`...)
	b = strconv.AppendBool(b, r.Allowed)
	b = append(b, `,"shadow":`...)
	b = strconv.AppendBool(b, r.Shadow)
	b = append(b, `,"reason":`...)
	b = strconv.AppendQuote(b, r.Reason)
	b = append(b, `,"cost":`...)
	b = strconv.AppendInt(b, r.Cost, 10)
	b = append(b, `,"remaining":`...)
	if r.Unknown {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, r.Remaining, 10)
	}
	b = append(b, `,"retry_after_seconds":`...)
	b = strconv.AppendInt(b, r.RetryAfterSeconds, 10)
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, r.Degraded)
	b = append(b, `,"denial_id":`...)
	b = strconv.AppendQuote(b, r.DenialID)
	b = append(b, `,"weight":`...)
	b = strconv.AppendFloat(b, r.Weight, 'g', -1, 64)
	b = append(b, `,"limit_text":`...)
	b = strconv.AppendQuote(b, r.LimitText)
	if r.Notice != 0 {
		b = append(b, `,"notice":`...)
		b = strconv.AppendInt(b, int64(r.Notice), 10)
	}
	if r.Excess != 0 {
		b = append(b, `,"excess":`...)
		b = strconv.AppendInt(b, r.Excess, 10)
	}
	if r.Event != "" {
		b = append(b, `,"event":`...)
		b = strconv.AppendQuote(b, r.Event)
	}
	return append(b, '}')
}

// MarshalJSON is [Record.AppendJSON].
func (r Record) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// Seconds is a wait in whole seconds, rounded up, so that a client which waits
// so long is not refused once more.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// KeyHash is the caller of one of the outcome's verdicts as the policy's log_keys
// allows it into logs: 12 bytes of HMAC-SHA256 under [Options.LogKey] in hex, or
// the key itself, or "". It is [Record.KeyHash], and the key of the engine's own
// lines.
func (o *Outcome) KeyHash(v *Verdict) string { return o.st.engine.keyHash(o.st.policy, v.Key) }

func (e *Engine) keyHash(p *policy.Policy, key weir.Key) string {
	switch p.LogKeys() {
	case logPlain:
		return key.String()
	case logNone:
		return ""
	}
	mac := hmac.New(sha256.New, e.o.LogKey)
	mac.Write([]byte(key.String()))
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

// record tells the decision log: the verdict that refused the request, every
// shadow limit that would have refused it, and a sample of what was taken.
func (e *Engine) record(o *Outcome) {
	if e.o.Decisions == nil {
		return
	}
	share := e.o.AllowedShare
	sampled := share > 0 && (share >= 1 || rand.Float64() < share)
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		switch {
		case v.Reason == weir.ReasonNotAsked:
			continue
		case v.Allowed:
			// What belongs to a refused call was not taken, save at the edge.
			if !v.Shadow && o.Limited() && v.Rule.Layer != policy.Edge {
				if v.excess != 0 { // and giving it back has moved others
					e.o.Decisions(o.settledRecord(v, v.excess))
				}
				continue
			}
			if v.telling() { // always in the log, and so no part of the sample
				e.o.Decisions(o.recordOf(v, 1))
				continue
			}
			if !sampled {
				continue
			}
			e.o.Decisions(o.recordOf(v, 1/share))
		case v.Shadow || i == int(o.speaks):
			e.o.Decisions(o.recordOf(v, 1))
		}
	}
}

// settledRecord is the line of what became of a call.
func (o *Outcome) settledRecord(v *Verdict, excess int64) Record {
	r := o.recordOf(v, 1)
	r.Event, r.Excess, r.DenialID = eventSettled, excess, ""
	return r
}

func (o *Outcome) recordOf(v *Verdict, weight float64) Record {
	r := Record{
		Time: o.Time(), Layer: v.Rule.Layer, Limit: v.Rule.Name, Operation: v.Rule.Operation, Plan: v.Rule.Plan,
		KeyHash: o.KeyHash(v), Allowed: v.Allowed, Shadow: v.Shadow, Reason: v.Reason.String(),
		Cost: v.Cost, Remaining: v.Remaining, Unknown: v.Unknown, RetryAfterSeconds: Seconds(v.RetryAfter),
		Degraded: v.Degraded, Weight: weight, LimitText: v.Limit.String(), Notice: int(v.Notice), Excess: v.Excess(),
	}
	if !v.Shadow {
		r.DenialID = o.DenialID()
	}
	return r
}
