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
// main, and that of everything before lambda.Start. The two are started in turn, so
// that other load falls on both; of many starts it tells the median and the best.
func BenchmarkStartup(b *testing.B) {
	const runs = 60
	programs := []string{"bare", "weir"}
	var files [2]string
	var sizes [2]int64
	var main, setup [2][]float64 // milliseconds
	for i, program := range programs {
		files[i], sizes[i] = startup(b, program)
	}
	for i := range runs * len(programs) {
		i %= len(programs)
		c := exec.Command(files[i])
		c.Env = []string{"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "WEIR_LOG_KEY=k",
			"STARTED=" + strconv.FormatInt(time.Now().UnixNano(), 10)}
		out, err := c.Output()
		var toMain, toStart float64
		if _, scanErr := fmt.Sscan(string(out), &toMain, &toStart); err != nil || scanErr != nil {
			b.Fatalf("%q %v %v", out, err, scanErr)
		}
		main[i], setup[i] = append(main[i], toMain/1e6), append(setup[i], toStart/1e6)
	}
	for i, program := range programs {
		slices.Sort(main[i])
		slices.Sort(setup[i])
		b.Run(program, func(b *testing.B) {
			b.ReportMetric(float64(sizes[i])/(1<<20), "MiB")
			b.ReportMetric(main[i][runs/2], "ms-to-main")
			b.ReportMetric(main[i][0], "ms-to-main-best")
			b.ReportMetric(setup[i][runs/2], "ms-set-up")
			b.ReportMetric(setup[i][0], "ms-set-up-best")
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
