package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The whole kind: which edits of a policy let callers start over.
func TestChangedCounters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	const edge = "\nedge:\n  - {name: flood, limit: sliding 100/5m, by: ip}"
	one := func(limit string) string {
		return edge + "\napplication:\n  limits:\n    - {name: all, match: GET /, by: ip, " + limit + "}"
	}
	was := one("limit: quota 5/hour")
	for name, c := range map[string]struct{ old, next, want string }{
		"nothing":                 {was, was, ""},
		"a quota's count":         {was, one("limit: quota 500/hour"), ""},
		"a quota's period":        {was, one("limit: quota 5/day"), ""},
		"its algorithm":           {was, one("limit: 5/hour"), "all"},
		"to the calendar":         {was, one("limit: quota 5/hour calendar"), "all"},
		"a calendar's unit":       {one("limit: quota 5/hour calendar"), one("limit: quota 5/day calendar"), "all"},
		"a calendar's zone":       {one("limit: quota 5/day calendar"), one("limit: quota 5/day calendar Asia/Tokyo"), "all"},
		"a calendar's count":      {one("limit: quota 5/day calendar"), one("limit: quota 7/day calendar"), ""},
		"a bucket's rate":         {one("limit: 1/s burst 5"), one("limit: 0.1/m burst 7"), ""},
		"a sliding window":        {one("limit: sliding 5/m"), one("limit: sliding 5/2m"), "all"},
		"its name":                {was, strings.Replace(was, "name: all", "name: every", 1), "every; gone all"},
		"an edge rule's name":     {was, strings.Replace(was, "flood", "rate-all", 1), "rate-all; gone flood"},
		"an edge rule's unit":     {was, strings.Replace(was, "100/5m", "100/6m", 1), "flood"},
		"an edge rule that moves": {was, "\nedge_store: shared" + was, "flood"},
		"who counts":              {was, strings.Replace(was, "GET /, by: ip", "GET /, by: everyone", 1), "all"},
		"a limit more in a list":  {was, one("limit: [quota 5/hour, 10/s]"), "all.second"},
		"a limit less":            {one("limit: [quota 5/hour, 10/s]"), was, "; gone all.second"},
		"shadow to enforce":       {one("mode: shadow, limit: quota 5/hour"), was, "all"},
		"off":                     {was, one("mode: off, limit: quota 5/hour"), "; gone all"},
		"on again":                {one("mode: off, limit: quota 5/hour"), was, "all"},
		"where it holds":          {was, strings.Replace(was, "GET /", "POST /", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			old, err := loadPolicy(writeFile(t, file, "weir: 1"+c.old+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			next, err := loadPolicy(writeFile(t, file, "weir: 1"+c.next+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			fresh, gone, err := changedCounters(t.Context(), old, next)
			got := strings.Join(fresh, ", ")
			if len(gone) > 0 {
				got += "; gone " + strings.Join(gone, ", ")
			}
			if err != nil || got != c.want {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// A reload says what does not follow the file, and usage is shown as before.
func TestReloadSaysWhatDoesNotFollow(t *testing.T) {
	up := newRecorder(t, nil)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	text := func(store, name, limit string) string {
		return fmt.Sprintf("weir: 1\n%sapplication:\n  limits:\n    - {name: %s, match: GET /, by: ip, limit: %s}\n", store, name, limit)
	}
	writeFile(t, file, text("store: 'memory:'\n", "all", "quota 5/hour"))
	p := startWeir(t, nil, "proxy", "--to", up.URL, "-c", file, "--listen", "127.0.0.1:0")
	if res, _ := do(t, "GET", p.url+"/"); res.StatusCode != 200 {
		t.Fatalf("%d", res.StatusCode)
	}
	for _, c := range []struct{ policy, warns, usage string }{
		{text("store: 'memory:'\n", "all", "quota 7/hour"), "", `"limit":7,"used":1,`},
		{text("store: 'bolt:other.db'\n", "all", "quota 9/hour"), "it is memory:, and the policy names bolt:other.db; restart the proxy", `"limit":7,"used":1,`},
		{text("store: 'redis://u:secret@127.0.0.1:1'\n", "all", "quota 9/hour"), "it is memory:, and the policy names redis://127.0.0.1:1; restart", `"limit":7,"used":1,`},
		{text("", "all", "quota 7/hour"), "store=memory: after_restart=bolt:weir.db", `"used":1,`},
		{text("store: 'memory:'\n", "every", "quota 7/hour"), "limits=every gone=all", `"used":0,`},
		{text("store: 'memory:'\n", "every", "7/hour"), `limits=every gone=""`, `"used":0,`},
	} {
		before := len(p.log())
		writeFile(t, file, c.policy)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		ended := "the policy was reloaded"
		if strings.Contains(c.warns, "restart the proxy") || strings.Contains(c.warns, "; restart") {
			ended = "the policy was not reloaded; the one in force stays"
		}
		if p.line(ended); c.warns == "" && (strings.Contains(p.log()[before:], "restart") || strings.Contains(p.log()[before:], "nothing used")) {
			t.Errorf("warned of nothing:\n%s", p.log()[before:])
		}
		if said := p.log()[before:]; strings.Count(said, c.warns) != 1 && c.warns != "" {
			t.Errorf("no line, or several, with %q:\n%s", c.warns, said)
		}
		if res, body := do(t, "GET", p.url+"/.weir/usage"); res.StatusCode != 200 || !strings.Contains(body, c.usage) {
			t.Errorf("usage after the reload: %d %s, want %s", res.StatusCode, body, c.usage)
		}
	}
	if strings.Contains(p.log(), "secret") {
		t.Error("the password is shown")
	}
	p.end(syscall.SIGTERM)
}
