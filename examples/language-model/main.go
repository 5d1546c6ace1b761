// Command language-model keeps token budgets per minute and per month in front
// of a language model, whose calls tell their cost only when they are over.
//
//	go run ./examples/language-model
//
// It serves a small model over HTTP behind weir, lets one customer of the free
// plan use it through a month, and prints what he sees. The clock is the
// program's own, so that nobody has to wait for the month to end.
package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

//go:embed weir.yaml
var files embed.FS

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "language-model: "+err.Error())
		os.Exit(1)
	}
}

// clock is the time of the story.
type clock struct{ at time.Time }

func (c *clock) now() int64 { return c.at.UnixNano() }

func run(out io.Writer) error {
	c := &clock{time.Date(2027, 3, 30, 9, 0, 0, 0, time.UTC)}
	p, err := policy.Load(files, "weir.yaml", policy.Options{})
	if err != nil {
		return err
	}
	store := memstore.New(memstore.Options{Now: c.now})
	defer store.Close()
	e, err := engine.New(engine.Options{
		Policy: p, Store: store, Now: c.now, Logger: slog.New(slog.DiscardHandler),
		// A service of yours asks here who calls, by what it has verified.
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{Claims: map[string]any{"sub": "customer-42", "plans": "free"}}, nil
		},
		Noticed: func(_ context.Context, n engine.Notice) {
			if n.Percent != 0 {
				fmt.Fprintf(out, "   notice: %s has reached %d%%: %d of %d tokens\n", n.Rule.Name, n.Percent, n.Used, n.Max)
			}
		},
	})
	if err != nil {
		return err
	}
	defer e.Close()
	server := httptest.NewServer(httplimit.New(e).Handler(http.HandlerFunc(complete)))
	defer server.Close()

	s := &story{out: out, url: server.URL, clock: c}
	s.ask("a first question", "why is the sky blue", 120)
	s.ask("a question that fails costs nothing", "", 120)
	s.ask("a long answer: less is left of the minute than it may cost at most", "tell me everything", 150)
	s.ask("asked for less, it is taken, and costs more: the minute goes into debt", "tell me everything", 60)
	s.ask("in debt, nothing passes", "why", 10)
	c.at = c.at.Add(time.Minute)
	s.ask("a minute later", "tell me everything", 120)
	c.at = c.at.Add(time.Minute)
	s.ask("and another", "tell me everything", 120)
	s.ask("now neither the minute nor the month has enough, and the longer wait speaks", "why is the sky blue", 150)
	return s.err
}

// story is one customer who asks, and what he sees.
type story struct {
	out   io.Writer
	url   string
	clock *clock
	err   error // the first one
}

// ask sends one prompt, whose answer may cost at most some tokens.
func (s *story) ask(title, prompt string, most int) {
	if s.err != nil {
		return
	}
	r, err := http.NewRequest("POST", s.url+"/complete", strings.NewReader(prompt))
	if err != nil {
		s.err = err
		return
	}
	r.Header.Set("X-Max-Tokens", strconv.Itoa(most))
	fmt.Fprintf(s.out, "%s  %s (at most %d)\n", s.clock.at.Format("2 January 15:04"), title, most)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.err = err
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.err = err
		return
	}
	fmt.Fprintf(s.out, "   %s\n", res.Status)
	for _, name := range []string{"X-Tokens-Used", "Retry-After", "RateLimit"} {
		if v := res.Header.Get(name); v != "" {
			fmt.Fprintf(s.out, "   %s: %s\n", name, v)
		}
	}
	if res.StatusCode == http.StatusTooManyRequests {
		fmt.Fprintf(s.out, "   %s", denialID.ReplaceAllString(string(body), `"denialId":"..."`))
	}
}
