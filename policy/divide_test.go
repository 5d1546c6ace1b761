package policy

import (
	"testing"

	"github.com/weirlabs/weir"
)

func TestDivided(t *testing.T) {
	for _, tt := range []struct {
		limit string
		by    int
		want  string
	}{
		{"sliding 2000/5m", 1, "sliding 2000/5m"},
		{"sliding 2000/5m", 3, "sliding 667/5m"},
		{"sliding 2/5m", 3, "sliding 1/5m"},
		{"quota 100/day calendar Europe/Berlin", 8, "quota 13/day calendar Europe/Berlin"},
		{"10/s burst 20", 2, "5/s burst 10"},
		{"10/s burst 20", 3, "4/s burst 7"},
		{"10/s", 30, "1/s burst 1"},
		{"1.5/s burst 3", 2, "1/s burst 2"},
		{"0.5/s burst 10", 2, "0.5/2second burst 5"},
		{"0.25/5m burst 3", 4, "0.25/20m burst 1"},
	} {
		l, err := weir.ParseLimit(tt.limit)
		if err != nil {
			t.Fatal(err)
		}
		if l, err = l.Named("edge"); err != nil {
			t.Fatal(err)
		}
		got, err := Divided(l, tt.by)
		if err != nil {
			t.Errorf("%s by %d: %v", tt.limit, tt.by, err)
			continue
		}
		want, err := weir.ParseLimit(tt.want)
		if err != nil {
			t.Fatal(err)
		}
		gn, gs := got.Rate()
		wn, ws := want.Rate()
		if got.Name() != "edge" || gn*ws != wn*gs || got.Period().Duration() != want.Period().Duration() || got.Max() != want.Max() || got.IsBucket() != want.IsBucket() {
			t.Errorf("%s by %d: %s, want %s", tt.limit, tt.by, got, tt.want)
		}
	}
}
