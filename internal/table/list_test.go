package table

import (
	"fmt"
	"testing"

	"github.com/weirlabs/weir/internal/plan"
)

// A page looks at a bounded number of entries, and none is missed or given
// twice, whatever is removed and added between two pages.
func TestListInPages(t *testing.T) {
	tables := make([]Table, 3)
	for i := range tables {
		tables[i] = Table{MaxKeys: 1 << 20, MaxBytes: 1 << 40}
	}
	const keys = 3 * 2 * pageWork / 5
	for n := range keys {
		tables[n%3].Insert(plan.NewKey("k", fmt.Sprint(n)), someCells(t, 1<<60), 0)
	}
	got := map[string]int{}
	pages := 0
	for cursor, more := "", true; more; pages++ {
		looked := 0
		page, next, err := List(len(tables), func(i int, do func(*Table)) {
			if looked += atOnce; looked > pageWork+3*atOnce {
				t.Fatal("a page looks at more than it may")
			}
			do(&tables[i])
		}, "k#7", cursor, keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page {
			got[k.String()]++
		}
		tables[pages%3].Insert(plan.NewKey("k", "new", "n", fmt.Sprint(pages)), someCells(t, 1<<60), 0)
		cursor, more = next, next != ""
	}
	for n := range keys {
		text := fmt.Sprint("k#", n)
		want := 0
		if text[2] == '7' {
			want = 1
		}
		if got[text] != want {
			t.Fatalf("%s is listed %d times, want %d", text, got[text], want)
		}
	}
	if pages < 2 {
		t.Errorf("all in %d page", pages)
	}
	for _, bad := range []string{"x", "1", "1.", ".1", "-1.0", "3.0", "1.-1", "1.99999999999"} {
		if _, _, err := List(3, nil, "", bad, 1); err == nil {
			t.Errorf("cursor %q is taken", bad)
		}
	}
}
