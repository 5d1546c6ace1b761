package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/internal/everystore"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/redisstore"
)

// countersOn are those of a command on a store of a test.
func countersOn(t *testing.T, p *policy.Policy, file string, s weir.Store) *counters {
	t.Helper()
	k := &counters{policy: p, file: file, store: "the store", items: s, records: s.(weir.Records),
		limiter: weir.NewLimiter(s, weir.Options{Limits: p.Limits(), Deadline: patience})}
	if err := k.readIndex(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// A record that cannot be read, be it damaged or of a newer program, is told with
// its name and what to do, and nobody else's is left out because of it.
func TestUnreadableRecordsHideNoOthers(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), fmt.Sprintf(versioned, "2199-01-01"))
	t.Setenv("TEST_SECRET", testSecret)
	p, err := loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	const accounts = 40 // more than are looked at together
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		k := countersOn(t, p, file, s.Open(t))
		for n := range accounts {
			if _, _, err := k.editor(false).Edit(t.Context(), weir.NewKey("account", fmt.Sprintf("a%02d", n)), func(r *account.Record) error {
				r.Pins = map[string]int{"free": 1}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for who, value := range map[string]string{"broken": `{"schema_version":1,`, "newer": `{"schema_version":7,"pins":{"free":1}}`} {
			if err := k.records.Put(t.Context(), "accounts/account#"+who, []byte(value), "", time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		k = countersOn(t, p, file, s.Open(t)) // of another process
		// told runs a command, whose error must name both records.
		told := func(format string, do func(c *common) error) string {
			t.Helper()
			var out, errs bytes.Buffer
			err := do(&common{format: format, stdout: &out, stderr: &errs})
			if code := exitCode(context.Background(), err); code != exitLost {
				t.Fatalf("exit %d: %v", code, err)
			}
			for _, want := range []string{"2 records on the store cannot be read, and all others were:", "the record of account#broken is damaged", "weir keys erase 'account#broken' --dry-run",
				"the record of account#newer has form 7, and this program knows 1 to 1", "run the command of the newer program"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in\n%v", want, err)
				}
			}
			if text := errs.String() + err.Error(); strings.Contains(text, "moved") && strings.Contains(text, "dry_run") {
				t.Errorf("a dry run moves: %s", text)
			}
			return out.String()
		}
		list := func(format string) string {
			return told(format, func(c *common) error { return accountsList(t.Context(), c, k, "") })
		}
		if n := strings.Count(list("text"), "keeps free@1"); n != accounts {
			t.Errorf("the list has %d accounts, want %d", n, accounts)
		}
		var rep listReport
		if err := json.Unmarshal([]byte(list("json")), &rep); err != nil || len(rep.Accounts) != accounts || len(rep.Unreadable) != 2 || rep.Unreadable[0].Caller != "account#broken" {
			t.Errorf("%v, %d accounts, %+v", err, len(rep.Accounts), rep.Unreadable)
		}
		migrate := func(format string, dryRun bool) string {
			return told(format, func(c *common) error {
				return accountsMigrate(t.Context(), c, k, &migration{plan: "free", from: 1, to: 2, terms: account.Terms{At: time.Now()}, dryRun: dryRun})
			})
		}
		var moved migrateReport
		if err := json.Unmarshal([]byte(migrate("json", true)), &moved); err != nil || len(moved.Accounts) != accounts || !moved.DryRun || len(moved.Unreadable) != 2 {
			t.Errorf("%v, %+v", err, moved)
		}
		if n := strings.Count(list("text"), "keeps free@1"); n != accounts {
			t.Errorf("after a dry run %d accounts keep version 1", n)
		}
		if got := strings.Fields(migrate("text", false)); len(got) != accounts || !slices.IsSorted(got) {
			t.Errorf("%d were moved: %v", len(got), got)
		}
		if n := strings.Count(list("text"), "keeps free@2"); n != accounts {
			t.Errorf("%d accounts keep version 2", n)
		}
		if out := migrate("text", false); out != "" {
			t.Errorf("a second time moves %s", out)
		}
	})
}

// A store that is lost halfway: what was moved is told, what a dry run would have
// moved is not called moved, and the same command goes on.
func TestAMigrationThatIsLostHalfway(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), fmt.Sprintf(versioned, "2199-01-01"))
	t.Setenv("TEST_SECRET", testSecret)
	p, err := loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	for dryRun, said := range map[bool]string{
		true:  "1 account would be moved, and others were not looked at: ",
		false: "1 account moved, others may be left: ",
	} {
		server := redistest.Start(t, redistest.Options{})
		s, err := redisstore.Open("redis://"+server.Addr, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		k := countersOn(t, p, file, s)
		for _, id := range []string{"first", "second"} {
			if _, _, err := k.editor(false).Edit(t.Context(), weir.NewKey("account", id), func(r *account.Record) error {
				r.Pins = map[string]int{"free": 1}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		k.records = &losing{Records: s, lost: make(chan struct{})}
		out := new(killing)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out.kill = func() {
			server.Kill()
			close(k.records.(*losing).lost)
			time.AfterFunc(500*time.Millisecond, cancel) // a client would try for long to connect again
		}
		// The line of the audit is written when an account is done.
		var moved bytes.Buffer
		err = accountsMigrate(ctx, &common{format: "text", stdout: &moved, stderr: out}, k, &migration{plan: "free", from: 1, to: 2, terms: account.Terms{At: time.Now()}, dryRun: dryRun})
		var hint errHint
		if code := exitCode(context.Background(), err); code != exitLost || !strings.HasPrefix(err.Error(), said) || moved.String() != "account#first\n" {
			t.Errorf("dry run %v: exit %d, %v, and %q", dryRun, code, err, moved.String())
		} else if !errors.As(err, &hint) || hint.try != "weir accounts migrate --from free@1 --to free@2" {
			t.Errorf("try: %s", hint.try)
		}
	}
}

// losing are records of which the second account's are read only when the store
// is lost.
type losing struct {
	weir.Records
	lost chan struct{}
}

func (l *losing) Get(ctx context.Context, key string) ([]byte, string, error) {
	if strings.HasSuffix(key, "second") {
		<-l.lost
	}
	return l.Records.Get(ctx, key)
}

// killing ends a server when the first line is written to it.
type killing struct{ kill func() }

func (k *killing) Write(p []byte) (int, error) {
	k.kill()
	return len(p), nil
}

// A command for one caller whose record cannot be read names what mends it, and what
// it names does. Refusals are explained whatever becomes of records.
func TestCommandsForACallerWhoseRecordCannotBeRead(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), fmt.Sprintf(versioned, "2199-01-01"))
	t.Setenv("TEST_SECRET", testSecret)
	server := redistest.Start(t, redistest.Options{})
	s, err := redisstore.Open("redis://"+server.Addr, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	flags := []string{"-c", file, "--store", "redis://" + server.Addr}
	cli := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(args, flags...), &out, &errs)
		return code, errs.String()
	}
	for _, args := range [][]string{
		{"accounts", "get", "X"}, {"accounts", "set", "X", "--plan", "free"}, {"usage", "--account", "X"},
		{"keys", "ban", "account#X"}, {"keys", "override", "account#X", "orders", "quota 5/hour"},
	} {
		if err := s.Put(t.Context(), "accounts/account#X", []byte(`{"schema_version":1,`), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		code, said := cli(args...)
		if code != exitLost || !strings.Contains(said, "the record of account#X is damaged") || !strings.Contains(said, "\ntry: weir keys erase 'account#X' --dry-run") {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
		if code, said := cli("keys", "erase", "account#X"); code != exitDone {
			t.Errorf("what it names: exit %d: %s", code, said)
		}
		server.Do(t, "SET", "record##accounts/account#X", "of another program")
		for _, args := range [][]string{args, {"keys", "erase", "account#X"}} {
			code, said = cli(args...)
			if code != exitLost || !strings.Contains(said, "remove it with: redis-cli DEL 'record##accounts/account#X'") || strings.Contains(said, "\ntry: ") {
				t.Errorf("%v: exit %d: %s", args, code, said)
			}
		}
		server.Do(t, "DEL", "record##accounts/account#X")
	}
	server.Do(t, "SET", "record##accounts", "of another program")
	if code, said := cli("why", "3k2v9q8r1m0aa"); code != exitNo {
		t.Errorf("why beside an index that is none: exit %d: %s", code, said)
	}
	if code, said := cli("accounts", "list"); code != exitLost || !strings.Contains(said, "redis-cli DEL 'record##accounts'") {
		t.Errorf("the index: exit %d: %s", code, said)
	}
	server.Do(t, "DEL", "record##accounts")
	for _, text := range []string{"acme-*", "account#acme-*", "*"} {
		if code, said := cli("keys", "erase", text); code != exitUsage || !strings.Contains(said, "\ntry: weir accounts list") {
			t.Errorf("keys erase %s: exit %d: %s", text, code, said)
		}
	}
}
