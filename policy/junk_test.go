package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// manyLimits is a policy of n limits.
func manyLimits(n int) string {
	var b strings.Builder
	b.WriteString("weir: 1\napplication:\n  limits:\n")
	for i := range n {
		fmt.Fprintf(&b, "    - name: limit-%d\n      match: POST /r%d/{id}/orders\n      by: [account, ip]\n      limit: 0.5/s burst 10\n      on_store_error: allow\n", i, i)
	}
	return b.String()
}

// Whatever a file of 1 MiB holds, it is refused before it costs much: 64 MiB of
// memory, all together, at most.
func TestAFileOfJunkIsCheap(t *testing.T) {
	const most = 64 << 20
	fill := func(s string) string { return strings.Repeat(s, (1<<20)/len(s)) }
	wide := func(s string) string { return "a: [" + fill(strings.Repeat(s, 1000)+"\n") }
	for name, text := range map[string]string{
		"fields":            fill("a: b\n"),
		"items":             "a:\n" + fill("- b\n"),
		"dashes":            fill("-\n"),
		"dashes in a line":  fill("- - - - -\n"),
		"words":             fill("a\n"),
		"quotes":            fill("\"\n"),
		"single quotes":     fill("''\n"),
		"comments":          fill("#\n"),
		"comments at items": "a:\n" + fill("- b # c\n"),
		"empty lines":       fill("\n"),
		"colons":            fill(": \n"),
		"colons in a line":  fill(": : : : : : : : : :\n"),
		"brackets":          fill("[]\n"),
		"braces":            fill("{}\n"),
		"a wide list":       wide("a,"),
		"a wide object":     wide("{a: b},"),
		"commas":            wide(","),
		"question marks":    fill("? a\n"),
		"tags":              "a:\n" + fill("- !t b\n"),
		"anchors":           "a:\n" + fill("- &t b\n"),
		"aliases":           "a:\n" + fill("- *t\n"),
		"documents":         fill("---\n"),
		"blocks":            "a:\n" + fill("- |\n  b\n"),
		"folded":            "a: >\n" + fill("  b\n"),
		"stairs":            fill("a:\n b:\n  c:\n"),
		"long lines":        fill(strings.Repeat("a", 4000) + "\n"),
		"long values":       "a:\n" + fill("- "+strings.Repeat("b", 4000)+"\n"),
		"limits":            manyLimits(7000),
		"errors":            "weir: 1\n" + fill("é: [\n"),
		"percent":           fill("%a\n"),
		"merge keys":        fill("<<: a\n"),
		"nested limits":     "weir: 1\nedge: [" + fill("{name: a, by: ip, limit: 1/s},\n") + "]",
	} {
		t.Run(name, func(t *testing.T) {
			// All of it, and parts: the dearest is the longest that is read at all.
			for n := min(len(text), maxFile); n > 20_000; n /= 4 {
				spent, took, err := costOf(text[:n])
				if err == nil && n == len(text) {
					t.Error("it loads")
				}
				if spent > most {
					t.Errorf("%d MiB for a file of %d bytes; at most 64 (%v)", spent>>20, n, took)
				}
			}
		})
	}
}

// costOf is what it takes to load a policy: bytes, and time for the log.
func costOf(text string) (spent uint64, took time.Duration, err error) {
	fsys := fstest.MapFS{"weir.yaml": {Data: []byte(text)}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	_, err = Load(fsys, "weir.yaml", Options{})
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took, err
}
