package dynamostore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
)

// A restart of everything, and a server that was killed, keep the limit.
func TestLimitSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	op := weir.Op{Limit: parse(t, "kept", "1/d burst 5"), Key: weir.NewKey("account", "customer-42")}
	for round := range 3 {
		server := dynalite.Start(t, dynalite.Options{Dir: dir})
		store := open(t, clientOf(t, server, nil), dynamostore.Options{Table: "kept"})
		if warnings, err := store.Check(context.Background()); err != nil || len(warnings) > 0 {
			t.Errorf("round %d: %v, %v", round, warnings, err)
		}
		l := limiterOn(store, weir.Options{})
		for i := range 2 {
			if d := take(t, l, op); d.Allowed != (2*round+i < 5) {
				t.Errorf("round %d, call %d: %+v", round, i, d)
			}
		}
		server.Close()
	}
}

const takerVariable = "WEIR_DYNAMOSTORE_TEST_TAKER"

// taker is the body of a process that takes from a shared limit: URL, table and
// limit are in the environment, one line with the number of allowed calls goes
// to its output.
func taker() int {
	server, table, _ := strings.Cut(os.Getenv(takerVariable), " ")
	ctx := context.Background()
	client, err := dynamostore.NewClient(ctx, "us-east-1", server)
	if err == nil {
		var store *dynamostore.Store
		if store, err = dynamostore.New(client, dynamostore.Options{Table: table}); err == nil {
			var allowed int
			if allowed, err = takeAll(ctx, store); err == nil {
				fmt.Println(allowed)
				return 0
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func takeAll(ctx context.Context, store weir.Store) (allowed int, err error) {
	limit, err := weir.ParseLimit("1/d burst 100")
	if err != nil {
		return 0, err
	}
	l := limiterOn(store, weir.Options{})
	for range 80 {
		d, err := l.Take(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "shared")})
		if err != nil {
			return 0, err
		}
		if d.Allowed {
			allowed++
		} else if d.Reason != weir.ReasonLimit {
			return 0, fmt.Errorf("%+v", d)
		}
	}
	return allowed, nil
}

// Processes of their own that know nothing of each other keep one limit.
func TestProcessesKeepOneLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		open(t, clientOf(t, server, nil), dynamostore.Options{})
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		outputs := make(chan string, 3)
		for range cap(outputs) {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), takerVariable+"="+server.URL+" "+tableOf(t))
			cmd.Stderr = os.Stderr
			go func() {
				out, err := cmd.Output()
				if err != nil {
					out = []byte(err.Error())
				}
				outputs <- string(out)
			}()
		}
		total := 0
		for range cap(outputs) {
			out, n := <-outputs, 0
			if _, err := fmt.Sscan(out, &n); err != nil {
				t.Fatalf("a process said %q", out)
			}
			total += n
		}
		if total != 100 {
			t.Errorf("%d calls were allowed in three processes, want 100", total)
		}
	})
}
