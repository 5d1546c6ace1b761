package lambdalimit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkStartup makes the start-up table: the size of a bare handler with a
// DynamoDB client and of one behind a policy of 20 limits, the time from exec to
// main, and that of everything before lambda.Start. Times are medians.
func BenchmarkStartup(b *testing.B) {
	const runs = 40
	for _, program := range []string{"bare", "weir"} {
		b.Run(program, func(b *testing.B) {
			file, size := startup(b, program)
			for b.Loop() {
				var main, setup []float64
				for range runs {
					c := exec.Command(file)
					c.Env = []string{"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "WEIR_LOG_KEY=k",
						"STARTED=" + strconv.FormatInt(time.Now().UnixNano(), 10)}
					out, err := c.Output()
					var toMain, toStart float64
					if _, scanErr := fmt.Sscan(string(out), &toMain, &toStart); err != nil || scanErr != nil {
						b.Fatalf("%q %v %v", out, err, scanErr)
					}
					main, setup = append(main, toMain/1e6), append(setup, toStart/1e6)
				}
				slices.Sort(main)
				slices.Sort(setup)
				b.ReportMetric(main[runs/2], "ms-to-main")
				b.ReportMetric(setup[runs/2], "ms-set-up")
			}
			b.ReportMetric(float64(size)/(1<<20), "MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// startup builds one of the two functions as for Lambda.
func startup(tb testing.TB, program string) (file string, size int64) {
	tb.Helper()
	file = filepath.Join(tb.TempDir(), "bootstrap")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w", "-o", file, "./testdata/startup/"+program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		tb.Fatal(err)
	}
	return file, info.Size()
}

// What weir and a policy add to a function's size, which every cold start loads.
// See docs/decisions/0004-small-functions.md.
func TestAFunctionStaysSmall(t *testing.T) {
	const most = 5 << 20
	_, bare := startup(t, "bare")
	_, limited := startup(t, "weir")
	if added := limited - bare; added > most {
		t.Errorf("weir adds %.2f MiB to a bare function of %.2f MiB; at most %.2f may be", float64(added)/(1<<20), float64(bare)/(1<<20), float64(most)/(1<<20))
	}
}

// BenchmarkWrap is what one event costs beside its handler, without a store trip.
func BenchmarkWrap(b *testing.B) {
	e := newEngine(b, simple[:len(simple)-len("quota 2/h}\n")]+"1000000/s burst 1000000}\n")
	f := Wrap(func(context.Context, json.RawMessage) (any, error) { return map[string]any{"statusCode": 201}, nil }, e, Options{})
	payload := httpEvent("POST", "/things", "customer-42")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f(context.Background(), payload); err != nil {
			b.Fatal(err)
		}
	}
}
