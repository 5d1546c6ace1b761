// Package curl reads a curl command line, as people paste it from a terminal, a
// browser or documentation, and says which request it would send.
//
// It runs nothing and reads no file: of what a body holds nothing is needed.
// Options that change neither method, URL nor header are passed over; one that is
// not known is an error, since a word after it might be its argument.
package curl

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Request is what the command would send.
type Request struct {
	Method string
	URL    *url.URL // absolute
	Header http.Header
}

// The options, by what they mean here.
const (
	flag    = iota + 1 // without an argument, and of no interest
	skip               // with an argument, and of no interest
	method             // the argument is the method
	header             // a field
	body               // data: the method becomes POST
	json               // data of a certain type
	form               // a form of several parts
	upload             // a file: the method becomes PUT
	address            // the URL
	basic              // user and password
	bearer             // a token
	agent              // User-Agent
	referer            // Referer
	cookie             // Cookie
	head               // the method becomes HEAD
	query              // data goes into the URL
)

var short = map[byte]int{
	'X': method, 'H': header, 'd': body, 'F': form, 'T': upload, 'u': basic, 'A': agent, 'e': referer, 'b': cookie, 'I': head, 'G': query,
	'o': skip, 'w': skip, 'm': skip, 'x': skip, 'c': skip, 'E': skip, 'D': skip, 'r': skip, 'z': skip, 'K': skip, 'y': skip, 'Y': skip, 'C': skip, 'U': skip,
	's': flag, 'S': flag, 'i': flag, 'k': flag, 'L': flag, 'v': flag, 'f': flag, 'g': flag, 'N': flag, 'O': flag, 'J': flag, 'R': flag, 'n': flag, 'q': flag,
	'0': flag, '1': flag, '2': flag, '3': flag, '4': flag, '6': flag, '#': flag, 'a': flag, 'p': flag, 'Z': flag,
}

var long = map[string]int{
	"request": method, "header": header, "url": address, "user": basic, "oauth2-bearer": bearer, "user-agent": agent, "referer": referer,
	"cookie": cookie, "head": head, "get": query, "json": json, "form": form, "form-string": form, "upload-file": upload,
	"data": body, "data-raw": body, "data-binary": body, "data-ascii": body, "data-urlencode": body,

	"output": skip, "output-dir": skip, "write-out": skip, "max-time": skip, "connect-timeout": skip, "proxy": skip, "cookie-jar": skip, "cert": skip, "key": skip,
	"cacert": skip, "capath": skip, "resolve": skip, "connect-to": skip, "retry": skip, "retry-delay": skip, "retry-max-time": skip, "dump-header": skip,
	"range": skip, "limit-rate": skip, "max-redirs": skip, "interface": skip, "ciphers": skip, "config": skip, "unix-socket": skip, "proxy-user": skip,
	"proxy-header": skip, "max-filesize": skip, "local-port": skip, "tls-max": skip, "pinnedpubkey": skip, "trace": skip, "trace-ascii": skip, "stderr": skip,

	"silent": flag, "show-error": flag, "include": flag, "insecure": flag, "location": flag, "verbose": flag, "fail": flag, "fail-with-body": flag,
	"globoff": flag, "no-buffer": flag, "remote-name": flag, "compressed": flag, "http1.0": flag, "http1.1": flag, "http2": flag, "http2-prior-knowledge": flag,
	"http3": flag, "http3-only": flag, "ipv4": flag, "ipv6": flag, "tlsv1.2": flag, "tlsv1.3": flag, "progress-bar": flag, "path-as-is": flag, "no-keepalive": flag,
	"parallel": flag, "create-dirs": flag, "raw": flag, "no-progress-meter": flag, "disable": flag, "netrc": flag, "location-trusted": flag, "ssl-reqd": flag,
}

// Parse reads a line that begins with curl.
func Parse(line string) (*Request, error) {
	words, err := split(line)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 || words[0] != "curl" {
		return nil, errors.New("the line does not begin with curl")
	}
	p := parser{r: Request{Header: http.Header{}}}
	plain := false // after --
	for words = words[1:]; len(words) > 0 && err == nil; {
		word := words[0]
		words = words[1:]
		switch {
		case plain || word == "-" || !strings.HasPrefix(word, "-"):
			err = p.take(address, word)
		case word == "--":
			plain = true
		case strings.HasPrefix(word, "--"):
			words, err = p.long(word, words)
		default:
			words, err = p.short(word, words)
		}
	}
	if err != nil {
		return nil, err
	}
	return p.request()
}

