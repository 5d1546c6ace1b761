package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"testing"
)

// The whole kind: whatever a file is called, the address of it in SARIF is a URI
// reference that names this file and nothing else.
func TestSARIFNamesFilesByURIs(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"weir.yaml", "a b%.yaml", "50%25.yaml", "a#b.yaml", "a?b=c.yaml", "a:b.yaml", "ä.yaml", "[x].yaml", "a+b&c.yaml", filepath.Join(t.TempDir(), "a b.yaml")} {
		writeFile(t, name, "weir: 1\nx: 1\n")
		var out bytes.Buffer
		if code := run(t.Context(), []string{"check", name, "--format", "sarif"}, &out, io.Discard); code != 1 {
			t.Fatalf("%s: exit %d", name, code)
		}
		var doc struct {
			Runs []struct {
				Results []struct{ Locations []sarifLocation }
			}
		}
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		uri := doc.Runs[0].Results[0].Locations[0].Physical.Artifact.URI
		u, err := url.Parse(uri)
		if err != nil || filepath.Clean(u.Path) != name || u.Scheme+u.RawQuery+u.Fragment != "" {
			t.Errorf("%s: %s is %+v, %v", name, uri, u, err)
		}
	}
}
