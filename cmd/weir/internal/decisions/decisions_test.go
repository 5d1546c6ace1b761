package decisions

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/logs"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func record(i int) engine.Record {
	return engine.Record{
		Time: at.Add(time.Duration(i) * time.Second), Layer: policy.Application, Limit: "orders", Operation: "orders", Plan: "free",
		KeyHash: "00ff", Allowed: i%2 == 0, Shadow: i%3 == 0, Reason: "limit", Cost: 3, Remaining: int64(i), RetryAfterSeconds: 6,
		DenialID: "abc", Weight: 1, LimitText: "quota 50/hour",
	}
}

func lines(n int) (text []byte, want []engine.Record) {
	for i := range n {
		r := record(i)
		r.Unknown = i == 4
		if r.Unknown {
			r.Remaining = 0
		}
		text = append(r.AppendJSON(text), '\n')
		want = append(want, r)
	}
	return text, want
}

func read(t *testing.T, text []byte) ([]engine.Record, Summary) {
	t.Helper()
	var got []engine.Record
	s, err := Read(t.Context(), bytes.NewReader(text), func(r *engine.Record) error {
		got = append(got, *r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, s
}

func compressed(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is written is read back, field by field, plain and compressed, in one
// piece and in several.
func TestReadsWhatTheProxyWrites(t *testing.T) {
	text, want := lines(10)
	z := compressed(t, text)
	for name, c := range map[string]struct {
		text  []byte
		times int
	}{
		"plain":                {text, 1},
		"gzip":                 {z, 1},
		"gzip of two members":  {append(bytes.Clone(z), z...), 2},
		"without a last break": {bytes.TrimSuffix(text, []byte("\n")), 1},
		"with CRLF":            {bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), 1},
		"with empty lines":     {bytes.ReplaceAll(text, []byte("\n"), []byte("\n\n")), 1},
	} {
		got, s := read(t, c.text)
		if len(got) != c.times*len(want) || s.Lines != int64(len(got)) || s.Bad != 0 || s.Cut {
			t.Fatalf("%s: %d decisions, %+v", name, len(got), s)
		}
		for i, r := range got {
			if r != want[i%len(want)] {
				t.Errorf("%s, line %d: %+v, want %+v", name, i+1, r, want[i%len(want)])
			}
		}
		if !s.From.Equal(want[0].Time) || !s.To.Equal(want[9].Time) || s.Weight != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// The whole kind: what is not a decision is counted and never guessed at, and
// what follows it is read.
func TestBadLinesAreCountedAndNotGuessed(t *testing.T) {
	one := record(0)
	good := string(one.AppendJSON(nil))
	for name, bad := range map[string]string{
		"half a line":           good[:len(good)/2],
		"not JSON":              "2026-03-01 12:00:00 GET /orders 200",
		"a list":                "[" + good + "]",
		"null":                  "null",
		"a number":              "7",
		"two in a line":         good + good,
		"no time":               strings.Replace(good, `"time"`, `"when"`, 1),
		"a time without zone":   strings.Replace(good, "789Z", "789", 1),
		"a time of another day": strings.Replace(good, "2026-03-01", "2026-03-32", 1),
		"no layer":              strings.Replace(good, `"layer"`, `"tier"`, 1),
		"an unknown layer":      strings.Replace(good, "application", "kernel", 1),
		"no limit":              strings.Replace(good, `"limit":"orders"`, `"limit":""`, 1),
		"allowed as a text":     strings.Replace(good, `"allowed":true`, `"allowed":"true"`, 1),
		"no allowed":            strings.Replace(good, `"allowed":true,`, ``, 1),
		"no shadow":             strings.Replace(good, `"shadow":true,`, ``, 1),
		"no key":                strings.Replace(good, `"key_hash":"00ff",`, ``, 1),
		"a key that is null":    strings.Replace(good, `"key_hash":"00ff"`, `"key_hash":null`, 1),
		"a cost of 1.5":         strings.Replace(good, `"cost":3`, `"cost":1.5`, 1),
		"a cost below 0":        strings.Replace(good, `"cost":3`, `"cost":-3`, 1),
		"a cost beyond int64":   strings.Replace(good, `"cost":3`, `"cost":9223372036854775808`, 1),
		"no weight":             strings.Replace(good, `,"weight":1`, ``, 1),
		"a weight of 0":         strings.Replace(good, `"weight":1`, `"weight":0`, 1),
		"a weight below 0":      strings.Replace(good, `"weight":1`, `"weight":-1`, 1),
		"a weight too large":    strings.Replace(good, `"weight":1`, `"weight":1e999`, 1),
		"longer than a line":    strings.Repeat("x", 3*logs.MaxLine),
		"long, but JSON":        strings.Replace(good, `"reason":"limit"`, `"reason":"`+strings.Repeat("x", 2*logs.MaxLine)+`"`, 1),
	} {
		got, s := read(t, []byte(good+"\n"+bad+"\n"+good+"\n"))
		if bad == good {
			t.Fatalf("%s: the line is not changed", name)
		}
		if len(got) != 2 || s.Lines != 2 || s.Bad != 1 || s.FirstBad != 2 || s.Why == "" {
			t.Errorf("%s: %d decisions, %+v", name, len(got), s)
		}
	}
	// More fields than are known here are those of a later version.
	if got, s := read(t, []byte(strings.Replace(good, `"weight"`, `"later":{"a":[1]},"weight"`, 1))); len(got) != 1 || s.Bad != 0 {
		t.Errorf("another field: %+v", s)
	}
	if got, s := read(t, nil); len(got) != 0 || s != (Summary{}) {
		t.Errorf("an empty log: %+v", s)
	}
}

func TestACompressedLogThatIsCutIsReadUpToThere(t *testing.T) {
	text, want := lines(1000)
	z := compressed(t, text)
	for _, n := range []int{3, 11, len(z) / 2, len(z) - 9, len(z) - 1} {
		got, s := read(t, z[:n])
		if !s.Cut && s.Bad == 0 {
			t.Errorf("%d of %d bytes: nothing is said: %+v", n, len(z), s)
		}
		for i, r := range got {
			if r != want[i] {
				t.Fatalf("%d bytes, line %d: %+v", n, i+1, r)
			}
		}
	}
}

// Memory does not grow with the length of a line.
func TestMemoryIsBounded(t *testing.T) {
	allocs := testing.AllocsPerRun(1, func() {
		s, err := Read(context.Background(), io.LimitReader(endless{}, 8<<20), nil)
		if err != nil || s.Bad != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
	if allocs > 20 { // one buffer, and no second one
		t.Errorf("%v allocations for one line of 8 MiB", allocs)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for n := range p {
		p[n] = 'x'
	}
	return len(p), nil
}

func TestFilesAndEnds(t *testing.T) {
	if _, err := ReadFile(t.Context(), filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	text, _ := lines(5000)
	file := filepath.Join(t.TempDir(), "decisions.log")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	n := 0
	if s, err := ReadFile(t.Context(), file, func(*engine.Record) error {
		if n++; n == 7 {
			return enough
		}
		return nil
	}); err != enough || s.Lines != 7 {
		t.Errorf("an end by the reader: %v, %+v", err, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadFile(ctx, file, func(*engine.Record) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("an end by the context: %v", err)
	}
	if _, err := Read(t.Context(), broken{}, nil); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a disk that fails: %v", err)
	}
	first, all := Summary{}, Summary{}
	first.Add(Summary{Lines: 2, Bad: 1, FirstBad: 3, Why: "x", From: at, To: at.Add(1), Weight: 1})
	all.Add(first)
	all.Add(Summary{Lines: 3, From: at.Add(-1), To: at.Add(5), Weight: 100, Cut: true})
	all.Add(Summary{Bad: 2, FirstBad: 1, Why: "y"})
	if want := (Summary{Lines: 5, Bad: 3, FirstBad: 3, Why: "x", Cut: true, Weight: 100, From: at.Add(-1), To: at.Add(5)}); all != want {
		t.Errorf("%+v, want %+v", all, want)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk") }
