package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// The whole kind: a file of which no line is of the log that it is said to be gives
// no report, by whichever command.
func TestNoReportOfJunk(t *testing.T) {
	dir := t.TempDir()
	junk := writeFile(t, filepath.Join(dir, "junk.txt"), "junk\n{\"a\":1}\n")
	old := writeFile(t, filepath.Join(dir, "old.yaml"), "weir: 1\napplication: {limits: [{name: a, match: GET /a, by: ip, limit: 1/s}]}\n")
	now := writeFile(t, filepath.Join(dir, "new.yaml"), "weir: 1\napplication: {limits: [{name: a, match: GET /a, by: ip, limit: 2/s}]}\n")
	for _, args := range []string{
		"report --shadow --from decisions=" + junk, "report --shadow --json --from decisions=" + junk, "report --from decisions=" + junk, "report --from waf=" + junk,
		"report --from gateway=" + junk, "report --from " + junk, "diff " + old + " " + now + " --from decisions=" + junk, "cost -c " + old + " --from decisions=" + junk,
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), "\ntry: ") {
			t.Errorf("weir %s: exit %d\n%s%s", args, code, out.String(), errs.String())
		}
	}
}
