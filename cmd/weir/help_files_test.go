package main

import (
	"regexp"
	"testing"
)

// An example of several files can be told apart, and copied.
func TestFilesOfAnExampleStandApart(t *testing.T) {
	glued := regexp.MustCompile(`(?m)^.*[^\n]# [\w.]+\.(yaml|pem|txt|keys)$`)
	for _, e := range explainedCodes() {
		if at := glued.FindString(e.policy()); at != "" {
			t.Errorf("%s: %q", e.code, at)
		}
	}
}
