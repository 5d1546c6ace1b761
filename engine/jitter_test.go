package engine

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/policy"
)

// A wait that callers are told is only ever made longer, at most by the jitter,
// and not by the same for all.
func TestRetryAfterJitterOnlyLengthens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "weir: 1\nretry_after_jitter: 30s\napplication: {limits: [{name: a, by: everyone, limit: 1/m}]}\n", func(o *Options) {
			o.Now = func() int64 { return time.Now().UnixNano() }
		})
		waits := map[time.Duration]bool{}
		for i := range 200 {
			var o Outcome
			r.Decide(t.Context(), &policy.Attributes{Method: http.MethodGet, Path: "/"}, &o)
			if i == 0 {
				if !o.Served() || o.Speaks().RetryAfter != 0 {
					t.Fatalf("%+v", o)
				}
				continue
			}
			wait := o.Speaks().RetryAfter
			if wait < time.Minute || wait > time.Minute+30*time.Second {
				t.Fatalf("a wait of %s, with a minute to go and at most 30 s more", wait)
			}
			waits[wait] = true
		}
		if len(waits) < 100 {
			t.Errorf("199 callers are told %d different waits", len(waits))
		}
	})
}
