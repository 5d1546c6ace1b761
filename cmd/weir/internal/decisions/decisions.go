// Package decisions reads decision logs: the JSON lines that `weir proxy
// --decision-log` writes, one for each thing that one limit said of one request.
//
// A log is as long as the traffic was, so it is read in one pass and never held.
// It may be compressed with gzip. What is not a decision is counted and passed
// over, never guessed at: half a line after a crash, a line that another program
// wrote, a field that is missing or of another type.
//
// Refusals are always logged, those of shadow limits too. What was allowed may be
// sampled: a line's Weight says how many decisions it stands for. [Summary.Weight]
// is what tells a log in which every caller's calls can be followed, which is 1,
// from one that merely says how many there were.
package decisions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/logs"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// Summary is what can be said of a log as a whole.
type Summary struct {
	Lines    int64     // that are decisions
	Bad      int64     // that are none
	FirstBad int64     // the number of the first of those, from 1; 0 without any
	Why      string    // what is wrong with it
	Cut      bool      // a compressed log ends before its end: what follows is lost
	Weight   float64   // the largest; 0 without decisions
	From, To time.Time // the earliest and the latest decision
}

// Add joins the summaries of several logs. FirstBad and Why are those of the
// first that has any.
func (s *Summary) Add(o Summary) {
	if s.FirstBad == 0 {
		s.FirstBad, s.Why = o.FirstBad, o.Why
	}
	s.Cut = s.Cut || o.Cut
	s.Bad += o.Bad
	s.Weight = max(s.Weight, o.Weight)
	if o.Lines == 0 {
		return
	}
	if s.Lines == 0 || o.From.Before(s.From) {
		s.From = o.From
	}
	if s.Lines == 0 || o.To.After(s.To) {
		s.To = o.To
	}
	s.Lines += o.Lines
}

// ReadFile reads a log file, compressed or not, in the order of its lines, or
// standard input for "-". each must not keep the Record; an error of its own, or the
// context's, ends the reading and is returned as it is. A file that cannot be opened
// or read is an error, a file that is not a log is a Summary with nothing but Bad
// lines.
func ReadFile(ctx context.Context, path string, each func(*engine.Record) error) (s Summary, err error) {
	count, err := logs.ReadFile(ctx, path, s.every(each))
	return s.counted(count), err
}

// Read is [ReadFile] of what is open already.
func Read(ctx context.Context, from io.Reader, each func(*engine.Record) error) (s Summary, err error) {
	count, err := logs.Read(ctx, from, s.every(each))
	return s.counted(count), err
}

func (s *Summary) every(each func(*engine.Record) error) func([]byte) (string, error) {
	var r engine.Record
	return func(line []byte) (string, error) {
		if why := Parse(line, &r); why != "" {
			return why, nil
		}
		if r.Event != "" {
			return "", nil // what became of a decision, and none itself
		}
		s.good(&r)
		return "", each(&r)
	}
}

func (s Summary) counted(c logs.Count) Summary {
	s.Bad, s.FirstBad, s.Why, s.Cut = c.Bad, c.FirstBad, c.Why, c.Cut
	return s
}

func (s *Summary) good(r *engine.Record) {
	if s.Lines == 0 || r.Time.Before(s.From) {
		s.From = r.Time
	}
	if s.Lines == 0 || r.Time.After(s.To) {
		s.To = r.Time
	}
	s.Lines++
	s.Weight = max(s.Weight, r.Weight)
}

// wire is a line as it is written. A pointer tells a field that is missing from
// one that is empty.
type wire struct {
	Time       *time.Time    `json:"time"`
	Layer      *policy.Layer `json:"layer"`
	Limit      *string       `json:"limit"`
	Operation  string        `json:"operation"`
	Plan       string        `json:"plan"`
	KeyHash    *string       `json:"key_hash"`
	Allowed    *bool         `json:"allowed"`
	Shadow     *bool         `json:"shadow"`
	Reason     string        `json:"reason"`
	Cost       *int64        `json:"cost"`
	Remaining  *int64        `json:"remaining"`
	RetryAfter int64         `json:"retry_after_seconds"`
	Degraded   bool          `json:"degraded"`
	DenialID   string        `json:"denial_id"`
	Weight     *float64      `json:"weight"`
	LimitText  string        `json:"limit_text"`
	Notice     int           `json:"notice"`
	Excess     int64         `json:"excess"`
	Event      string        `json:"event"`
}

// maxWeight is what a sampled line may stand for: one of so many is no sample.
const maxWeight = 1e9

// Parse reads one line into r, or says why it is no decision.
func Parse(line []byte, r *engine.Record) (why string) {
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return "it is no decision in JSON: " + err.Error()
	}
	switch {
	case w.Time == nil, w.Layer == nil, w.Limit == nil, w.KeyHash == nil, w.Allowed == nil, w.Shadow == nil, w.Cost == nil, w.Weight == nil:
		return "a field is missing: " + w.missing()
	case *w.Layer != policy.Edge && *w.Layer != policy.Gateway && *w.Layer != policy.Application:
		return fmt.Sprintf("there is no layer %q", *w.Layer)
	case *w.Limit == "":
		return "the limit has no name"
	case *w.Cost < 0 && w.Event == "", w.RetryAfter < 0:
		return "a number is negative"
	case *w.Weight < 1, *w.Weight > maxWeight:
		return "the weight is below 1, or above a thousand million"
	case w.Time.Year() < 1970, w.Time.Year() > 2200:
		return "the time is none of a log"
	}
	*r = engine.Record{
		Time: *w.Time, Layer: *w.Layer, Limit: *w.Limit, Operation: w.Operation, Plan: w.Plan, KeyHash: *w.KeyHash,
		Allowed: *w.Allowed, Shadow: *w.Shadow, Reason: w.Reason, Cost: *w.Cost, Unknown: w.Remaining == nil,
		RetryAfterSeconds: w.RetryAfter, Degraded: w.Degraded, DenialID: w.DenialID, Weight: *w.Weight, LimitText: w.LimitText,
		Notice: w.Notice, Excess: w.Excess, Event: w.Event,
	}
	if w.Remaining != nil {
		r.Remaining = *w.Remaining
	}
	return ""
}

// missing names the first field that is not there.
func (w *wire) missing() string {
	for _, f := range []struct {
		name string
		none bool
	}{
		{"time", w.Time == nil}, {"layer", w.Layer == nil}, {"limit", w.Limit == nil}, {"key_hash", w.KeyHash == nil},
		{"allowed", w.Allowed == nil}, {"shadow", w.Shadow == nil}, {"cost", w.Cost == nil}, {"weight", w.Weight == nil},
	} {
		if f.none {
			return f.name
		}
	}
	return ""
}
