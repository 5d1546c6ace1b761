package main

import (
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// githubLine is a problem as GitHub Actions shows it beside the line: a workflow
// command.
func githubLine(p *policy.Problem) string {
	level := "error"
	if p.Severity == policy.Warning {
		level = "warning"
	}
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	at := "file=" + property.Replace(filepath.ToSlash(p.File))
	if p.Line > 0 {
		at += fmt.Sprintf(",line=%d,col=%d", p.Line, p.Col)
	}
	text := p.Message
	if p.Hint != "" {
		text += "\nfix: " + p.Hint
	}
	return fmt.Sprintf("::%s %s,title=%s::%s", level, at, p.Code, data.Replace(text))
}

// The part of SARIF 2.1.0 that a checker needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID   policy.Code `json:"id"`
		Help *sarifText  `json:"help,omitempty"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		Rule      policy.Code     `json:"ruleId"`
		Level     policy.Severity `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPlace `json:"physicalLocation"`
	}
	sarifPlace struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn"`
	}
)

// writeSARIF writes problems for the viewers of code hosts and editors.
func writeSARIF(w io.Writer, problems []policy.Problem) error {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "weir", Version: versionOf().Version, Rules: []sarifRule{}}
	seen := map[policy.Code]bool{}
	for i := range problems {
		p := &problems[i]
		if !seen[p.Code] {
			seen[p.Code] = true
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: p.Code})
		}
		text := p.Message
		if p.Hint != "" {
			text += ". Fix: " + p.Hint
		}
		r := sarifResult{Rule: p.Code, Level: p.Severity, Message: sarifText{text}, Locations: make([]sarifLocation, 1)}
		place := &r.Locations[0].Physical
		place.Artifact.URI = (&url.URL{Path: filepath.ToSlash(p.File)}).String()
		if p.Line > 0 {
			place.Region = &sarifRegion{p.Line, p.Col}
		}
		run.Results = append(run.Results, r)
	}
	return writeJSON(w, sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}
