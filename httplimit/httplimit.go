// Package httplimit puts a policy in front of any net/http handler.
//
//	e, err := engine.New(engine.Options{Policy: p, Store: memstore.New(memstore.Options{})})
//	...
//	http.ListenAndServe(addr, httplimit.New(e).Handler(mux))
//
// A request that a limit refuses never reaches the handler: it is answered with
// 429, Retry-After and a body for people and machines. A request that is served
// carries the limit fields in its response, and its handler finds the decision
// with [weir.FromContext]. Limits that count only success are settled when the
// response header is written, before it goes out.
//
// Limits go by the path as the client sent it, escapes and all, unless something in
// front has rewritten the request's URL, as [http.StripPrefix] does: then they go by
// what the handler sees. Method, host and query are those of the request as it arrives.
//
// The caller's address is that of the socket unless the policy trusts a proxy.
// What stands in front of this middleware must not rewrite RemoteAddr from
// fields that a client can send.
package httplimit

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/policy"
)

// Middleware enforces an engine's policy. It is safe for concurrent use.
type Middleware struct {
	engine      *engine.Engine
	writer      answer.Writer
	decisionKey any // by which weir.FromContext asks a context
	peers       peers
}

// New returns the middleware of an engine.
func New(e *engine.Engine) *Middleware {
	asked := keyOf{Context: context.Background()}
	weir.FromContext(&asked)
	return &Middleware{engine: e, decisionKey: asked.key}
}

// keyOf is a context that remembers what it was asked for.
type keyOf struct {
	context.Context
	key any
}

func (k *keyOf) Value(key any) any {
	k.key = key
	return nil
}

// Handler returns a handler that asks the policy first and then next.
//
// The ResponseWriter that next is given can do what the server's own can, on HTTP/1
// and on HTTP/2: it is a Flusher, Hijacker, Pusher and io.ReaderFrom as that is. Of a
// writer from in front with another mix of these some may be missing, and
// http.ResponseController finds the rest. Behind the middleware http.MaxBytesReader
// cannot tell the server to close the connection when a body is too long: for that
// put http.MaxBytesHandler in front.
//
// What next finds out of the request, the pattern of a ServeMux and forms, is in it
// for what stands in front too, also after a panic. A body that next has put into it
// is not, and what else next changes is only together with one of those.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := m.attributes(r)
		c := &call{Context: r.Context(), m: m, w: w}
		m.engine.Decide(r.Context(), &a, &c.outcome)
		if !c.outcome.Served() {
			m.refuse(w, &c.outcome, &a)
			return
		}
		defer c.handBack(r)
		switch {
		case len(c.outcome.Verdicts) == 0:
			next.ServeHTTP(w, c.carried(c, r)) // nothing to show and nothing to settle
		case c.outcome.MustSettle():
			c.serve(next, r)
		default:
			next.ServeHTTP(c.writer(), c.carried(c, r))
			c.finish()
		}
	})
}

// serve runs the handler of a call that is judged by how it ends. A panic is a
// failure, and goes on; only [http.ErrAbortHandler], by which a proxy says that
// the client has left, is none: nobody knows what the service did.
func (c *call) serve(next http.Handler, r *http.Request) {
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler && !c.committed {
			_ = c.outcome.Settle(c.Context, http.StatusInternalServerError) // an error is logged by the engine
		}
		c.outcome.Release()
		if v != nil {
			panic(v)
		}
	}()
	next.ServeHTTP(c.writer(), c.carried(c.settling(), r))
	c.finish()
}

// Usage returns a handler that answers a caller what it has used of each limit,
// as JSON. Put it where the policy does not count it.
func (m *Middleware) Usage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o engine.Outcome
		a := m.attributes(r)
		body := m.engine.Usage(r.Context(), &a, &o)
		if !o.Served() {
			m.refuse(w, &o, &a)
			return
		}
		m.writer.Fields(w.Header(), &o, nil)
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Cache-Control"] = []string{"no-store"}
		w.Write(body) // an error means that the client left
	})
}

// DecisionField is the value of the Weir-Decision request field by which a
// proxy tells the service what was decided: `allowed;limit="reservations";r=9`,
// `exempt` or `degraded`. It is "" when ctx is not that of a request behind
// this middleware.
func (m *Middleware) DecisionField(ctx context.Context) string {
	if o := Outcome(ctx); o != nil {
		return m.writer.Decision(o)
	}
	return ""
}

