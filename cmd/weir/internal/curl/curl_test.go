package curl

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func show(r *Request) string {
	var fields []string
	for name, values := range r.Header {
		for _, v := range values {
			fields = append(fields, name+": "+v)
		}
	}
	slices.Sort(fields)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL, strings.Join(fields, " | ")))
}

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		`curl http://a.example/x`:                               "GET http://a.example/x",
		`curl a.example/x?y=1`:                                  "GET http://a.example/x?y=1",
		`curl -X POST 'http://a.example/x y'`:                   "POST http://a.example/x%20y",
		`curl -XPOST http://a.example/`:                         "POST http://a.example/",
		`curl -sSiX DELETE http://a.example/`:                   "DELETE http://a.example/",
		`curl http://a.example/ -d a=1`:                         "POST http://a.example/ Content-Type: application/x-www-form-urlencoded",
		`curl http://a.example/?z=0 -G -d a=1 --data-raw b=2`:   "GET http://a.example/?z=0&a=1&b=2",
		`curl http://a.example/ -X PUT --json '{"a":"it''s"}'`:  "PUT http://a.example/ Accept: application/json | Content-Type: application/json",
		`curl -I http://a.example/`:                             "HEAD http://a.example/",
		`curl -T file http://a.example/`:                        "PUT http://a.example/",
		`curl -F a=@b http://a.example/`:                        "POST http://a.example/ Content-Type: multipart/form-data",
		`curl -u maya:secret http://a.example/`:                 "GET http://a.example/ Authorization: Basic bWF5YTpzZWNyZXQ=",
		`curl --oauth2-bearer abc http://a.example/`:            "GET http://a.example/ Authorization: Bearer abc",
		`curl -H 'X-Api-Key: k' -H "A: \"b\"" http://a.example`: `GET http://a.example A: "b" | X-Api-Key: k`,
		`curl -H 'Empty;' -H 'Accept:' -H 'A:b' a.example`:      "GET http://a.example A: b | Empty:",
		`curl -b 'a=1; b=2' -A Moz -e http://b a.example`:       "GET http://a.example Cookie: a=1; b=2 | Referer: http://b | User-Agent: Moz",
		`curl -b cookies.txt -c cookies.txt a.example`:          "GET http://a.example",
		`curl -o /dev/null -w '%{http_code}\n' -m5 a.example`:   "GET http://a.example",
		`curl --no-keepalive --compressed --http2 a.example`:    "GET http://a.example",
		`curl -- a.example`:                                     "GET http://a.example",
		"curl a.example \\\n  -H 'A: b' \\\r\n  -X POST":        "POST http://a.example A: b",
		`curl $'http://a.example/\u00e9\x20' -H $'A: it\'s'`:    "GET http://a.example/%C3%A9%20 A: it's",
		`curl a.example | jq .`:                                 "GET http://a.example",
		`curl "a.example/?p=\$5"`:                               "GET http://a.example/?p=$5",
		`curl --url a.example --header "Host: b.example"`:       "GET http://a.example Host: b.example",
	} {
		r, err := Parse(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if got := show(r); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", line, got, want)
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for line, want := range map[string]string{
		``:                                  "does not begin with curl",
		`wget a.example`:                    "does not begin with curl",
		`curl`:                              "names no URL",
		`curl -X`:                           "-X of curl needs an argument",
		`curl --request`:                    "--request of curl needs an argument",
		`curl --frobnicate a.example`:       "--frobnicate of curl is not known",
		`curl -s? a.example`:                "-? of curl is not known",
		`curl a.example b.example`:          "two URLs",
		`curl 'a.example`:                   "a ' has no end",
		`curl "a.example`:                   `a " has no end`,
		`curl $'a.example`:                  "a $' has no end",
		`curl $'\u' a`:                      "has no digits",
		`curl a.example \`:                  "ends in a backslash",
		`curl -H "Authorization: $TOKEN" a`: "only your shell knows",
		`curl $(cat url)`:                   "only your shell knows",
		"curl -H `x` a":                     "only your shell knows",
		`curl -H nothing a`:                 "has no colon",
		`curl -H @file a`:                   "names a file",
		`curl http://`:                      "is not a URL",
		`curl 'http://a b/'`:                "is not a URL",
	} {
		if r, err := Parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", line, r, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`curl -X POST 'http://a.example/x' -H "A: \"b\"" -d $'\u00e9'`)
	f.Add("curl \\\n a")
	f.Fuzz(func(t *testing.T, line string) {
		if r, err := Parse(line); err == nil && (r.URL == nil || r.URL.Host == "") {
			t.Errorf("%q: %+v", line, r)
		}
	})
}
