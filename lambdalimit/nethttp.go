package lambdalimit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
)

// WrapHTTP is [Wrap] for a net/http handler, which then serves REST and HTTP
// APIs, function URLs and load balancers without knowing. The request's
// RemoteAddr is the address that the service reports, with port 0; its path is
// without the stage; the answer is sent when the handler returns. A panic of
// http.ErrAbortHandler fails the invocation as any other does. Behind a load
// balancer an answer with several cookies needs a target group with multi-value
// headers, and fails the invocation without: no list of cookies is a cookie.
func WrapHTTP(h http.Handler, e *engine.Engine, o Options) Func {
	o.PassUnknown = false // a request cannot be made of another event
	m := newMiddleware(e, o)
	return func(ctx context.Context, payload json.RawMessage) (any, error) {
		return m.serve(ctx, payload, func(ctx context.Context, _ []byte) (any, error) {
			c := callOf(ctx)
			if !c.event.shape.isHTTP() {
				return nil, &UnknownEvent{"a net/http handler serves HTTP events only"}
			}
			r, err := c.request(ctx)
			if err != nil {
				return answer.Response{Status: http.StatusBadRequest, Header: http.Header{}}, nil
			}
			w := &recorder{header: http.Header{}}
			h.ServeHTTP(w, r)
			return w.response(), nil
		})
	}
}

// request is the event as net/http's server would have read it.
func (c *call) request(ctx context.Context) (*http.Request, error) {
	a := &c.attributes
	target := a.Path
	if a.RawQuery != "" {
		target += "?" + a.RawQuery
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	text, _ := c.event.Body.(string)
	body := []byte(text)
	if c.event.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, err
		}
	}
	h := make(http.Header, len(a.Header))
	for name, values := range a.Header {
		if name != "Host" {
			h[name] = values
		}
	}
	r := &http.Request{
		Method: a.Method, URL: u, RequestURI: target, Host: a.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if a.Peer.IsValid() {
		r.RemoteAddr = netip.AddrPortFrom(a.Peer, 0).String()
	}
	return r.WithContext(ctx), nil
}

// recorder keeps an answer until it is whole, since Lambda sends it so.
type recorder struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status != 0 || status < 200 { // informational answers have no way through Lambda
		return
	}
	w.status, w.sent = status, w.header.Clone()
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

func (w *recorder) response() answer.Response {
	w.WriteHeader(http.StatusOK)
	if len(w.sent["Content-Type"]) == 0 && w.body.Len() > 0 {
		w.sent.Set("Content-Type", http.DetectContentType(w.body.Bytes()))
	}
	return answer.Response{Status: w.status, Header: w.sent, Body: w.body.Bytes()}
}
