package policy

import (
	"errors"
	"strings"
	"testing"
)

// What a caller reads of a mistake of his is a sentence, like any other answer.
func TestRequestErrorsAreSentences(t *testing.T) {
	p := load(t, `
weir: 1
callers: {account: jwt.sub, partner: api_key.owner}
gateway: {match: /partner/, plans: {basic: 1/s}}
application: {limits: [{name: a, by: account, limit: 1/s}]}
`)
	for _, c := range []struct {
		method, path string
		id           Identity
		want         string
	}{
		{"GET", "/partner/", Identity{}, "An API key is required."},
		{"TRACE", "/", Identity{}, "The method TRACE is not served."},
		{"GET", "a", Identity{}, "The path does not begin with a slash."},
		{"GET", "/%zz", Identity{}, "The path has a bad escape."},
		{"GET", "/%00", Identity{}, "The path has a control character."},
		{"GET", "/%2500", Identity{}, "The path has a control character."},
		{"GET", "/", claims("sub", true), "The claim sub of the token is not a text."},
		{"GET", "/", claims("sub", 0.5), "The claim sub of the token is not an id."},
		{"GET", "/", claims("sub", strings.Repeat("x", maxID+1)), "The claim sub of the token is too long."},
	} {
		m, err := p.Match(get(c.method, c.path))
		if err == nil {
			_, err = p.Ops(&m, get(c.method, c.path), c.id)
		}
		var re *RequestError
		if !errors.As(err, &re) || re.Reason != c.want {
			t.Errorf("%s %s: %v, want %s", c.method, c.path, err, c.want)
		}
	}
}
