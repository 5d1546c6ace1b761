package httplimit_test

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

func TestCase_B223_ARefusedGRPCCallIsToldSoInGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("1/h"), status(200))
		g.send("POST", "/shop.Seats/Book", "Test-Sub", "a", "Content-Type", "application/grpc+proto")
		r := g.send("POST", "/shop.Seats/Book", "Test-Sub", "a", "Content-Type", "application/grpc+proto")
		if r.StatusCode != 200 {
			t.Errorf("HTTP status %d", r.StatusCode)
		}
		want(t, r, "Grpc-Status", "8", "Content-Type", "application/grpc", "Retry-After", "3600", "Grpc-Retry-Pushback-Ms", "3600000",
			"Grpc-Message", "Your plan allows 1 thing per hour. Try again in 3600 seconds.")
		if b := body(t, r); b != "" {
			t.Errorf("body %q: trailers only means none", b)
		}
		checkDetails(t, r.Header.Get("Grpc-Status-Details-Bin"))
		g = newGate(t, one("1/h", ", on_store_error: deny"), status(200), onBrokenStore)
		want(t, g.send("POST", "/shop.Seats/Book", "Test-Sub", "a", "Content-Type", "application/grpc"), "Grpc-Status", "14")
		// gRPC-Web reads the HTTP status.
		if r := g.send("POST", "/shop.Seats/Book", "Test-Sub", "a", "Content-Type", "application/grpc-web+proto"); r.StatusCode != 503 {
			t.Errorf("gRPC-Web: %d", r.StatusCode)
		}
	})
}

// checkDetails reads a google.rpc.Status field by field, with nothing of the
// writer's: RetryInfo says when, QuotaFailure says which limit.
func checkDetails(t *testing.T, encoded string) {
	t.Helper()
	raw, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	status := fields(t, raw)
	if code := status[1][0]; string(code) != "8" {
		t.Errorf("code %s", code)
	}
	if len(status[3]) != 2 {
		t.Fatalf("%d details, want 2", len(status[3]))
	}
	retry, quota := fields(t, status[3][0]), fields(t, status[3][1])
	if string(retry[1][0]) != "type.googleapis.com/google.rpc.RetryInfo" || string(quota[1][0]) != "type.googleapis.com/google.rpc.QuotaFailure" {
		t.Errorf("types %s and %s", retry[1][0], quota[1][0])
	}
	if seconds := fields(t, fields(t, retry[2][0])[1][0])[1][0]; string(seconds) != "3600" {
		t.Errorf("retry delay of %s seconds", seconds)
	}
	if subject := fields(t, fields(t, quota[2][0])[1][0])[1][0]; string(subject) != "things" {
		t.Errorf("subject %s", subject)
	}
}

// fields splits a protocol buffer; integers become their decimal digits.
func fields(t *testing.T, b []byte) map[uint64][][]byte {
	t.Helper()
	out := map[uint64][][]byte{}
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatalf("broken message %x", b)
		}
		b = b[n:]
		return v
	}
	for len(b) > 0 {
		tag := next()
		v := next()
		switch tag & 7 {
		case 0:
			out[tag>>3] = append(out[tag>>3], strconv.AppendUint(nil, v, 10))
		case 2:
			out[tag>>3] = append(out[tag>>3], b[:v])
			b = b[v:]
		default:
			t.Fatalf("wire type %d", tag&7)
		}
	}
	return out
}

// A gRPC client over real HTTP/2 sees one header block that ends the stream.
func TestTrailersOnlyOverHTTP2(t *testing.T) {
	g := newGate(t, strings.Replace(counted, "quota 10/h", "quota 1/h", 1), status(200))
	s := httptest.NewUnstartedServer(g)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	var res *http.Response
	for range 2 {
		r, _ := http.NewRequest("POST", s.URL+"/shop.Seats/Book", strings.NewReader("\x00\x00\x00\x00\x00"))
		r.Header.Set("Test-Sub", "a")
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
		var err error
		if res, err = s.Client().Do(r); err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	b, err := io.ReadAll(res.Body)
	if err != nil || len(b) != 0 || res.ProtoMajor != 2 {
		t.Errorf("body %q, %v, %s", b, err, res.Proto)
	}
	want(t, res, "Grpc-Status", "8", "Content-Type", "application/grpc")
	if len(res.Trailer) != 0 {
		t.Errorf("trailers %v: trailers-only has none apart", res.Trailer)
	}
}

// While the store does not answer nobody knows whether a quota was exceeded, and
// no answer says that one was: neither problem+json nor the details of gRPC.
func TestAnOutageViolatesNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("quota 1/day", ", on_store_error: deny"), status(200), onBrokenStore)
		r := g.send("GET", "/", "Test-Sub", "a", "Accept", "application/problem+json")
		const problem = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,`
		if got := masked(t, r); r.StatusCode != 503 || !strings.HasPrefix(got, problem) || strings.Contains(got, "violated-policies") || !strings.Contains(got, `"limit":"things"`) {
			t.Errorf("%d %s", r.StatusCode, got)
		}
		r = g.send("POST", "/shop.Seats/Book", "Test-Sub", "a", "Content-Type", "application/grpc")
		raw, err := base64.RawStdEncoding.DecodeString(r.Header.Get("Grpc-Status-Details-Bin"))
		if err != nil {
			t.Fatal(err)
		}
		details := fields(t, raw)[3]
		if len(details) != 1 || string(fields(t, details[0])[1][0]) != "type.googleapis.com/google.rpc.RetryInfo" {
			t.Errorf("details %q", details)
		}
	})
}
