package weir_test

import (
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// A quota's count belongs to its name and its key: it survives a change of the
// count and of the period, also back and forth.
func TestQuotaSurvivesEdits(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		op := func(text string) weir.Op { return weir.Op{Limit: limit(t, text, "exports"), Key: someone} }
		for range 4 {
			p.take(op("quota 8/day"))
		}
		for i, text := range []string{"quota 8/week", "quota 9/h", "quota 100/month", "quota 8/day"} {
			d := p.take(op(text))
			if want := int64(5 + i); !d.Allowed || d.Used != want || d.Remaining != d.Limit.Max()-want {
				t.Errorf("%s: %+v, want %d used", text, d, want)
			}
		}
		if d := p.take(op("quota 8/day")); d.Allowed || d.RetryAfter != 24*time.Hour {
			t.Errorf("%+v", d)
		}
	})
}
