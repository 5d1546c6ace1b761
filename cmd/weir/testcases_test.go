package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The examples ship cases, and every one of them holds.
func TestTheCasesOfTheExamplesHold(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/cases.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		args := []string{"test", file, "--json"}
		policy := filepath.Join(filepath.Dir(file), "weir.yaml")
		if text := readFile(t, policy); strings.Contains(text, "${") { // filled in from the environment of the function
			text = os.Expand(text, func(name string) string {
				return map[string]string{"REFILL_PER_SECOND": "0.5", "BUCKET_CAPACITY": "10"}[name]
			})
			args = append(args, "-c", writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), text))
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &out, &errs)
		var rep testReport
		if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
			t.Fatalf("%s: exit %d, %v: %s", file, code, err, errs.String())
		}
		if code != 0 || rep.Failed > 0 || rep.Passed != len(rep.Cases) || rep.Passed < 3 {
			t.Errorf("%s: exit %d, %d passed, %d failed\n%s", file, code, rep.Passed, rep.Failed, out.String())
		}
	}
}