type parser struct {
	r       Request
	url     string
	data    []string
	said    string // -X
	implied string
	query   bool
}

func (p *parser) long(word string, rest []string) ([]string, error) {
	kind := long[word[2:]]
	if kind == 0 && strings.HasPrefix(word, "--no-") && long[word[5:]] == flag {
		kind = flag
	}
	return p.option(kind, word, "", rest)
}

// short reads one word with one or several options: -sX POST, -XPOST.
func (p *parser) short(word string, rest []string) ([]string, error) {
	for i := 1; i < len(word); i++ {
		kind := short[word[i]]
		if takesNone(kind) {
			if _, err := p.option(kind, word[:i+1], "", nil); err != nil {
				return nil, err
			}
			continue
		}
		return p.option(kind, "-"+word[i:i+1], word[i+1:], rest)
	}
	return rest, nil
}

func takesNone(kind int) bool { return kind == flag || kind == head || kind == query }

// option takes an argument, if it has one, from the word itself or the next.
func (p *parser) option(kind int, word, own string, rest []string) ([]string, error) {
	switch {
	case kind == 0:
		return nil, fmt.Errorf("the option %s of curl is not known here", word)
	case takesNone(kind):
		return rest, p.take(kind, "")
	case own != "":
		return rest, p.take(kind, own)
	case len(rest) == 0:
		return nil, fmt.Errorf("the option %s of curl needs an argument", word)
	}
	return rest[1:], p.take(kind, rest[0])
}

func (p *parser) take(kind int, arg string) error {
	switch kind {
	case method:
		p.said = arg
	case address:
		if p.url != "" {
			return fmt.Errorf("there are two URLs, %s and %s, and so two requests", p.url, arg)
		}
		p.url = arg
	case header:
		return p.field(arg)
	case body:
		p.data, p.implied = append(p.data, arg), http.MethodPost
		p.offer("Content-Type", "application/x-www-form-urlencoded")
	case json:
		p.implied = http.MethodPost
		p.offer("Content-Type", "application/json")
		p.offer("Accept", "application/json")
	case form:
		p.implied = http.MethodPost
		p.offer("Content-Type", "multipart/form-data")
	case upload:
		p.implied = http.MethodPut
	case basic:
		p.offer("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(arg)))
	case bearer:
		p.offer("Authorization", "Bearer "+arg)
	case agent:
		p.offer("User-Agent", arg)
	case referer:
		p.offer("Referer", arg)
	case cookie:
		if strings.Contains(arg, "=") { // else it is a file
			p.offer("Cookie", arg)
		}
	case head:
		p.implied = http.MethodHead
	case query:
		p.query = true
	}
	return nil
}

// field reads the argument of -H.
func (p *parser) field(arg string) error {
	if strings.HasPrefix(arg, "@") {
		return fmt.Errorf("-H %s names a file; write its fields into the line", arg)
	}
	name, value, found := strings.Cut(arg, ":")
	if !found {
		if name, found = strings.CutSuffix(arg, ";"); !found { // curl's way to send an empty one
			return fmt.Errorf("-H %q has no colon", arg)
		}
	} else if strings.TrimSpace(value) == "" {
		return nil // curl's way to send none
	}
	p.r.Header.Add(name, strings.TrimSpace(value))
	return nil
}

// offer adds a field that -H may overrule.
func (p *parser) offer(name, value string) {
	if p.r.Header.Get(name) == "" {
		p.r.Header.Set(name, value)
	}
}

func (p *parser) request() (*Request, error) {
	if p.url == "" {
		return nil, errors.New("the line names no URL")
	}
	text := p.url
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%s is not a URL", p.url)
	}
	p.r.URL = u
	if p.query && p.implied == http.MethodPost {
		p.implied = ""
		p.r.Header.Del("Content-Type")
		more := strings.Join(p.data, "&")
		if u.RawQuery != "" && more != "" {
			more = "&" + more
		}
		u.RawQuery += more
	}
	p.r.Method = http.MethodGet
	if p.implied != "" {
		p.r.Method = p.implied
	}
	if p.said != "" {
		p.r.Method = p.said
	}
	if !Token(p.r.Method) {
		return nil, fmt.Errorf("%q is not a method", p.r.Method)
	}
	return &p.r, nil
}

// Token reports whether a text can be a method or the name of a header: the two
// have one form in HTTP (RFC 9110, section 5.6.2).
func Token(s string) bool {
	_, err := http.NewRequest(s, "/", nil)
	return s != "" && err == nil
}
