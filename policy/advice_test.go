package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// The whole kind: every file is named as the user would open it from where the
// policy was named.
func TestFilesAreNamedAsTheyAreOpened(t *testing.T) {
	for _, c := range []struct{ policy, text, file, want string }{
		{"weir.yaml", "include: [part.yaml]", "part.yaml", "part.yaml:1:1: "},
		{"deploy/weir.yaml", "include: [part.yaml]", "part.yaml", "deploy/part.yaml:1:1: "},
		{"deploy/weir.yaml", "include: [../part.yaml]", "../part.yaml", "part.yaml:1:1: "},
		{"deploy/weir.yaml", "include: [/etc/part.yaml]", "/etc/part.yaml", "/etc/part.yaml:1:1: "},
		{"/srv/weir.yaml", "include: [part.yaml]", "part.yaml", "/srv/part.yaml:1:1: "},
		{"deploy/weir.yaml", "auth: {api_keys: {header: x-api-key, file: keys}}", "keys", "deploy/keys:1:1: "},
		{"deploy/weir.yaml", "auth: {api_keys: {header: x-api-key, file: /etc/keys}}", "/etc/keys", "/etc/keys:1:1: "},
	} {
		fsys := fstest.MapFS{"weir.yaml": {Data: []byte("weir: 1\n" + c.text + "\n")}}
		_, err := Load(anywhere{fsys, c.file}, "weir.yaml", Options{File: c.policy})
		var ps Problems
		if !errors.As(err, &ps) || !strings.HasPrefix(ps[0].String(), c.want) {
			t.Errorf("%s of %s: %v, want %s", c.text, c.policy, err, c.want)
		}
	}
}

// anywhere serves one more file by whichever name.
type anywhere struct {
	fstest.MapFS
	name string
}

func (a anywhere) Open(name string) (fs.File, error) {
	if name == a.name {
		return fstest.MapFS{"x": {Data: []byte("nonsense\n")}}.Open("x")
	}
	return a.MapFS.Open(name)
}

// Whoever follows the advice on an edge limit that is too low hears no more of it.
func TestAdviceOnEdgeLimitsHelps(t *testing.T) {
	text := func(callers, edge, app, more string) string {
		return fmt.Sprintf("weir: 1\n%sedge:\n  - {name: a, by: ip, limit: %s%s}\napplication:\n  limits:\n    - {name: x, match: POST /o, by: account, limit: %s}\n", callers, edge, more, app)
	}
	finding := func(text string) string {
		said := rendered(map[string]string{"weir.yaml": text})
		if !strings.Contains(said, "WEIR2007") {
			return ""
		}
		return said
	}
	number := regexp.MustCompile(`let it be (\d+) in (\w+)`)
	fewer := regexp.MustCompile(`callers_per_address: (\d+)`)
	for _, c := range []struct{ callers, edge, app string }{
		{"", "sliding 100/5m", "10/s"}, {"callers_per_address: 1\n", "sliding 100/5m", "10/s"}, {"", "sliding 1000/5m", "quota 50/5m"}, {"", "sliding 100/m", "quota 50/m"},
		{"callers_per_address: 3\n", "sliding 100/m", "quota 50/m"}, {"", "5/s burst 100", "1/s"}, {"", "quota 10/m", "quota 9/m"}, {"callers_per_address: 1000\n", "sliding 2000/5m", "quota 3/m"},
	} {
		said := finding(text(c.callers, c.edge, c.app, ""))
		if said == "" {
			t.Errorf("%+v: no finding", c)
			continue
		}
		m := number.FindStringSubmatch(said)
		if m == nil {
			t.Errorf("%+v: no number\n%s", c, said)
		} else if again := finding(text(c.callers, "sliding "+m[1]+"/"+m[2], c.app, "")); again != "" {
			t.Errorf("%+v: with sliding %s/%s\n%s", c, m[1], m[2], again)
		}
		if m := fewer.FindStringSubmatch(said[strings.Index(said, "fix:"):]); m != nil {
			if callers := "callers_per_address: " + m[1] + "\n"; callers == c.callers || finding(text(callers, c.edge, c.app, "")) != "" {
				t.Errorf("%+v: with %s\n%s", c, callers, finding(text(callers, c.edge, c.app, "")))
			}
		}
		for _, mode := range []string{"shadow", "off"} { // refuse nobody
			if said := finding(text(c.callers, c.edge, c.app, ", mode: "+mode)); said != "" {
				t.Errorf("%+v, %s:\n%s", c, mode, said)
			}
		}
	}
}

// One is one.
func TestAddressingCountsHops(t *testing.T) {
	for from, want := range map[string]string{"alb": ", 1 hop, ", "cloudfront": ", 2 hops, "} {
		if said := load(t, "weir: 1\nclient_ip: {from: "+from+"}\n").Addressing(); !strings.Contains(said, want) {
			t.Errorf("%s: %s", from, said)
		}
	}
}
