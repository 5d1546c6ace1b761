package redisstore

import (
	"strings"
	"testing"

	"github.com/weirlabs/weir"
)

// answers are replies of the script with what they mean: wrong ones have no now.
var answers = []struct {
	text    string
	now     int64
	applied int
	again   bool
	fields  int
}{
	{"1796000000 123456 -1", 1_796_000_000_123_456_000, -1, false, 0},
	{"1796000000 7 0", 1_796_000_000_000_007_000, 0, false, 0}, // microseconds have no leading zeros
	{"w AAAAAAAAAAA, 1796000000 7 =2", 1_796_000_000_000_007_000, 2, true, 0},
	{"decode.t -9223372036854775808 other.t x 1 0 1", 1_000_000_000, 1, false, 1},
	{"decode.t 1 decode.i 2 1 0 1", 1_000_000_000, 1, false, 2},
	{"decode.t 1 2 decode.i 2 1 0 1", 0, 0, false, 0}, // a value with a space
	{"decode.t 1e3 1 0 0", 0, 0, false, 0},
	{"decode.t 01 1 0 0", 0, 0, false, 0},
	{"decode.t +1 1 0 0", 0, 0, false, 0},
	{"decode.t -0 1 0 0", 0, 0, false, 0},
	{"decode.t  1 0 0", 0, 0, false, 0},
	{"decode.t 9223372036854775808 1 0 0", 0, 0, false, 0},
	{"", 0, 0, false, 0},
	{"1", 0, 0, false, 0},
	{"1 0", 0, 0, false, 0},
	{"1 1000000 0", 0, 0, false, 0},
	{"-1 0 0", 0, 0, false, 0},
	{"9223372036 0 0", 0, 0, false, 0},
	{"1 0 x", 0, 0, false, 0},
}

func TestCase_B148_MalformedAnswers(t *testing.T) {
	known(t)
	for _, a := range answers {
		var n names
		var state weir.Cells
		r, err := n.decode(a.text, &state)
		if a.now == 0 {
			if err == nil {
				t.Errorf("%q is taken for an answer: %+v", a.text, r)
			}
			continue
		}
		fields := 0
		for range state.All() {
			fields++
		}
		if err != nil || r.now != a.now || r.applied != a.applied || r.again != a.again || fields != a.fields {
			t.Errorf("%q is %+v with %d fields, %v", a.text, r, fields, err)
		}
	}
}

// FuzzDecode: whatever comes, decode gives an error or something that makes
// sense, and remembers the fields of limits only.
func FuzzDecode(f *testing.F) {
	known(f)
	for _, a := range answers {
		f.Add(a.text)
	}
	var n names
	f.Fuzz(func(t *testing.T, text string) {
		var state weir.Cells
		r, err := n.decode(text, &state)
		if err != nil {
			return
		}
		if r.now < 0 || r.now%1000 != 0 {
			t.Errorf("%q has the time %d", text, r.now)
		}
		for slot := range state.All() {
			if name := slot.Field.Text(); !strings.Contains(text, name) {
				t.Errorf("%q is said to hold %s", text, name)
			}
		}
		if len(n.texts) > 64 {
			t.Fatalf("%d fields are remembered", len(n.texts))
		}
	})
}

// known builds the limits whose fields the answers hold.
func known(tb testing.TB) {
	tb.Helper()
	l, err := weir.ParseLimit("10/s burst 20")
	if err == nil {
		_, err = l.Named("decode")
	}
	if err != nil {
		tb.Fatal(err)
	}
}