// Outcome is what was decided on the request with this context, or nil without
// a Middleware in front. It is to be read only; to return what the request took
// use [engine.Outcome.GiveBack] before an answer is written.
func Outcome(ctx context.Context) *engine.Outcome {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return &c.outcome
	}
	return nil
}

// call is all that one request needs, in one allocation. It also is the context
// of the request as next sees it, so that carrying the decision costs nothing
// until a handler asks for it.
type call struct {
	context.Context // the request's own
	m               *Middleware
	w               http.ResponseWriter
	outcome         engine.Outcome
	values          [2]string    // of header fields: those of the default style
	committed       bool         // the response header is written, or as good as
	late            int32        // the status of an answer whose real status or cost is still to come, as a trailer
	request         http.Request // as next sees it
}

// carried is the request with a context. The copy lies in the call, so that it needs
// no memory of its own.
func (c *call) carried(ctx context.Context, r *http.Request) *http.Request {
	if r.Trailer == nil && r.TransferEncoding != nil {
		r.Trailer = make(http.Header) // shared, since the server writes fields that were not announced to r alone
	}
	c.request = *r.WithContext(ctx)
	return &c.request
}

// handBack gives what is around the middleware the request as it would be without: the
// server removes the files of its form, and who logs or measures reads what a ServeMux
// and the handler have found out. Where they have found nothing r is not written to, as
// goroutines of others may be reading it.
func (c *call) handBack(r *http.Request) {
	q := &c.request
	if q.Pattern != r.Pattern || q.MultipartForm != r.MultipartForm || (q.Form == nil) != (r.Form == nil) || (q.PostForm == nil) != (r.PostForm == nil) {
		body := r.Body                 // the server's own, of which it asks what is left
		*r = *q.WithContext(c.Context) // whole, for the values of the pattern's wildcards
		r.Body = body
	}
}

type callKey struct{}

// Value finds the call itself, the decision, and what the request's own context
// holds.
func (c *call) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case c.m.decisionKey:
		if d, ok := c.outcome.Decision(); ok {
			return d
		}
	}
	return c.Context.Value(key)
}

// String names the context without what it holds, as fmt would show it.
func (c *call) String() string { return "httplimit.call" }

// settling is the context of a call whose outcome changes while the handler runs,
// and may be asked by goroutines that it has left behind: the decision is the one
// under which it began.
type settling struct {
	*call
	began weir.Decision
	known bool
}

func (c *call) settling() *settling {
	s := &settling{call: c}
	s.began, s.known = c.outcome.Decision()
	return s
}

func (s *settling) Value(key any) any {
	switch {
	case key != s.m.decisionKey:
		return s.call.Value(key)
	case s.known:
		return s.began
	}
	return s.Context.Value(key)
}

// attributes turns a request into what a policy sees of it.
func (m *Middleware) attributes(r *http.Request) policy.Attributes {
	return policy.Attributes{
		Method:   r.Method,
		Host:     r.Host,
		Path:     path(r),
		RawQuery: r.URL.RawQuery,
		Header:   r.Header,
		Peer:     m.peers.of(r.RemoteAddr),
	}
}

// path is the request's path as it came, escapes and all. Where something in front has
// rewritten the URL, as http.StripPrefix does, it is what the handler sees.
func path(r *http.Request) string {
	u := r.URL
	if strings.HasPrefix(r.RequestURI, "/") {
		came := r.RequestURI
		if i := strings.IndexByte(came, '?'); i >= 0 {
			came = came[:i]
		}
		if u.RawPath == "" && came == u.Path {
			return came
		}
		// Spelled as no URL is written by Go: EscapedPath would spell it otherwise.
		if u.RawPath == came {
			if p, err := url.PathUnescape(came); err == nil && p == u.Path {
				return came
			}
		}
	}
	if u.Opaque != "" {
		return u.Opaque // of "x:http://host/path", which a proxy would send as "http://host/path": no path that a policy reads
	}
	p := u.EscapedPath()
	if p != "" && p != "*" && p[0] != '/' {
		p = "/" + p // as handlers read what a StripPrefix of "/api/" leaves
	}
	return p
}

// refuse sends an answer of weir's own.
func (m *Middleware) refuse(w http.ResponseWriter, o *engine.Outcome, a *policy.Attributes) {
	r := m.writer.Refusal(w.Header(), o, a)
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		w.Write(r.Body) // an error means that the client left
	}
}
