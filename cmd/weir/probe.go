package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

type probeFlags struct {
	count   int
	method  string
	headers []string
	data    string
	expect  string
	skipTLS bool
}

func newProbe(c *common) *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe URL",
		Short: "Send N calls at once and show how they were answered",
		Long: `Send N calls at once to a URL, and show the statuses, with the header of the first
refusal. It works against any server, with or without weir.
` + fmt.Sprintf(exitHelp, "the counts differ from --expect"),
		Example: `  weir probe http://localhost:8080/reservations -X POST -n 12 --expect 201=10,429=2
  weir probe https://api.example.com/orders -H 'Authorization: Bearer TOKEN'`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("weir probe http://localhost:8080/", "no URL to probe is given")
			case len(args) > 1:
				return usage("weir probe "+shellWord(args[0]), "one URL can be probed at a time, and there are %d: %s", len(args), strings.Join(args, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return probe(cmd.Context(), c, &f, args[0]) },
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.count, "count", "n", 12, "how many calls")
	fl.StringVarP(&f.method, "method", "X", "GET", "HTTP `METHOD`")
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "`'NAME: VALUE'` to send; may be repeated")
	fl.StringVarP(&f.data, "data", "d", "", "request body")
	fl.StringVar(&f.expect, "expect", "", "the counts that must come, as in `201=10,429=2`")
	fl.BoolVar(&f.skipTLS, "insecure", false, "do not check the server's certificate")
	return cmd
}

// probeReport is the JSON of probe.
type probeReport struct {
	SchemaVersion int            `json:"schema_version"`
	URL           string         `json:"url"`
	Method        string         `json:"method"`
	Sent          int            `json:"sent"`
	Statuses      map[string]int `json:"statuses"`
	Errors        int            `json:"errors"`
	Seconds       float64        `json:"seconds"`
	FirstDenial   *denial        `json:"first_denial"`
	Expected      map[string]int `json:"expected,omitempty"`
	Matches       *bool          `json:"matches,omitempty"`
}

// denial is a refusal as the client saw it.
type denial struct {
	Status     int               `json:"status"`
	RetryAfter *int64            `json:"retry_after"` // seconds; null when the answer has none
	Headers    map[string]string `json:"headers"`
	Body       json.RawMessage   `json:"body"`
}

func probe(ctx context.Context, c *common, f *probeFlags, target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usage("weir probe http://localhost:8080/", "%q is not a URL that can be probed", target)
	}
	if f.count < 1 || f.count > 100_000 {
		return usage("weir probe "+shellWord(target)+" -n 12", "-n %d: the number of calls is from 1 to 100000", f.count)
	}
	header := http.Header{}
	for _, h := range f.headers {
		name, value, found := strings.Cut(h, ":")
		if !found || strings.TrimSpace(name) == "" {
			return usage("weir probe "+shellWord(target)+" -H 'NAME: VALUE'", "-H %q has no name and value", h)
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	expected, err := parseExpect(f.expect)
	if err != nil {
		return usage("weir probe "+shellWord(target)+" --expect 201=10,429=2", "%w", err)
	}

	client := &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: mostAtOnce, DisableCompression: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: f.skipTLS},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	answers, took := volley(ctx, client, f.count, mostAtOnce, func(ctx context.Context, _ int) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, strings.ToUpper(f.method), target, strings.NewReader(f.data))
		if err != nil {
			return nil, err
		}
		r.Header = header.Clone()
		if host := header.Get("Host"); host != "" {
			r.Host = host
			r.Header.Del("Host")
		}
		return r, nil
	})
	if ctx.Err() != nil {
		return errInterrupted
	}
	rep := probeReport{SchemaVersion: 1, URL: target, Method: strings.ToUpper(f.method), Sent: f.count, Statuses: map[string]int{}, Seconds: took.Seconds(), Expected: expected}
	var lost error
	for _, a := range answers {
		if a.err != nil {
			rep.Errors++
			lost = a.err
			continue
		}
		rep.Statuses[strconv.Itoa(a.status)]++
	}
	rep.FirstDenial = firstDenial(answers)
	if lost != nil && rep.Errors == f.count {
		return fmt.Errorf("%s cannot be probed: %w", target, lost)
	}
	if expected != nil {
		m := rep.Errors == 0 && maps.Equal(expected, rep.Statuses)
		rep.Matches = &m
	}
	if err := writeProbe(c, &rep, lost); err != nil {
		return err
	}
	if lost != nil {
		return fmt.Errorf("%d of %d calls got no answer: %w", rep.Errors, f.count, lost)
	}
	if rep.Matches != nil && !*rep.Matches {
		return errNo{fmt.Errorf("expected %s, got %s", counts(expected), counts(rep.Statuses)), false}
	}
	return nil
}

