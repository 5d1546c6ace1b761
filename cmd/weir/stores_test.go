package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"

	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/redistest"
)

func TestPatiently(t *testing.T) {
	refusedConn := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name  string
		try   func(n int) error
		took  time.Duration
		tries int
		code  int
	}{
		{"ready", func(int) error { return nil }, 0, 1, 0},
		{"ready at the third attempt", func(n int) error {
			if n < 3 {
				return refusedConn
			}
			return nil
		}, 400 * time.Millisecond, 3, 0},
		{"never", func(int) error { return refusedConn }, slowStart, 25, 3},
		{"a missing table", func(int) error { return &types.ResourceNotFoundException{} }, 0, 1, 3},
		{"a table that cannot do", func(int) error { return errors.New("its key is id") }, 0, 1, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, n := time.Now(), 0
			err := patiently(t.Context(), storeURL{text: "dynamodb:t"}, func(context.Context) error {
				n++
				return c.try(n)
			})
			if got := exitCode(t.Context(), err); got != c.code {
				t.Errorf("%s: exit %d (%v), want %d", c.name, got, err, c.code)
			}
			if took := time.Since(began); took != c.took || n < c.tries || n > c.tries+1 {
				t.Errorf("%s: %d attempts in %s, want %d in %s", c.name, n, took, c.tries, c.took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // the time is over in the middle of a try
		n := 0
		err := patiently(t.Context(), storeURL{text: "redis://127.0.0.1:1"}, func(ctx context.Context) error {
			if n++; n < 3 {
				return refusedConn
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, refusedConn) || n != 3 {
			t.Errorf("after %d tries: %v, want the error of the one before the last", n, err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	err := patiently(ctx, storeURL{}, func(context.Context) error { cancel(); return refusedConn })
	if got := exitCode(ctx, err); got != 130 {
		t.Errorf("interrupted while waiting: exit %d, want 130", got)
	}
}

// A server that hangs up on its first connections, as one that starts does.
func TestStoreThatIsSlowAtStart(t *testing.T) {
	db := dynalite.Start(t, dynalite.Options{})
	target, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowListener{Listener: l}
	slow.hangups.Store(10)
	srv := &http.Server{Handler: httputil.NewSingleHostReverseProxy(target)}
	go srv.Serve(slow)
	t.Cleanup(func() { srv.Close() })
	s, err := openStore(t.Context(), "dynamodb:late?create=true&region=us-east-1&endpoint=http://"+l.Addr().String(), storeOptions{})
	if err != nil {
		t.Fatalf("the store was not waited for: %v", err)
	}
	s.Close()
	if slow.hangups.Load() > 0 {
		t.Error("the server never hung up: the test shows nothing")
	}
}

type slowListener struct {
	net.Listener
	hangups atomic.Int64
}

func (l *slowListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.hangups.Add(-1) < 0 {
			return c, err
		}
		c.Close()
	}
}

func TestParseStore(t *testing.T) {
	u, err := parseStore("dynamodb:little-stage?region=eu-central-1&endpoint=http://127.0.0.1:8000&create=true&max_ttl=24h&prefix=p.")
	if err != nil || u.scheme != "dynamodb" || u.name != "little-stage" || !u.create || u.maxTTL != 24*time.Hour ||
		u.params.Get("endpoint") != "http://127.0.0.1:8000" || u.params.Get("region") != "eu-central-1" || u.params.Get("prefix") != "p." {
		t.Errorf("%+v, %v", u, err)
	}
	for _, bad := range []string{"", "memory", ":", "postgres://h/db", "memory:?x=1", "memory:?max_ttl=0", "memory:?max_ttl=-1h", "dynamodb:?region=r", "dynamodb:t?region=a&region=b", "dynamodb:t?%zz", "bolt:", "bolt:?sync=always", "bolt:f?sync=never", "bolt:f?x=1", "bolt:///var/weir.db", "redis:", "redis:h", "redis://", "rediss://:6379"} {
		_, err := parseStore(bad)
		var hint errHint
		if exitCode(t.Context(), err) != 2 || !errors.As(err, &hint) || !strings.HasPrefix(hint.try, "--store ") {
			t.Errorf("%q: %v, want a usage error with a store to try", bad, err)
		}
	}
}

func TestParseStoreShowsNoPassword(t *testing.T) {
	for text, want := range map[string]string{
		"redis://u:hush@h:6380/3?prefix=p": "redis://h:6380/3", "rediss+cluster://:hush@h": "rediss+cluster://h",
		"bolt:/var/lib/weir.db?sync=always": "bolt:/var/lib/weir.db", "dynamodb:t?region=r": "dynamodb:t", "memory:?max_ttl=1h": "memory:",
	} {
		u, err := parseStore(text)
		if err != nil || u.String() != want || strings.Contains(u.flag(), "hush") {
			t.Errorf("%s: %s, %s, %v; want %s", text, u.String(), u.flag(), err, want)
		}
	}
}

// Redis in every form that a URL can name, for a server that comes up while it
// is waited for.
func TestOpenRedis(t *testing.T) {
	single := redistest.Start(t, redistest.Options{Config: []string{"requirepass hush", "maxmemory-policy allkeys-lru"}})
	tls := redistest.Start(t, redistest.Options{TLS: true})
	cluster := redistest.StartCluster(t, redistest.Options{})
	single.Kill()
	opening := make(chan error, 1)
	var warnings []string
	go func() {
		s, err := openStore(context.Background(), "redis://:hush@"+single.Addr+"?max_ttl=1h", storeOptions{})
		if err == nil {
			warnings = s.warnings
			if s.Caps().MaxKeep != time.Hour {
				err = fmt.Errorf("items are kept for %s, want 1h", s.Caps().MaxKeep)
			}
			err = errors.Join(err, s.Close())
		}
		opening <- err
	}()
	single.Restart(t)
	if err := <-opening; err != nil {
		t.Errorf("a server that starts was not waited for: %v", err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "allkeys-lru") {
		t.Errorf("warnings %q, want one of the eviction policy", warnings)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"store", "check", "--store", "redis://:hush@" + single.Addr}, &out, &errs); code != 1 || !strings.HasPrefix(out.String(), "warning: redis ") {
		t.Errorf("store check of a server that forgets: exit %d, %s%s", code, &out, &errs)
	}
	for _, text := range []string{
		"rediss://" + tls.Addr + "?prefix=p.&ca=" + tls.CA,
		"redis+cluster://" + cluster.Nodes[0].Addr + "?addr=" + cluster.Nodes[2].Addr,
	} {
		s, err := openStore(t.Context(), text, storeOptions{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"redis://:wrong@" + single.Addr:    "password is wrong",
		"redis://" + single.Addr:           "wants a password",
		"rediss://" + tls.Addr:             "no TLS connection",
		"redis://" + cluster.Nodes[0].Addr: "use redis+cluster://",
	} {
		began := time.Now()
		_, err := openStore(t.Context(), text, storeOptions{})
		if exitCode(t.Context(), err) != 3 || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ":wrong@") {
			t.Errorf("%s: %v, want exit 3 and %q", text, err, want)
		}
		if took := time.Since(began); took >= slowStart {
			t.Errorf("%s: %s, although waiting changes nothing", text, took)
		}
	}
}

// The whole kind: check passes no store that the proxy refuses, and demo neither;
// and refuses none that is merely not there.
func TestCheckRefusesTheStoresThatNoProcessCanUse(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	up := newRecorder(t, nil)
	for store, ok := range map[string]bool{
		"foo:bar": false, "weir.db": false, "memory:?x=1": false, "memory:name": false, "memory:?max_ttl=1h": false, "memory:?max_ttl=soon": false,
		"bolt:": false, "bolt://weir.db": false, "bolt:weir.db?sync=never": false, "bolt:weir.db?max_ttl=1h": false,
		"redis://": false, "redis://127.0.0.1:1?x=1": false, "redis://127.0.0.1:1?max_ttl=1h": false, "redis://u:secret@127.0.0.1:1?max_ttl=1h": false,
		"dynamodb:": false, "dynamodb:t?x=1": false, "dynamodb:t?max_ttl=1h": false, "dynamodb:not a table": false, "dynamodb:t?create=perhaps": false,
		"memory:": true, "memory:?max_ttl=24h": true, "bolt:none/weir.db": true, "redis://127.0.0.1:1": true, "dynamodb:no-such-table?region=us-east-1": true,
		"rediss://127.0.0.1:1?ca=none.pem": true,
	} {
		file := writeFile(t, filepath.Join(dir, "weir.yaml"), fmt.Sprintf("weir: 1\nstore: %q\napplication:\n  limits:\n    - {name: all, match: GET /, by: ip, limit: quota 5/day}\n", store))
		for _, command := range []string{"check " + file, "proxy -q --listen 127.0.0.1:0 --to " + up.URL + " -c " + file, "demo --once -q -c " + file} {
			if ok && !strings.HasPrefix(command, "check") {
				continue
			}
			var out, errs bytes.Buffer
			code := run(t.Context(), strings.Fields(command), &out, &errs)
			said := out.String() + errs.String()
			if refused := code == 1 || code == 2; refused == ok || code == 0 && !ok {
				t.Errorf("store: %s, weir %s: exit %d\n%s", store, command, code, said)
			}
			if !ok && !strings.Contains(said, file+":2:8: error: ") {
				t.Errorf("store: %s, weir %s has no place:\n%s", store, command, said)
			}
			if strings.Contains(said, "secret") {
				t.Errorf("store: %s, weir %s shows the password:\n%s", store, command, said)
			}
		}
	}
}

// Nothing reaches stderr past the log.
func TestTheSDKLogsWhereWeirDoes(t *testing.T) {
	var out bytes.Buffer
	l := sdkLogger(slog.New(slog.NewJSONHandler(&out, nil)))
	l.Logf(logging.Warn, "retries of %s are over\n", "GetItem")
	l.Logf(logging.Debug, "request %d", 1)
	var line struct{ Level, Msg string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "WARN" || line.Msg != "AWS SDK: retries of GetItem are over" {
		t.Errorf("%s, %v", out.String(), err)
	}
	if sdkLogger(nil) != (logging.Nop{}) {
		t.Error("without a log the SDK writes on its own")
	}
}
