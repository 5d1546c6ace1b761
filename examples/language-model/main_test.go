package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows what the program prints, word for word.
func TestReadmeShowsTheStory(t *testing.T) {
	var out strings.Builder
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```text\n")
	shown, _, ok := strings.Cut(rest, "```\n")
	if !ok || shown != out.String() {
		t.Errorf("README.md shows\n%s\nbut the program prints\n%s", shown, out.String())
	}
	for _, want := range []string{
		// Both windows stand in the refusal, and the one with the longer wait speaks.
		`"complete";r=47;t=60, "complete.quota-month";r=0;t=133080`, `"error":"quota_exhausted"`, "Retry-After: 133080",
		"X-Tokens-Used: 153", "has reached 70%", "has reached 100%",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story lacks %s", want)
		}
	}
}