func parseExpect(text string) (map[string]int, error) {
	if text == "" {
		return nil, nil
	}
	out := map[string]int{}
	for _, part := range strings.Split(text, ",") {
		status, count, found := strings.Cut(strings.TrimSpace(part), "=")
		s, err1 := strconv.Atoi(status)
		n, err2 := strconv.Atoi(count)
		if !found || err1 != nil || err2 != nil || s < 100 || s > 599 || n < 0 {
			return nil, fmt.Errorf("--expect: %q is not STATUS=COUNT", part)
		}
		if n > 0 {
			out[status] = n
		}
	}
	return out, nil
}

// reply is one answer of a volley, with its place in time.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error
	order  int // 0 for the answer that came first
}

// mostAtOnce is how many calls are under way at most.
const mostAtOnce = 256

// volley sends n requests at once, at most parallel of them at a time, and
// waits for all.
func volley(ctx context.Context, client *http.Client, n, parallel int, request func(context.Context, int) (*http.Request, error)) ([]reply, time.Duration) {
	answers := make([]reply, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		order int
		gate  = make(chan struct{})
	)
	for range min(n, parallel) {
		wg.Go(func() {
			<-gate
			for i := range next {
				a := send(ctx, client, i, request)
				mu.Lock()
				a.order = order
				order++
				mu.Unlock()
				answers[i] = a
			}
		})
	}
	began := time.Now()
	close(gate)
	wg.Wait()
	return answers, time.Since(began)
}

func send(ctx context.Context, client *http.Client, i int, request func(context.Context, int) (*http.Request, error)) reply {
	req, err := request(ctx, i)
	if err != nil {
		return reply{err: err}
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return reply{err: err}
	}
	return reply{status: res.StatusCode, header: res.Header, body: body}
}

func refused(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// firstDenial is the refusal that came first, nil when there was none.
func firstDenial(answers []reply) *denial {
	var first *reply
	for i := range answers {
		a := &answers[i]
		if a.err == nil && refused(a.status) && (first == nil || a.order < first.order) {
			first = a
		}
	}
	if first == nil {
		return nil
	}
	d := &denial{Status: first.status, Headers: map[string]string{}, Body: json.RawMessage("null")}
	for name, values := range first.header {
		if limitHeader(name) {
			d.Headers[spelling(name)] = strings.Join(values, ", ")
		}
	}
	if s, err := strconv.ParseInt(first.header.Get("Retry-After"), 10, 64); err == nil {
		d.RetryAfter = &s
	}
	if body := bytes.TrimSpace(first.body); json.Valid(body) {
		d.Body = body
	} else if len(body) > 0 {
		d.Body, _ = json.Marshal(string(body)) // text always marshals
	}
	return d
}

// limitHeader tells the fields that speak of limits, in all their styles.
func limitHeader(name string) bool {
	n := strings.ToLower(name)
	return n == "retry-after" || n == "content-type" || strings.HasPrefix(n, "ratelimit") || strings.HasPrefix(n, "x-ratelimit")
}

// spelling is a field's name as documents write it; Go's client changes the
// case.
func spelling(name string) string {
	if rest, is := strings.CutPrefix(name, "Ratelimit"); is {
		return "RateLimit" + rest
	}
	if strings.HasPrefix(name, "X-Ratelimit") {
		return strings.ToLower(name)
	}
	return name
}

func writeProbe(c *common, rep *probeReport, lost error) error {
	if c.format == "json" {
		return writeJSON(c.stdout, rep)
	}
	fmt.Fprintf(c.stdout, "%s %s: %d calls in %.3f s\n\n", rep.Method, rep.URL, rep.Sent, rep.Seconds)
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "status\tcalls\t")
	for _, s := range slices.Sorted(maps.Keys(rep.Statuses)) {
		fmt.Fprintf(w, "%s\t%d\t\n", s, rep.Statuses[s])
	}
	if rep.Errors > 0 {
		fmt.Fprintf(w, "none\t%d\t%v\n", rep.Errors, lost)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if d := rep.FirstDenial; d != nil {
		fmt.Fprintf(c.stdout, "\nfirst refusal: %d\n", d.Status)
		for _, n := range slices.Sorted(maps.Keys(d.Headers)) {
			fmt.Fprintf(c.stdout, "  %s: %s\n", n, d.Headers[n])
		}
		if len(d.Body) > 0 && string(d.Body) != "null" {
			fmt.Fprintf(c.stdout, "  %s\n", d.Body)
		}
	}
	return nil
}

func counts(m map[string]int) string {
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s=%d", s, m[s]))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ",")
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
