package lambdalimit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlabs/weir/engine/answer"
)

// proxyResponse is the answer to an HTTP event, in the union of its forms.
type proxyResponse struct {
	StatusCode        int                 `json:"statusCode"`
	StatusDescription string              `json:"statusDescription,omitempty"` // ALB
	Headers           map[string]string   `json:"headers,omitempty"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders,omitempty"`
	Cookies           []string            `json:"cookies,omitempty"` // payload 2.0
	Body              string              `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
}

// encode writes an answer in the form of an event. Names are in lower case, as
// HTTP/2 has them and HTTP APIs write them.
func encode(s shape, r answer.Response) json.RawMessage {
	p := proxyResponse{StatusCode: r.Status}
	if s == balancer || s == balancerMulti {
		p.StatusDescription = strings.TrimSpace(strconv.Itoa(r.Status) + " " + http.StatusText(r.Status))
	}
	for name, values := range r.Header {
		switch {
		case name == "Content-Length" || len(values) == 0: // the service counts the body that it sends
		case s == httpV2 && name == "Set-Cookie":
			p.Cookies = values
		case s == balancerMulti, s == httpV1 && len(values) > 1:
			if p.MultiValueHeaders == nil {
				p.MultiValueHeaders = map[string][]string{}
			}
			p.MultiValueHeaders[strings.ToLower(name)] = values
		default:
			if p.Headers == nil {
				p.Headers = map[string]string{}
			}
			p.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	if utf8.Valid(r.Body) && len(r.Header["Content-Encoding"]) == 0 {
		p.Body = string(r.Body)
	} else {
		p.Body, p.IsBase64Encoded = base64.StdEncoding.EncodeToString(r.Body), true
	}
	text, err := marshal(p)
	if err != nil {
		// Texts and numbers always encode.
		return json.RawMessage(`{"statusCode":500}`)
	}
	return text
}

// marshal is json.Marshal that leaves & < > as they are, as package lambda does.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// encoded is what package lambda sends of a value: its JSON, or the stream that
// it is. Most readers have no fields, so that their JSON is {}.
func encoded(out any) (text json.RawMessage, stream io.Reader, err error) {
	text, err = marshal(out)
	if r, ok := out.(io.Reader); ok && (err != nil || bytes.HasPrefix(text, []byte("{}"))) {
		return nil, r, nil
	}
	return text, nil, err
}

// textOf is the JSON that a value has or, as a stream, holds: for answers that no
// service streams.
func textOf(out any) (json.RawMessage, error) {
	text, stream, err := encoded(out)
	if stream == nil {
		return text, err
	}
	if c, ok := stream.(io.Closer); ok {
		defer c.Close()
	}
	b, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	return marshal(json.RawMessage(b))
}

// response settles a call by its handler's answer to an HTTP event, and adds the
// limit fields.
func (c *call) response(out any) (any, error) {
	switch r := out.(type) {
	case answer.Response: // of a net/http handler
		if n := len(r.Header["Set-Cookie"]); n > 1 && c.event.shape == balancer {
			c.settle(http.StatusInternalServerError)
			return nil, fmt.Errorf("lambdalimit: the handler sets %d cookies, and a load balancer takes one of a function without multi-value headers: "+
				"switch them on for the target group (lambda.multi_value_headers.enabled=true)", n)
		}
		c.settleBy(r.Status, r.Header.Get)
		c.m.writer.Fields(r.Header, &c.outcome, nil)
		return encode(c.event.shape, r), nil
	case *events.LambdaFunctionURLStreamingResponse:
		if r != nil {
			r.Headers = c.streamed(r.StatusCode, r.Headers)
			return r, nil
		}
	case *events.APIGatewayProxyStreamingResponse:
		if r != nil {
			r.Headers = c.streamed(r.StatusCode, r.Headers)
			return r, nil
		}
	}
	text, stream, err := encoded(out)
	switch {
	case err != nil:
		c.settle(http.StatusInternalServerError)
		return nil, err
	case stream != nil: // whether it holds an answer or is a body, only the service knows
		c.settle(http.StatusOK)
		return stream, nil
	}
	fields, status := c.proxyAnswer(text)
	c.settleBy(status, costOf(fields))
	switch {
	case len(c.outcome.Verdicts) == 0, fields == nil && status == http.StatusBadGateway:
		return text, nil
	case fields == nil:
		return c.whole(text)
	}
	return c.withFields(text, fields)
}

// proxyAnswer takes an answer apart as the service does. The fields are nil when
// it is none of the service's form, and the status is what the service makes of
// it.
func (c *call) proxyAnswer(text json.RawMessage) (fields map[string]json.RawMessage, status int) {
	if json.Unmarshal(text, &fields) == nil && fields["statusCode"] != nil {
		if n, err := strconv.Atoi(strings.Trim(string(fields["statusCode"]), `"`)); err == nil && n >= 100 && n <= 999 {
			return fields, n
		}
		return nil, http.StatusBadGateway
	}
	if c.event.shape == httpV2 {
		return nil, http.StatusOK // payload 2.0 takes anything else for the body
	}
	return nil, http.StatusBadGateway
}

