package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is what the build says of the program.
type version struct {
	SchemaVersion int    `json:"schema_version"`
	Version       string `json:"version"`  // of the module; "devel" when it was built in a clone
	Revision      string `json:"revision"` // of the sources; "" when it is not known
	Time          string `json:"time"`     // of the revision, RFC 3339; "" when it is not known
	Modified      bool   `json:"modified"` // the sources had changes of their own
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

func versionOf() version {
	v := version{SchemaVersion: 1, Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String is one line: "weir devel, revision 0123456789ab of 2026-01-02T15:04:05Z,
// go1.26.0 linux/amd64".
func (v version) String() string {
	var b strings.Builder
	b.WriteString("weir " + v.Version)
	if v.Revision != "" {
		fmt.Fprintf(&b, ", revision %.12s of %s", v.Revision, v.Time)
	}
	if v.Modified {
		b.WriteString(" with changes")
	}
	return b.String() + ", " + v.Go + " " + v.Platform
}

func newVersion(c *common) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Say which version this is",
		Long:        "Say which version this is, from which sources it was built, and by which Go.\n" + fmt.Sprintf(exitHelp, "is not used"),
		Example:     "  weir version --json",
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.format == "json" {
				return writeJSON(c.stdout, versionOf())
			}
			_, err := fmt.Fprintln(c.stdout, versionOf())
			return err
		},
	}
}
