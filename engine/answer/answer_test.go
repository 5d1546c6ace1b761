package answer

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		d       weir.Decision
		seconds int64
		ok      bool
	}{
		{weir.Decision{Allowed: true, RetryAfter: time.Second}, 0, false},
		{weir.Decision{Reason: weir.ReasonNever}, 0, false},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: 0}, 1, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: 1}, 1, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: time.Second}, 1, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: time.Second + 1}, 2, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: 1900 * time.Millisecond}, 2, true},
		{weir.Decision{Reason: weir.ReasonUnavailable}, 1, true},
	} {
		if seconds, ok := RetryAfter(&tt.d); seconds != tt.seconds || ok != tt.ok {
			t.Errorf("%+v: %d %v, want %d %v", tt.d, seconds, ok, tt.seconds, tt.ok)
		}
	}
}

// The time until more can be had, for a bucket of 10 at one unit in two seconds.
func TestUntil(t *testing.T) {
	limit, err := weir.ParseLimit("0.5/s burst 10")
	if err != nil {
		t.Fatal(err)
	}
	f := newFace(limit)
	for _, tt := range []struct {
		name string
		d    weir.Decision
		want time.Duration
	}{
		{"one used", weir.Decision{Allowed: true, Used: 1, ResetAfter: 2 * time.Second}, 2 * time.Second},
		{"five used", weir.Decision{Allowed: true, Used: 5, ResetAfter: 10 * time.Second}, 2 * time.Second},
		{"four and a bit", weir.Decision{Allowed: true, Used: 5, ResetAfter: 8500 * time.Millisecond}, 500 * time.Millisecond},
		{"empty", weir.Decision{Used: 10, ResetAfter: 20 * time.Second, RetryAfter: 2 * time.Second}, 2 * time.Second},
		{"too little for a large cost", weir.Decision{Used: 8, ResetAfter: 15 * time.Second, RetryAfter: 5 * time.Second}, time.Second},
		{"in debt", weir.Decision{Used: 12, ResetAfter: 24 * time.Second, RetryAfter: 6 * time.Second}, 6 * time.Second},
		{"full", weir.Decision{Allowed: true}, 0},
		{"not known", weir.Decision{Unknown: true, ResetAfter: time.Second}, 0},
	} {
		if got := f.until(&tt.d); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestStatusOfGRPC(t *testing.T) {
	for code, want := range map[string]int{"0": 200, "1": 499, "5": 404, "8": 429, "12": 501, "13": 500, "14": 503, "16": 401, "17": 500, "-1": 500, "": 500, "OK": 500} {
		if got := StatusOfGRPC(code); got != want {
			t.Errorf("%q: %d, want %d", code, got, want)
		}
	}
}

func TestIsGRPC(t *testing.T) {
	for kind, want := range map[string]bool{"application/grpc": true, "application/grpc+proto": true, "application/grpc;x=y": true,
		"application/grpc-web": false, "application/grpcx": false, "application/json": false, "": false} {
		if got := IsGRPC(kind); got != want {
			t.Errorf("%q: %v", kind, got)
		}
	}
}

func TestMessagesArePercentEncodedForGRPC(t *testing.T) {
	if got := percent("100% für alle\n"); got != "100%25 f%C3%BCr alle%0A" {
		t.Error(got)
	}
}

func TestFacesAreBounded(t *testing.T) {
	var w Writer
	verdict := func(text string) *engine.Verdict {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		return &engine.Verdict{Rule: &policy.Rule{Limit: limit}, Decision: weir.Decision{Limit: limit}}
	}
	for i := range maxFaces + 10 {
		w.face(verdict(fmt.Sprintf("quota %d/hour", i+1)))
	}
	one := verdict("1/s")
	if first, second := w.face(one), w.face(one); first != second {
		t.Error("a limit's face is made anew each time")
	}
	own := *one
	own.Limit = verdict("5/s").Limit
	if f := w.face(&own); f.max != "5" || w.face(one).max != "1" {
		t.Errorf("a caller's own limit is shown as %s, the rule's as %s", f.max, w.face(one).max)
	}
	if n := len(*w.faces.Load()); n > maxFaces {
		t.Errorf("%d faces", n)
	}
}
