package policy

import (
	"mime"
	"strconv"
	"strings"
	"time"
)

// Denied is what a refusal says to people.
type Denied struct {
	Message    *Message // nil: the standard sentence
	UpgradeURL string   // "" for none

	// Locales are the messages in other languages, by language tags in lower
	// case, as "de" and "pt-br". [Denied.In] chooses by Accept-Language.
	Locales map[string]*Message

	// Body stands in place of the JSON that refusals have, and ContentType says
	// what it is. nil: that JSON.
	Body        *Message
	ContentType string

	Zone Zone // by whose clock a message says {{.At}}
}

// Zone says whose clock it is: a zone, or a claim or header that names one. The
// zero value is the zone of a calendar quota, and UTC elsewhere. What a header
// names only changes what its sender reads.
type Zone struct {
	Fixed  *time.Location
	Claim  string
	Header string // in canonical form
}

// maxLocales bounds the languages of one message.
const maxLocales = 64

// In is the message for a reader, and its language: the first of Accept-Language
// by preference for which there is one, else Message, whose language is "".
func (d *Denied) In(accept []string) (m *Message, language string) {
	best := 0.0
	for _, field := range accept {
		for i, part := range strings.Split(field, ",") {
			if i == maxLocales {
				break
			}
			tag, params, _ := strings.Cut(part, ";")
			q := 1.0
			if v, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
				var err error
				if q, err = strconv.ParseFloat(v, 64); err != nil {
					continue
				}
			}
			if q <= best {
				continue
			}
			tag = strings.ToLower(strings.TrimSpace(tag))
			for tag != "" { // de-at, then de
				if have := d.Locales[tag]; have != nil {
					m, language, best = have, tag, q
					break
				}
				if tag == "en" || tag == "*" { // the file's own message
					m, language, best = nil, "", q
					break
				}
				tag = tag[:max(0, strings.LastIndexByte(tag, '-'))]
			}
		}
	}
	if m == nil {
		return d.Message, ""
	}
	return m, language
}

func (l *loader) deniedRows(to *Denied) []row {
	return []row{
		{"message", false, "The sentence; it knows {{.Limit}}, {{.Count}}, {{.Unit}}, {{.Name}}, {{.Operation}}, {{.Plan}}, {{.Wait}}, {{.At}} and {{.UpgradeURL}}, and further names.", l.words("message", &to.Message)},
		{"upgrade_url", false, "Where a caller can get more: a path, or an https URL.", value{textForm, func(n *node) { l.link(n, &to.UpgradeURL) }}},
		{"locales", false, "The message in other languages, by language tag.", value{func() *schema { return &schema{Type: "object", Others: textForm()} }, func(n *node) { l.locales(n, to) }}},
		{"body", false, "A body in place of the JSON of refusals; it also knows {{.Message}}.", l.words("body", &to.Body)},
		{"content_type", false, "What body is: text/html; charset=utf-8.", value{textForm, func(n *node) { l.contentType(n, to) }}},
		{"zone", false, "By whose clock the message says {{.At}}: a zone, jwt.CLAIM or header.NAME.", value{textForm, func(n *node) { l.zone(n, &to.Zone) }}},
	}
}

// words reads a text with names in braces.
func (l *loader) words(what string, to **Message) value {
	return value{textForm, func(n *node) {
		var text string
		if l.text(what, &text).read(n); text != "" {
			*to = l.message(n)
		}
	}}
}

func (l *loader) locales(n *node, to *Denied) {
	if !l.is(n, object, "locales") {
		return
	}
	to.Locales = map[string]*Message{}
	for _, f := range n.fields {
		tag := strings.ToLower(f.key.text)
		if tag == "" || len(tag) > 35 || strings.Trim(tag, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			l.wrong(f.key, codeWord, "write a tag such as de or pt-BR", "%s is not the tag of a language", show(f.key.text))
			continue
		}
		var m *Message
		if l.words("a message", &m).read(f.value); m != nil && len(to.Locales) < maxLocales {
			to.Locales[tag] = m
		}
	}
}

func (l *loader) contentType(n *node, to *Denied) {
	if !l.is(n, scalar, "content_type") {
		return
	}
	if _, _, err := mime.ParseMediaType(n.text); err != nil || strings.ContainsAny(n.text, "\r\n") || !strings.Contains(n.text, "/") {
		l.wrong(n, codeWord, "write text/html; charset=utf-8, or text/plain; charset=utf-8", "%s is not a content type", show(n.text))
		return
	}
	to.ContentType = n.text
}

func (l *loader) zone(n *node, to *Zone) {
	if !l.is(n, scalar, "zone") {
		return
	}
	if claim, ok := strings.CutPrefix(n.text, "jwt."); ok && claim != "" {
		to.Claim = claim
		return
	}
	if name, ok := strings.CutPrefix(n.text, "header."); ok {
		to.Header = l.headerName(n, name)
		return
	}
	loc, err := time.LoadLocation(n.text)
	if err != nil || n.text == "" || n.text == "Local" {
		l.wrong(n, codeWord, "write Europe/Berlin, jwt.zoneinfo or header.X-Time-Zone", "%s is not a zone", show(n.text))
		return
	}
	to.Fixed = loc
}
