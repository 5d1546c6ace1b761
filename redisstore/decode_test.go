package redisstore

import (
	"strings"
	"testing"

	"github.com/weirlabs/weir"
)

// answers are what the script answers for one key, to writes that name decode.t,
// with what it means: wrong ones have no now.
var answers = []struct {
	text    string
	now     int64
	applied int
	again   bool
	fields  int
}{
	{"1796000000 123456 3\n-1 ", 1_796_000_000_123_456_000, -1, false, 0},
	{"1796000000 7 2\n0 ", 1_796_000_000_000_007_000, 0, false, 0}, // microseconds have no leading zeros
	{"1796000000 7 20\n=2,2  w AAAAAAAAAAA,", 1_796_000_000_000_007_000, 2, true, 0},
	{"1 0 34\n1,2 -9223372036854775808 other.t x", 1_000_000_000, 1, false, 1},
	{"1 0 16\n1,2 1 decode.i 2", 1_000_000_000, 1, false, 2},
	{"1 0 15\n1,2  decode.i 2", 1_000_000_000, 1, false, 1},
	{"1 0 7\n1,2 1  ", 1_000_000_000, 1, false, 1}, // a field without a name or a value
	{"1 0 5\n1 1 2", 0, 0, false, 0},               // a value with a space
	{"1 0 4\n1  1", 0, 0, false, 0},
	{"1 0 4\n1 1 ", 0, 0, false, 0},
	{"1 0 18\n1,2 1 decode.i 2 3", 0, 0, false, 0},
	{"1 0 18\n1,2 1 decode.i 2\x013", 1e9, 1, false, 1},      // a space in another field
	{"1 0 18\n1,2 1 decode.i 1e3", 1e9, 1, false, 1},         // which the write has done without
	{"1 0 28\n1,6 1 a b 5 decode.i 2 c d 6", 0, 0, false, 0}, // two fields with a space
	{"1 0 18\n1,3 1 a 5 decode.i", 0, 0, false, 0},
	{"1 0 5\n1,0 1", 0, 0, false, 0},
	{"1 0 10\n1,-2 1 a 5", 0, 0, false, 0},
	{"1 0 9\n1,4 1 a 5", 0, 0, false, 0},
	{"1 0 4\n1, 1", 0, 0, false, 0},
	{"1 0 12\n1,99999999 1", 0, 0, false, 0},
	{"1 0 5\n0 1e3", 0, 0, false, 0},
	{"1 0 4\n0 01", 0, 0, false, 0},
	{"1 0 4\n0 +1", 0, 0, false, 0},
	{"1 0 4\n0 -0", 0, 0, false, 0},
	{"1 0 15\n0,2 1 decode.i ", 1e9, 0, false, 1},
	{"1 0 21\n0 9223372036854775808", 0, 0, false, 0},
	{"1 0 1\n0", 0, 0, false, 0},
	{"", 0, 0, false, 0},
	{"1", 0, 0, false, 0},
	{"1 0\n0 ", 0, 0, false, 0},
	{"1 0 3\n0 ", 0, 0, false, 0},
	{"1 0 1\n0 ", 0, 0, false, 0},
	{"1 0 2 0\n0 ", 0, 0, false, 0},
	{"1 0 -2\n0 ", 0, 0, false, 0}, // an error
	{"1 0 -9223372036854775808\n0 ", 0, 0, false, 0},
	{"1 1000000 2\n0 ", 0, 0, false, 0},
	{"-1 0 2\n0 ", 0, 0, false, 0},
	{"9223372036 0 2\n0 ", 0, 0, false, 0},
	{"1 0 2\nx ", 0, 0, false, 0},
}

// understand is how the store reads the answer to a script for one key.
func understand(tb testing.TB, n *names, text string, state *weir.Cells) (reply, int64, error) {
	known(tb)
	t, ok := weir.ParseField("decode.t")
	if !ok {
		tb.Fatal("decode.t is unknown")
	}
	c := new(call)
	err := (&leg{calls: []*call{c}}).unpack(text)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return reply{}, 0, err
	}
	r, err := n.decode(c.text, []weir.Field{t}, state)
	return r, c.now, err
}

func TestCase_B148_MalformedAnswers(t *testing.T) {
	for _, a := range answers {
		var n names
		var state weir.Cells
		r, now, err := understand(t, &n, a.text, &state)
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
		if err != nil || now != a.now || r.applied != a.applied || r.again != a.again || fields != a.fields {
			t.Errorf("%q is %+v at %d with %d fields, %v", a.text, r, now, fields, err)
		}
	}
}

// FuzzDecode: whatever comes, it is an error or something that makes sense, and
// the fields of limits only are remembered.
func FuzzDecode(f *testing.F) {
	for _, a := range answers {
		f.Add(a.text)
	}
	var n names
	f.Fuzz(func(t *testing.T, text string) {
		var state weir.Cells
		_, now, err := understand(t, &n, text, &state)
		if err != nil {
			return
		}
		if now < 0 || now%1000 != 0 {
			t.Errorf("%q has the time %d", text, now)
		}
		for slot := range state.All() {
			if name := slot.Field.Text(); name != "decode.t" && !strings.Contains(text, name) {
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
