package account

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

func TestCallersThatAreRememberedAreBounded(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	const most = 256
	b := NewBook(Options{Records: s, Most: most})
	for i := range 100 * most {
		key := weir.NewKey("account", fmt.Sprint(i))
		if _, err := b.Look(context.Background(), policy.Caller{Key: key, Kind: "account", Needed: true}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for i := range b.shards {
		n += len(b.shards[i].young) + len(b.shards[i].old)
	}
	if n > 2*most || n < most/2 {
		t.Errorf("%d callers are remembered, want %d to %d", n, most/2, 2*most)
	}
}

func TestParsePattern(t *testing.T) {
	for text, ok := range map[string]bool{
		"account#acme-*": true, "account#*": true, "ip#192.0.2.*": true, "account#a%2A*": true,
		"account#acme": false, "acme-*": false, "account#a*b*": false, "*": false, "#*": false, "account#a|b#*": false, "account#a%2a*": false, "account#a%*": false, "": false,
	} {
		if _, err := ParsePattern(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	p := Pattern("account#a-*")
	for text, want := range map[string]bool{"account#a-b": true, "account#a-": false, "account#a": false, "account#b-a": false, "ip#a-b": false, "account#a-b|event#1": false} {
		key, _ := weir.ParseKey(text)
		if p.Holds(key) != want {
			t.Errorf("%s holds for %s: %v", p, text, !want)
		}
	}
}

// A record of a form that is not known is no record without content: what it
// takes away must not be given.
func TestRecordsOfAnotherForm(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	ctx := context.Background()
	key := weir.NewKey("account", "a")
	for i, value := range []string{`{"schema_version":2}`, `{}`, `{"schema_version":1,"ban":`, `[]`} {
		caller := weir.NewKey("account", fmt.Sprint(i))
		if err := s.Put(ctx, recordKey(caller), []byte(value), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		b := NewBook(Options{Records: s})
		if said, err := b.Look(ctx, policy.Caller{Key: caller, Kind: "account", Needed: true}, time.Hour); err == nil {
			t.Errorf("%s: %+v", value, said)
		}
		e := Editor{Records: s}
		if _, _, err := e.Edit(ctx, caller, func(r *Record) error { r.Ban = new(Ban); return nil }); err == nil {
			t.Errorf("%s was written over", value)
		}
	}
	if err := s.Put(ctx, indexKey, []byte(`{"schema_version":1,"wildcards":{"nonsense":{"schema_version":1}}}`), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := NewBook(Options{Records: s}).Look(ctx, policy.Caller{Key: key, Kind: "account"}, time.Hour); err == nil {
		t.Error("a damaged index was read")
	}
}

func TestARecordIsBounded(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	e := Editor{Records: s}
	key := weir.NewKey("account", "a")
	for i := range 100 {
		_, after, err := e.Edit(context.Background(), key, func(r *Record) error {
			r.Note(Change{What: fmt.Sprint("change ", i)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(after.History); n > maxHistory || after.History[n-1].What != fmt.Sprint("change ", i) {
			t.Fatalf("%d changes are kept, the last %v", n, after.History[n-1])
		}
	}
	_, _, err := e.Edit(context.Background(), key, func(r *Record) error {
		r.Overrides = map[string]Override{}
		for i := range 2000 {
			r.Overrides[fmt.Sprint("limit-", i)] = Override{Limit: "quota 1000/hour"}
		}
		return nil
	})
	if err == nil {
		t.Error("a record of any size is written")
	}
}

// While no record of a store of this process has changed, what was read of it is
// fresh, however long ago that was.
func TestSilentAsksNoClockUntilARecordChanges(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	ctx := context.Background()
	now, looks := time.Now().UnixNano(), 0
	b := NewBook(Options{Records: s, Now: func() int64 { looks++; return now }})
	if b.Silent(time.Second) {
		t.Error("silent before anything was read")
	}
	key := weir.NewKey("account", "a")
	if _, err := b.Look(ctx, policy.Caller{Key: key, Kind: "account"}, time.Second); err != nil {
		t.Fatal(err)
	}
	looks = 0
	now += int64(time.Hour)
	if !b.Silent(time.Second) || looks != 0 {
		t.Errorf("not silent an hour later without a change, after %d looks at the clock", looks)
	}
	if err := s.Put(ctx, "another", nil, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if b.Silent(time.Second) {
		t.Error("silent an hour later after a change")
	}
	now -= int64(time.Hour)
	if !b.Silent(time.Second) {
		t.Error("a change makes old at once what was just read")
	}
}
