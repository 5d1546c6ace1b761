package plan

import (
	"regexp"
	"strings"
	"testing"
)

// The names are those of the forms that docs and the policy's schema show.
func TestNamesAreOfTheirForm(t *testing.T) {
	word := regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	name := regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}(\.[a-z0-9-]{1,31})?$`)
	var seen [2]int
	check := func(s string) {
		t.Helper()
		if got, want := IsWord(s), word.MatchString(s); got != want {
			t.Errorf("word %q: %v, want %v", s, got, want)
		}
		got := validName(s)
		if want := name.MatchString(s); got != want {
			t.Errorf("name %q: %v, want %v", s, got, want)
		}
		if got {
			seen[1]++
		} else {
			seen[0]++
		}
	}
	parts := []string{"", "a", "z", "A", "0", "9", "-", ".", "_", "ä", "\x00", "\n", " ", "a\n", "/", ":", "`", "{", strings.Repeat("a", 30), strings.Repeat("a", 31), strings.Repeat("0", 32)}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				check(a + b + c)
			}
		}
	}
	if seen[0] < 1000 || seen[1] < 100 {
		t.Errorf("%d names, %d others", seen[1], seen[0])
	}
}
