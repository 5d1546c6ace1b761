package policy

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Message is what a refusal says to people in the words of the policy:
// "You may order {{.Count}} times per {{.Unit}}. Try again in {{.Wait}}."
//
// Names in double braces are all that it knows, so that it can be checked when
// the policy is loaded, and so that a refusal never fails for its words.
type Message struct{ pieces []piece }

// piece is plain text, or a field.
type piece struct {
	text  string
	field func(*MessageData) string // nil: text
}

// MessageData is what a message knows of a refusal.
type MessageData struct {
	Limit      string // the limit in its grammar: "0.5/s burst 10"
	Count      int64  // 50 of 50 per hour
	Unit       string // "hour" of 50 per hour, or "5 minutes"
	Name       string
	Operation  string
	Plan       string
	Wait       string // "6 seconds"; above an hour in hours and minutes, above two days in days and hours
	At         string // "15:00"
	UpgradeURL string

	Seconds  int64  // the wait in seconds, for languages that have no words here
	Used     int64  // units that are used
	Code     string // the refusal's kind for machines: "rate_limited"
	DenialID string
	Message  string // of a body: the sentence
}

// messageFields are the names of a message, with what stands for them.
var messageFields = []struct {
	name  string
	field func(*MessageData) string
}{
	{"Limit", func(d *MessageData) string { return d.Limit }},
	{"Count", func(d *MessageData) string { return strconv.FormatInt(d.Count, 10) }},
	{"Unit", func(d *MessageData) string { return d.Unit }},
	{"Name", func(d *MessageData) string { return d.Name }},
	{"Operation", func(d *MessageData) string { return d.Operation }},
	{"Plan", func(d *MessageData) string { return d.Plan }},
	{"Wait", func(d *MessageData) string { return d.Wait }},
	{"At", func(d *MessageData) string { return d.At }},
	{"UpgradeURL", func(d *MessageData) string { return d.UpgradeURL }},
	{"Seconds", func(d *MessageData) string { return strconv.FormatInt(d.Seconds, 10) }},
	{"Used", func(d *MessageData) string { return strconv.FormatInt(d.Used, 10) }},
	{"Code", func(d *MessageData) string { return d.Code }},
	{"DenialID", func(d *MessageData) string { return d.DenialID }},
	{"Message", func(d *MessageData) string { return d.Message }},
}

// Text is the message with the fields of a refusal in it.
func (m *Message) Text(d *MessageData) string { return m.Escaped(d, nil) }

// Escaped is Text with every field made safe for the form of the text around it.
func (m *Message) Escaped(d *MessageData, escape func(string) string) string {
	var b strings.Builder
	for _, p := range m.pieces {
		if p.field != nil {
			v := p.field(d)
			if escape != nil {
				v = escape(v)
			}
			b.WriteString(v)
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// message reads a message, and reports everything in braces that is no field.
func (l *loader) message(n *node) *Message {
	m := new(Message)
	for rest := n.text; rest != ""; {
		before, action, found := strings.Cut(rest, "{{")
		if before != "" {
			m.pieces = append(m.pieces, piece{text: before})
		}
		if !found {
			break
		}
		inner, after, closed := strings.Cut(action, "}}")
		from := utf8.RuneCountInString(n.text[:len(n.text)-len(action)-len("{{")])
		if !closed {
			l.wrong(l.inside(n, from, len("{{")), codeMessage, "close it: {{.Wait}}", "the message has {{ without }}")
			break
		}
		rest = after
		if field := l.messageField(l.inside(n, from, utf8.RuneCountInString(inner)+len("{{}}")), inner); field != nil {
			m.pieces = append(m.pieces, piece{field: field})
		}
	}
	return m
}

// messageField finds what stands for the inner part of {{.Name}}.
func (l *loader) messageField(at *node, inner string) func(*MessageData) string {
	name, isField := strings.CutPrefix(strings.TrimSpace(inner), ".")
	known, lower := make([]string, len(messageFields)), make([]string, len(messageFields))
	for i, f := range messageFields {
		if isField && f.name == name {
			return f.field
		}
		known[i], lower[i] = "{{."+f.name+"}}", strings.ToLower(f.name)
	}
	hint := "a message knows " + strings.Join(known, ", ")
	if best := nearest(name, lower); best != "" {
		for i := range lower {
			if lower[i] == best {
				hint = "did you mean " + known[i] + "?"
			}
		}
	}
	if isField && name != "" && !strings.ContainsAny(name, " \t\n|(") {
		l.wrong(at, codeMessage, hint, "the message uses %s, which does not exist", show("."+name))
	} else {
		l.wrong(at, codeMessage, hint, "a message has nothing but names in braces, and %s stands here", show("{{"+inner+"}}"))
	}
	return nil
}
