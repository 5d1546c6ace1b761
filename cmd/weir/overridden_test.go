package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
)

// What an override changes beside the number is said when it is made, before
// anybody meets it.
func TestAnOverrideSaysWhatItChangesBesideTheNumber(t *testing.T) {
	t.Setenv("TEST_SECRET", testSecret)
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "weir.yaml"), `
weir: 1
auth: {jwt: {hs256_secret_env: TEST_SECRET}}
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    order: [free, paid]
    free: {metered: quota 5/day, tokens: quota 100/day, plain: quota 5/day}
    paid: {metered: quota 50/day, tokens: quota 1000/day, plain: 10/m burst 10}
  operations:
    metered: {match: POST /metered, over: charge, notify_at: [50%]}
    tokens: {match: POST /tokens, settle: header.X-Tokens, debt: 100}
    plain: {match: POST /plain}
`)
	store := "bolt:" + filepath.Join(dir, "weir.db")
	s, err := openStore(t.Context(), store, storeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change []string
		says   []string // each of them, and no other warning
	}{
		{[]string{"plain", "quota 9/day"}, []string{"10/m burst 10 and quota 9/day count apart"}}, // of the plan paid
		{[]string{"plain", "quota 8/hour"}, nil},
		{[]string{"plain", "quota 7/hour calendar"}, []string{"quota 8/hour and quota 7/hour calendar count apart"}},
		{[]string{"plain", "quota 6/hour calendar"}, nil},
		{[]string{"plain", "unlimited"}, nil},
		{[]string{"plain", "--remove"}, nil},
		{[]string{"metered", "quota 7/day"}, nil},
		{[]string{"metered", "quota 7/day calendar"}, []string{"quota 7/day and quota 7/day calendar count apart"}},
		{[]string{"metered", "sliding 7/day"}, []string{"quota 7/day calendar and sliding 7/day count apart", "metered is over: charge, which sliding 7/day cannot be", "metered has notify_at, and sliding 7/day has no period"}},
		{[]string{"metered", "2/s burst 2"}, []string{"sliding 7/day and 2/s burst 2 count apart", "metered is over: charge, which 2/s burst 2 cannot be, having no period to charge for: it refuses what is beyond it", "metered has notify_at"}},
		{[]string{"metered", "--remove"}, []string{"2/s burst 2 and quota 5/day count apart", "2/s burst 2 and quota 50/day count apart"}},
		{[]string{"tokens", "quota 500/day"}, nil},
		{[]string{"tokens", "quota 10/day"}, []string{"a settled cost may take quota 10/day 10 below zero, and no longer 100"}},
	} {
		for _, dryRun := range []bool{true, false} {
			args := append([]string{"keys", "override", "account#ann"}, append(c.change, "-c", file, "--store", store)...)
			if dryRun {
				args = append(args, "--dry-run")
			}
			var out, errs bytes.Buffer
			if code := run(context.Background(), args, &out, &errs); code != 0 {
				t.Fatalf("%q: exit %d: %s", c.change, code, errs.String())
			}
			if n := strings.Count(errs.String(), "weir: warning: "); n != len(c.says) {
				t.Errorf("%q: %d warnings, want %d:\n%s", c.change, n, len(c.says), errs.String())
			}
			for _, want := range c.says {
				if !strings.Contains(errs.String(), "weir: warning: "+want) {
					t.Errorf("%q: no %q in\n%s", c.change, want, errs.String())
				}
			}
		}
	}
}

func TestSharesCounter(t *testing.T) {
	parse := func(text string) weir.Limit {
		l, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"quota 5/day", "quota 1/day", true}, {"quota 5/day", "quota 5/24h", true}, {"quota 5/day", "quota 5/hour", true}, {"quota 5/day calendar", "quota 5/hour calendar", false},
		{"quota 5/day", "quota 5/day calendar", false}, {"quota 5/day calendar", "quota 5/day calendar Europe/Berlin", false},
		{"quota 5/month billing", "quota 9/month billing", true}, {"quota 5/month billing", "quota 5/month calendar", false},
		{"1/s burst 5", "3/m burst 2", true}, {"1/s burst 5", "sliding 5/s", false}, {"sliding 5/m", "sliding 9/m", true}, {"sliding 5/m", "sliding 5/h", false},
	} {
		a, err1 := sharesCounter(t.Context(), parse(c.a), parse(c.b))
		b, err2 := sharesCounter(t.Context(), parse(c.b), parse(c.a))
		if a != c.same || b != c.same || err1 != nil || err2 != nil {
			t.Errorf("%s and %s: %v and %v, want %v (%v, %v)", c.a, c.b, a, b, c.same, err1, err2)
		}
	}
}