// costOf finds a number in the header of a proxy answer, as far as it is one.
func costOf(fields map[string]json.RawMessage) func(name string) string {
	return func(name string) string {
		var single map[string]json.RawMessage
		var multi map[string][]json.RawMessage
		_ = json.Unmarshal(orEmpty(fields["headers"]), &single)
		_ = json.Unmarshal(orEmpty(fields["multiValueHeaders"]), &multi)
		for have, value := range single {
			if http.CanonicalHeaderKey(have) == name {
				return strings.Trim(string(value), `"`) // 7 and "7" are written alike
			}
		}
		for have, values := range multi {
			if http.CanonicalHeaderKey(have) == name && len(values) == 1 {
				return strings.Trim(string(values[0]), `"`)
			}
		}
		return ""
	}
}

// whole is the answer that payload 2.0 makes of a body, with room for fields.
func (c *call) whole(text json.RawMessage) (any, error) {
	body := string(text)
	if text[0] == '"' {
		if err := json.Unmarshal(text, &body); err != nil {
			return nil, err
		}
	}
	r := answer.Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	c.m.writer.Fields(r.Header, &c.outcome, nil)
	return encode(c.event.shape, r), nil
}

// withFields adds the limit fields to a proxy answer, and changes nothing else.
func (c *call) withFields(out json.RawMessage, fields map[string]json.RawMessage) (any, error) {
	single, multi := map[string]any{}, map[string][]any{}
	if json.Unmarshal(orEmpty(fields["headers"]), &single) != nil || json.Unmarshal(orEmpty(fields["multiValueHeaders"]), &multi) != nil {
		return out, nil // malformed: the service says so
	}
	own := map[string][]string{}
	for name, value := range single {
		own[http.CanonicalHeaderKey(name)] = []string{fmt.Sprint(value)}
	}
	for name, values := range multi {
		for _, value := range values {
			key := http.CanonicalHeaderKey(name)
			own[key] = append(own[key], fmt.Sprint(value))
		}
	}
	all := make(map[string][]string, len(own)+4)
	for name, values := range own {
		all[name] = values
	}
	c.m.writer.Fields(all, &c.outcome, nil)
	replaced := func(name string) bool {
		key := http.CanonicalHeaderKey(name)
		return !slices.Equal(all[key], own[key])
	}
	for name := range single {
		if replaced(name) {
			delete(single, name)
		}
	}
	for name := range multi {
		if replaced(name) {
			delete(multi, name)
		}
	}
	for name, values := range all {
		switch {
		case !replaced(name):
		case c.event.shape == balancerMulti:
			list := make([]any, len(values))
			for i, v := range values {
				list[i] = v
			}
			multi[strings.ToLower(name)] = list
		default:
			single[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	if err := put(fields, "headers", single); err != nil {
		return nil, err
	}
	if err := put(fields, "multiValueHeaders", multi); err != nil {
		return nil, err
	}
	text, err := marshal(fields)
	if err != nil {
		return nil, err
	}
	return text, nil
}

// put replaces a member by a map, unless both are empty.
func put[V any](fields map[string]json.RawMessage, name string, m map[string]V) error {
	if len(m) == 0 && len(orEmpty(fields[name])) <= len("{}") {
		return nil
	}
	raw, err := marshal(m)
	fields[name] = raw
	return err
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	return raw
}

// streamed settles a streaming answer when its header is known: a stream that
// breaks later stays counted.
func (c *call) streamed(status int, headers map[string]string) map[string]string {
	if status == 0 {
		status = http.StatusOK
	}
	all := header(headers, nil)
	c.settleBy(status, http.Header(all).Get)
	c.m.writer.Fields(all, &c.outcome, nil)
	merged := make(map[string]string, len(all))
	for name, values := range all {
		merged[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return merged
}
