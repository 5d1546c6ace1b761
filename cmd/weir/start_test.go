package main

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weirlabs/weir/internal/redistest"
)

// A start that fails, whatever it is for, leaves nothing in the process: no
// goroutine, no file and no connection.
func TestCase_B233_AFailedStartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	for file, text := range map[string]string{
		"good.yaml":    "weir: 1\nedge:\n  - {name: all, by: ip, limit: 10/s}\napplication:\n  limits:\n    - {name: things, by: ip, limit: quota 5/day}\n",
		"broken.yaml":  "weir: 1\nedge:\n  - {name: all, by: ip, limit: 10/parsec}\n",
		"damaged.db":   strings.Repeat("no database\n", 2000),
		"nothing.pem":  "",
		"decisions.db": "",
	} {
		if err := os.WriteFile(name(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	server := redistest.Start(t, redistest.Options{})
	server.Do(t, "ACL", "SETUSER", "nobody", "on", ">secret", "~*", "-@all", "+ping", "+hello")
	others := func() string {
		_, n, _ := strings.Cut(server.Do(t, "INFO", "clients"), "connected_clients:")
		n, _, _ = strings.Cut(n, "\r")
		return n
	}
	at := others()
	redis := "redis://" + server.Addr
	proxy := func(code int, args ...string) {
		t.Helper()
		saying(t, code, append([]string{"proxy", "--to", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"}, args...)...)
	}
	// What is made once for a process, such as the runtime's poller, is there already.
	proxy(3, "--config", name("good.yaml"), "--store", redis, "--listen", taken.Addr().String())
	var goroutines, files int
	redistest.Await(t, "the first start to end", func() bool {
		goroutines, files = runtime.NumGoroutine(), openFiles(t)
		return others() == at
	})
	for what, start := range map[string]struct {
		code int
		args []string
	}{
		"policy":     {2, []string{"--config", name("broken.yaml"), "--store", redis}},
		"port":       {3, []string{"--config", name("good.yaml"), "--store", redis, "--listen", taken.Addr().String()}},
		"metrics":    {3, []string{"--config", name("good.yaml"), "--store", redis, "--metrics", taken.Addr().String()}},
		"hung":       {3, []string{"--config", name("good.yaml"), "--store", "redis://" + taken.Addr().String()}},
		"password":   {3, []string{"--config", name("good.yaml"), "--store", "redis://nobody:wrong@" + server.Addr}},
		"rights":     {3, []string{"--config", name("good.yaml"), "--store", "redis://nobody:secret@" + server.Addr}},
		"damage":     {3, []string{"--config", name("good.yaml"), "--store", "bolt:" + name("damaged.db")}},
		"bolt, port": {3, []string{"--config", name("good.yaml"), "--store", "bolt:" + name("weir.db"), "--listen", taken.Addr().String(), "--decision-log", name("decisions.db")}},
		"tls":        {3, []string{"--config", name("good.yaml"), "--store", redis, "--tls-cert", name("nothing.pem"), "--tls-key", name("nothing.pem")}},
	} {
		for range 3 {
			proxy(start.code, start.args...)
			if what == "hung" {
				break // it is waited for some seconds
			}
		}
		redistest.Await(t, what+": what a start has begun to end", func() bool {
			return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files && others() == at
		})
	}
}

// openFiles are the file descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
