package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/memstore"
)

// watched is a proxy whose watch is moved by hand.
type watched struct {
	*watch
	url string
	log *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func watching(t *testing.T, file string) *watched {
	t.Helper()
	up := newRecorder(t, nil)
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	src := &sources{path: file}
	p, err := src.load()
	if err != nil {
		t.Fatal(err)
	}
	log := &lockedBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	s, err := newServer(t.Context(), serverOptions{
		load: src.load, files: src.files, policy: p, store: memstore.New(memstore.Options{}), auth: auth.Options{Log: logger},
		target: target, listen: "127.0.0.1:0", replicas: 1, log: logger, metrics: newMetrics(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &watched{newWatch(s), s.url(), log}
}

// rest looks as often as it takes to find that nothing moves any more.
func (w *watched) rest(t *testing.T) {
	t.Helper()
	for range 3 {
		w.look(t.Context())
	}
}

func (w *watched) limit() int64 { return w.server.engine.Policy().Rules()[0].Limit.Max() }

func (w *watched) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := w.server.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			full := f.GetName()
			for _, l := range m.GetLabel() {
				full += "{" + l.GetName() + "=" + l.GetValue() + "}"
			}
			if full == name {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// The first half is a policy, too: one without any limit.
func twoHalves(n int) (head, tail string) {
	head = "weir: 1\ncallers: {ip: client_ip}\ntrusted_proxies: [127.0.0.1/32]\n"
	tail = fmt.Sprintf("application:\n  limits:\n    - {name: all, match: GET /, by: ip, limit: quota %d/hour}\n", n)
	return head, tail
}

// R23: a hundred reloads while requests go on, by a writer that truncates the file
// first and writes it in two parts, each of which rests for a look. No request is
// without a policy, and none is forgotten.
func TestReloadsUnderLoad(t *testing.T) {
	const many, callers, reloads = 1_000_000, 3, 100
	file := filepath.Join(t.TempDir(), "weir.yaml")
	head, tail := twoHalves(many)
	writeFile(t, file, head+tail)
	w := watching(t, file)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers + 1}}
	defer client.CloseIdleConnections()
	var sent [callers + 1]atomic.Int64
	call := func(n int) error {
		r, err := http.NewRequest("GET", w.url+"/", nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
		sent[n].Add(1)
		res, err := client.Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("RateLimit-Policy"), `"all";q=`) {
			return fmt.Errorf("a request without a policy: %d %v", res.StatusCode, res.Header)
		}
		return nil
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := call(n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	step := func(f *os.File, text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		w.look(t.Context())
		if err := call(callers); err != nil {
			t.Error(err)
		}
	}
	for i := range reloads {
		before := w.limit()
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		head, tail := twoHalves(many + 1 + i)
		step(f, "")
		step(f, head)
		step(f, tail)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if now := w.limit(); now != before {
			t.Fatalf("reload %d: a file that was being written is in force: %d", i, now)
		}
		w.look(t.Context())
		if now := w.limit(); now != int64(many+1+i) {
			t.Fatalf("reload %d: %d is in force\n%s", i, now, w.log)
		}
	}
	close(done)
	wg.Wait()
	if n := w.metric(t, "weir_policy_reloads_total{result=done}"); n != reloads {
		t.Errorf("%v reloads, want %d", n, reloads)
	}
	for n := range sent {
		res, body := do(t, "GET", w.url+"/.weir/usage", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
		if want := fmt.Sprintf(`"used":%d,`, sent[n].Load()); res.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("caller %d sent %d: usage %d %s", n, sent[n].Load(), res.StatusCode, body)
		}
	}
}

// The whole kind: whatever is written over a good policy and rests, the good one
// stays in force, it is said once and with the line, and the metric shows it until
// a good one is there again.
func TestABadFileIsReportedOnceAndRaisesAMetric(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	head, tail := twoHalves(5)
	writeFile(t, file, head+tail)
	w := watching(t, file)
	failed := 0.0
	for name, c := range map[string]struct{ text, says string }{
		"empty":            {"", "weir.yaml"},
		"half a line":      {(head + tail)[:len(head+tail)-20], "weir.yaml:"},
		"an unknown key":   {head + "limts: 1\n" + tail, "weir.yaml:4:1"},
		"a bad limit":      {strings.Replace(head+tail, "quota 5", "quota 0", 1), "weir.yaml:6:"},
		"not YAML":         {"{{{", "weir.yaml:1:"},
		"a secret not set": {head + "auth: {jwt: {hs256_secret_env: NOT_SET_ANYWHERE}}\n" + tail, "NOT_SET_ANYWHERE is not set"},
		"a file not there": {head + "auth: {api_keys: {header: X-Key, file: nowhere}}\n" + tail, "weir.yaml:4:"},
	} {
		said := len(w.log.String())
		writeFile(t, file, c.text)
		w.rest(t)
		w.rest(t)
		failed++
		log := w.log.String()[said:]
		if strings.Count(log, "the policy was not reloaded; the one in force stays") != 1 || !strings.Contains(log, c.says) {
			t.Errorf("%s: said\n%s", name, log)
		}
		if w.limit() != 5 || w.metric(t, "weir_policy_reloads_total{result=failed}") != failed || w.metric(t, "weir_policy_last_reload_successful") != 0 {
			t.Errorf("%s: limit %d, %v failed", name, w.limit(), w.metric(t, "weir_policy_reloads_total{result=failed}"))
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.rest(t)
	if w.limit() != 5 || w.metric(t, "weir_policy_reloads_total{result=failed}") != failed+1 {
		t.Error("a file that is gone")
	}
	head, tail = twoHalves(6)
	writeFile(t, file, head+tail)
	w.rest(t)
	if w.limit() != 6 || w.metric(t, "weir_policy_last_reload_successful") != 1 {
		t.Errorf("a good file after bad ones: %d\n%s", w.limit(), w.log)
	}
	if n := w.metric(t, "weir_policy_reloads_total{result=done}"); n != 1 {
		t.Errorf("%v reloads", n)
	}
}

// The files of a Kubernetes ConfigMap are links into a folder whose link is
// swapped. Size and time of the new file may be those of the old one.
func TestSwappedLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "etc")
	version := func(n int) string {
		v := filepath.Join(mount, fmt.Sprintf("..2026_%d", n))
		if err := os.MkdirAll(v, 0o700); err != nil {
			t.Fatal(err)
		}
		head, tail := twoHalves(n)
		file := writeFile(t, filepath.Join(v, "weir.yaml"), head+tail)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(v)
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	link2 := version(5)
	link(link2, "..data")
	link("..data/weir.yaml", "weir.yaml")
	w := watching(t, filepath.Join(mount, "weir.yaml"))
	for n := 6; n < 9; n++ {
		link(version(n), "..data_tmp")
		if err := os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(mount, fmt.Sprintf("..2026_%d", n-1))); err != nil {
			t.Fatal(err)
		}
		w.rest(t)
		if w.limit() != int64(n) {
			t.Fatalf("after the swap: %d, want %d\n%s", w.limit(), n, w.log)
		}
	}
	if n := w.metric(t, "weir_policy_reloads_total{result=done}"); n != 3 {
		t.Errorf("%v reloads for 3 swaps", n)
	}
	// A file that is replaced by one of the same size and time is another one.
	file := filepath.Join(dir, "plain.yaml")
	head, tail := twoHalves(5)
	writeFile(t, file, head+tail)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	w = watching(t, file)
	head, tail = twoHalves(7)
	next := writeFile(t, filepath.Join(dir, "next.yaml"), head+tail)
	if err := errors.Join(os.Chtimes(next, info.ModTime(), info.ModTime()), os.Rename(next, file)); err != nil {
		t.Fatal(err)
	}
	w.rest(t)
	if w.limit() != 7 {
		t.Errorf("after a rename: %d", w.limit())
	}
}

// What an auth: names is watched as well: a new key is taken, one that is gone is
// refused, and no request is judged by half of both.
func TestChangedSecretsAreTaken(t *testing.T) {
	dir := t.TempDir()
	line := func(key string) string { return fmt.Sprintf("acme basic %x\n", sha256.Sum256([]byte(key))) }
	keys := writeFile(t, filepath.Join(dir, "keys"), line("old"))
	file := writeFile(t, filepath.Join(dir, "weir.yaml"), `weir: 1
auth: {api_keys: {header: x-api-key, file: keys}}
gateway:
  match: GET /
  plans: {basic: 100/s}
`)
	w := watching(t, file)
	status := func(key string) int {
		res, _ := do(t, "GET", w.url+"/", "X-Api-Key", key)
		return res.StatusCode
	}
	if a, b := status("old"), status("new"); a != 200 || b != 401 {
		t.Fatalf("before: %d %d", a, b)
	}
	writeFile(t, keys, line("new"))
	w.rest(t)
	if a, b := status("old"), status("new"); a != 401 || b != 200 {
		t.Errorf("after: %d %d\n%s", a, b, w.log)
	}
	writeFile(t, keys, "nonsense\n")
	w.rest(t)
	if a := status("new"); a != 200 || !strings.Contains(w.log.String(), "keys:1:1") {
		t.Errorf("a bad file of keys: %d\n%s", a, w.log)
	}
}
