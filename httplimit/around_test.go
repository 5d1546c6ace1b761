package httplimit_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// What stands around the middleware finds a request as without it.

// Behind a StripPrefix a limit names the path that the handler is given.
func TestLimitsSeeThePathThatIsLeft(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: orders, match: GET /orders, by: ip, limit: quota 2/h}
`
	for _, prefix := range []string{"/api", "/api/"} { // of the second no slash is left
		h := http.StripPrefix(prefix, newGate(t, text, status(http.StatusOK)))
		for i, want := range []int{200, 200, 429} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/api/orders?page=1", nil))
			if w.Code != want {
				t.Errorf("%s, call %d: %d, want %d", prefix, i+1, w.Code, want)
			}
		}
	}
}

// ways are policies of each way that a request takes through the middleware: with
// limits that show themselves, with some that are settled, and with none.
func ways() []string {
	return []string{one("5/s"), counted, strings.ReplaceAll(one("5/s"), "match: /,", "match: /limited,")}
}

// What a ServeMux and a handler behind the middleware find out of a request is seen
// in front of it as without it, also after a panic.
func TestARequestIsHandedBack(t *testing.T) {
	inner := http.NewServeMux()
	inner.HandleFunc("POST /seats/{id}", func(_ http.ResponseWriter, r *http.Request) { r.FormValue("a"); r.SetPathValue("own", "x") })
	inner.HandleFunc("POST /reads", func(_ http.ResponseWriter, r *http.Request) { r.ParseForm() })
	inner.HandleFunc("GET /panics/{id}", func(http.ResponseWriter, *http.Request) { panic("a bug") })
	type key struct{}
	look := func(h http.Handler, method, target string) (seen string) {
		outer := http.NewServeMux()
		outer.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(context.WithValue(r.Context(), key{}, "outer"))
			ctx := r.Context()
			defer func() {
				v := recover()
				seen = fmt.Sprintf("%v %q %q %q %v %v %v %v", v, r.Pattern, r.PathValue("id"), r.PathValue("own"), r.Form, r.PostForm, r.MultipartForm, r.Context() == ctx)
			}()
			h.ServeHTTP(w, r)
		})
		r := httptest.NewRequest(method, target, strings.NewReader("a=1"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Test-Sub", "a")
		outer.ServeHTTP(httptest.NewRecorder(), r)
		return seen
	}
	for _, c := range [][2]string{
		{"POST", "/seats/7"}, {"POST", "/seats/7?b=2"}, {"POST", "/reads?b=2"}, {"GET", "/panics/7"},
		{"GET", "/nothing"}, {"GET", "/seats/7"},
	} {
		want := look(inner, c[0], c[1])
		for i, text := range ways() {
			if got := look(newGate(t, text, inner), c[0], c[1]); got != want {
				t.Errorf("%s, policy %d: %s, without the middleware %s", c, i, got, want)
			}
		}
	}
}

// Of a form of which what stands in front has made one half, the handler's is handed back.
func TestTheOtherHalfOfAFormIsHandedBack(t *testing.T) {
	made := url.Values{"a": {"1"}}
	for i, text := range ways() {
		for _, begun := range [][2]url.Values{{made, nil}, {nil, made}} {
			g := newGate(t, text, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.ParseForm() }))
			r := httptest.NewRequest("POST", "/", nil)
			r.Form, r.PostForm = begun[0], begun[1]
			g.ServeHTTP(httptest.NewRecorder(), r)
			if r.Form == nil || r.PostForm == nil {
				t.Errorf("policy %d: %v became %v and %v", i, begun, r.Form, r.PostForm)
			}
		}
	}
}

// The server removes the files of an uploaded form once the request is over. It
// must find them although the handler had a request of its own, and also when it
// panicked and something around the middleware went on.
func TestFilesOfAFormAreRemoved(t *testing.T) {
	for i, text := range ways() {
		for _, panics := range []bool{false, true} {
			var file string
			g := newGate(t, text, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(0); err != nil {
					t.Error(err)
					return
				}
				f, err := r.MultipartForm.File["f"][0].Open()
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				if on, ok := f.(*os.File); ok {
					file = on.Name()
				}
				if panics {
					panic("a bug")
				}
			}))
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if v := recover(); v != nil {
						w.WriteHeader(http.StatusInternalServerError)
					}
				}()
				g.ServeHTTP(w, r)
			}))
			var b bytes.Buffer
			form := multipart.NewWriter(&b)
			part, err := form.CreateFormFile("f", "seats.csv")
			if err != nil {
				t.Fatal(err)
			}
			part.Write([]byte("a,b\n"))
			form.Close()
			r, _ := http.NewRequest("POST", srv.URL, &b)
			r.Header.Set("Content-Type", form.FormDataContentType())
			r.Header.Set("Test-Sub", "a")
			res, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if failed := res.StatusCode == http.StatusInternalServerError; failed != panics {
				t.Errorf("policy %d: status %d", i, res.StatusCode)
			}
			srv.Close() // waits for the request's end
			if _, err := os.Stat(file); file == "" || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("policy %d, panics %v: the file %q is still there: %v", i, panics, file, err)
			}
		}
	}
}

// The fields after a body in chunks reach the handler, whether they were announced or not.
func TestTrailersOfARequestArrive(t *testing.T) {
	for i, text := range ways() {
		for _, announced := range []string{"", "Trailer: Sum\r\n"} {
			g := newGate(t, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %v %s", b, err, r.Trailer.Get("Sum"))
			}))
			srv := httptest.NewServer(g)
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nTest-Sub: a\r\n"+announced+"Transfer-Encoding: chunked\r\n\r\n5\r\nseats\r\n0\r\nSum: 7\r\n\r\n")
			all, err := io.ReadAll(conn)
			if err != nil || !strings.Contains(string(all), "seats <nil> 7") {
				t.Errorf("policy %d: %q, %v", i, all, err)
			}
			conn.Close()
			srv.Close()
		}
	}
}

// Who prints a context, as loggers do with whatever they are given, does not print what
// it holds: the header of a request has credentials.
func TestAPrintedContextShowsNoRequest(t *testing.T) {
	for i, text := range ways() {
		var seen []string
		g := newGate(t, text, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			derived, cancel := context.WithCancel(r.Context())
			defer cancel()
			seen = []string{fmt.Sprintf("%v", r.Context()), fmt.Sprintf("%+v", r.Context()), fmt.Sprint(derived)}
		}))
		g.send("GET", "/", "Test-Sub", "a", "Authorization", "Bearer a-secret")
		if got := strings.Join(seen, " "); got != "httplimit.call httplimit.call httplimit.call.WithCancel" {
			t.Errorf("policy %d: %.300s", i, got)
		}
	}
}

// The server asks its own body how much of it is left. Given one that a handler has put
// in its place, it would wait for a client that waits to be told to go on.
func TestTheServerKeepsItsBody(t *testing.T) {
	inner := http.NewServeMux()
	inner.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 10)
		w.WriteHeader(http.StatusExpectationFailed)
	})
	for i, text := range ways() {
		srv := httptest.NewServer(newGate(t, text, inner))
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop\r\nTest-Sub: a\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusExpectationFailed {
			t.Errorf("policy %d: %v, %v", i, res, err)
		}
		conn.Close()
		srv.Close()
	}
}
