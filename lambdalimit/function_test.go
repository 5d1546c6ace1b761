//go:build linux

package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
)

// AWS's own emulator of the runtime interface, pinned.
const emulator = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@v0.0.0-20261030222936-bef5c4ba774d"

// binaries are built once for all tests: the emulator and the examples.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lambdalimit")
	if err != nil {
		return "", err
	}
	// Outside of our modules: the emulator has requirements of its own.
	install := exec.Command("go", "install", emulator)
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w\n%s", emulator, err, out)
	}
	for _, example := range []string{"little-stage-lambda", "appsync-quotas"} {
		for _, arch := range []string{"amd64", "arm64"} {
			build := exec.Command("go", "build", "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w",
				"-o", filepath.Join(dir, example+"-"+arch, "bootstrap"), "./examples/"+example)
			build.Dir = ".."
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
			if out, err := build.CombinedOutput(); err != nil {
				return "", fmt.Errorf("build %s for %s: %w\n%s", example, arch, err, out)
			}
		}
	}
	return dir, nil
})

var builtBinaries atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if builtBinaries.Load() {
		if dir, err := binaries(); err == nil {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// function is an example's binary under the emulator, with a table behind it.
type function struct {
	t     *testing.T
	url   string
	log   *logBuffer
	cmd   *exec.Cmd
	db    *dynamodb.Client
	table string
	calls *counter

	unanswered int // calls of resolve
}

// logBuffer keeps what a process writes, for several readers.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// counter is a proxy in front of the table's server that counts calls by their
// operation.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) of(operation string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[operation]
}

func start(t *testing.T, example string, env ...string) *function {
	t.Helper()
	builtBinaries.Store(true)
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	server := dynalite.Start(t, dynalite.Options{})
	f := &function{t: t, log: &logBuffer{}, table: "limits", calls: &counter{n: map[string]int{}}}
	if f.db, err = dynamostore.NewClient(context.Background(), "us-east-1", server.URL); err != nil {
		t.Fatal(err)
	}
	store, err := dynamostore.New(f.db, dynamostore.Options{Table: f.table})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(context.Background()); err != nil {
		t.Fatal(err)
	}
	endpoint := f.calls.proxy(t, server.URL)
	rie, runtime := freeAddress(t, 22_000), freeAddress(t, 27_000)
	// The emulator listens on every address unless it is told one.
	f.cmd = exec.Command(filepath.Join(dir, "aws-lambda-rie"), "--runtime-interface-emulator-address", rie,
		"--runtime-api-address", runtime, filepath.Join(dir, example+"-amd64", "bootstrap"))
	f.cmd.Dir = t.TempDir()
	f.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + f.cmd.Dir, "BUCKET_TABLE=" + f.table, "AWS_ENDPOINT_URL_DYNAMODB=" + endpoint, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_LAMBDA_FUNCTION_TIMEOUT=20", "AWS_LAMBDA_FUNCTION_NAME=" + example, "WEIR_LOG_KEY=secret",
	}, env...)
	f.cmd.Stdout, f.cmd.Stderr = f.log, f.log
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL) // the emulator and the function, which share a group
		f.cmd.Wait()
		if t.Failed() {
			t.Logf("the function wrote:\n%s", f.log)
		}
	})
	f.url = "http://" + rie + "/2015-03-31/functions/function/invocations"
	f.await(func() bool {
		conn, err := net.Dial("tcp", rie)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, "the emulator does not listen")
	return f
}

// await polls until something is so.
func (f *function) await(so func() bool, otherwise string) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); {
		if time.Now().After(end) {
			f.t.Fatalf("%s:\n%s", otherwise, f.log)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// freeAddress is one of 5,000 from a port on that nobody listens on. Ports below 32768
// the system gives to nobody by itself, so it is free until the emulator takes it.
func freeAddress(t *testing.T, from int) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", from+rand.IntN(5000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatalf("no free port from %d on", from)
	return ""
}

// proxy counts and passes on. It copies bodies, because a signature covers them
// but dynalite checks none.
func (c *counter) proxy(t *testing.T, target string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		c.mu.Lock()
		c.n[operation]++
		c.mu.Unlock()
		out, err := http.NewRequestWithContext(r.Context(), r.Method, target+r.URL.Path, r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		out.Header = r.Header.Clone()
		answer, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// invoke sends one event, as the service would.
func (f *function) invoke(event []byte) []byte {
	f.t.Helper()
	r, err := http.Post(f.url, "application/json", bytes.NewReader(event))
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		f.t.Fatalf("%d %s %v", r.StatusCode, body, err)
	}
	return body
}

type booking struct {
	StatusCode int
	Headers    map[string]string
	Body       string
}

func (f *function) book(event []byte) (b booking) {
	f.t.Helper()
	if body := f.invoke(event); json.Unmarshal(body, &b) != nil || b.StatusCode == 0 {
		f.t.Fatalf("answer %s", body)
	}
	return b
}

// items are the keys of the table with their expiry.
func (f *function) items() map[string]int64 {
	f.t.Helper()
	out, err := f.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String(f.table)})
	if err != nil {
		f.t.Fatal(err)
	}
	items := map[string]int64{}
	for _, item := range out.Items {
		pk, _ := item["pk"].(*types.AttributeValueMemberS)
		at, _ := item["expiresAt"].(*types.AttributeValueMemberN)
		if pk == nil || at == nil {
			f.t.Fatalf("item %v", item)
		}
		if items[pk.Value], err = strconv.ParseInt(at.Value, 10, 64); err != nil {
			f.t.Fatal(err)
		}
	}
	return items
}

func ownEvent(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "events", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
