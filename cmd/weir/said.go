package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
)

// What the commands share that say something of callers: of whom, on which
// terms, and the line that says who did it.

// termFlags are the flags of a change.
type termFlags struct {
	dryRun  bool
	reason  string
	expires string
}

func (f *termFlags) add(cmd *cobra.Command, expires string) {
	fl := cmd.Flags()
	fl.BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	fl.StringVar(&f.reason, "reason", "", "why, for those who ask later (`TEXT`)")
	if expires != "" {
		fl.StringVar(&f.expires, "expires", "", expires+": 14d, 2h, 2027-01-31, or a time as in RFC 3339 (`WHEN`)")
	}
}

// maxReason bounds a reason, of which a record keeps ten.
const maxReason = 500

// terms are those of a change that is made now.
func (f *termFlags) terms(cmd *cobra.Command, now time.Time) (account.Terms, error) {
	t := account.Terms{Reason: f.reason, At: now.UTC().Truncate(time.Second), By: userName()}
	if len(f.reason) > maxReason {
		return t, usage("--reason 'ticket 1234'", "the reason has %d bytes; at most %d are kept", len(f.reason), maxReason)
	}
	if f.expires == "" {
		return t, nil
	}
	at, ok := instant(f.expires, now)
	if !ok {
		return t, usage("--expires 14d", "--expires %s is no time: write 14d, 2h, 2027-01-31 (00:00 UTC), or 2027-01-31T18:00:00+01:00", f.expires)
	}
	if !at.After(now) {
		return t, usage("--expires 14d", "--expires %s is over already", f.expires)
	}
	t.Expires = at.UTC()
	return t, nil
}

// instant reads a date in UTC, a time, or how long from now.
func instant(text string, now time.Time) (time.Time, bool) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	// How long, as in a limit: 14d, 30m, month.
	per, err := weir.ParseLimit("1/" + text)
	if err != nil || strings.ContainsAny(text, " \t") {
		return time.Time{}, false
	}
	return now.Add(per.Period().Duration()).Truncate(time.Second), true
}

// userName is who runs the program, as the machine knows them.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// subject is of whom something is said: one caller, or all that a wildcard names.
type subject struct {
	caller  weir.Key
	pattern account.Pattern
}

func (s subject) String() string {
	if s.pattern != "" {
		return string(s.pattern)
	}
	return s.caller.String()
}

func (s subject) kind() string {
	if s.pattern != "" {
		return s.pattern.Kind()
	}
	return account.KindOf(s.caller)
}

// subjectOf reads KIND#ID, or a wildcard KIND#BEGINNING*. Without a kind it is an
// account, if those are taken. again is the command as it is typed of another.
func subjectOf(text string, again func(caller string) string, accounts bool) (subject, error) {
	wrong := func(caller string) error {
		return usage(again(caller), "%q names no caller; callers are KIND#ID, or KIND#BEGINNING* for all whose ids begin so, and bytes other than letters, digits and -_.@: are written %%XX", text)
	}
	begin, star := strings.CutSuffix(text, "*")
	switch {
	case accounts && !strings.Contains(text, "#"):
		key := weir.NewKey("account", begin)
		if star && begin == "" {
			return subject{pattern: "account#*"}, nil
		}
		if !key.Valid() {
			return subject{}, usage(again("customer-42"), "%q is no id of an account", text)
		}
		if star {
			return subject{pattern: account.Pattern(key.String() + "*")}, nil
		}
		return subject{caller: key}, nil
	case star:
		p, err := account.ParsePattern(text)
		if err != nil {
			return subject{}, wrong("account#acme-*")
		}
		return subject{pattern: p}, nil
	}
	key, ok := weir.ParseKey(text)
	if ok && key.Parts() == 1 {
		return subject{caller: key}, nil
	}
	kind, id, both := strings.Cut(text, "#")
	id, _, _ = strings.Cut(id, "|")
	near := weir.NewKey(kind, id)
	if !both {
		near = weir.NewKey("account", text)
	}
	if !near.Valid() {
		near = weir.NewKey("account", "customer-42")
	}
	if ok {
		return subject{}, usage(again(near.String()), "%q is an item of several parts; what is said is said of one caller", text)
	}
	return subject{}, wrong(near.String())
}

// known refuses a kind of callers by whom the policy never counts.
func (k *counters) known(s subject, again func(caller string) string) error {
	kinds := k.policy.CallerKinds()
	if slices.Contains(kinds, s.kind()) {
		return nil
	}
	return usage(again(kinds[0]+"#customer-42"), "%s knows no caller of the kind %s; it has %s", k.file, s.kind(), strings.Join(kinds, ", "))
}

// editor changes the records of the store.
func (k *counters) editor(dryRun bool) account.Editor {
	return account.Editor{Records: k.records, DryRun: dryRun}
}

// errNothing: a change found nothing to change.
var errNothing = errors.New("nothing to change")

// edit changes what is said of a subject.
func (k *counters) edit(ctx context.Context, s subject, dryRun bool, change func(*account.Record) error) (before, after *account.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := k.editor(dryRun)
	if s.pattern != "" {
		before, after, err = e.EditPattern(ctx, s.pattern, change)
	} else {
		before, after, err = e.Edit(ctx, s.caller, change)
	}
	if errors.Is(err, account.ErrFull) {
		err = errHint{errUsage{err}, "weir accounts list"}
	}
	return before, after, err
}

// audited is a change as it is told.
type audited struct {
	command string
	subject string
	what    string
	terms   account.Terms
	dryRun  bool
}

// note adds the change to a record's history.
func (a *audited) note(r *account.Record) {
	r.Note(account.Change{At: a.terms.At, By: a.terms.By, What: a.what, Reason: a.terms.Reason})
}

// audit writes the line that says who changed what, even with -q.
func (c *common) audit(a *audited) {
	attrs := []slog.Attr{
		slog.String("command", a.command), slog.String("by", a.terms.By), slog.String("caller", a.subject), slog.String("change", a.what),
	}
	if a.terms.Reason != "" {
		attrs = append(attrs, slog.String("reason", a.terms.Reason))
	}
	if !a.terms.Expires.IsZero() {
		attrs = append(attrs, slog.Time("expires", a.terms.Expires))
	}
	if a.dryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	slog.New(slog.NewTextHandler(c.stderr, nil)).LogAttrs(context.Background(), slog.LevelInfo, "audit", attrs...)
}

// changeReport is the JSON of a change.
type changeReport struct {
	SchemaVersion int             `json:"schema_version"`
	Caller        string          `json:"caller"`
	DryRun        bool            `json:"dry_run"`
	Change        string          `json:"change"`
	Before        *account.Record `json:"before"`
	After         *account.Record `json:"after"`
}

// tell shows a change that was made.
func (c *common) tell(k *counters, a *audited, before, after *account.Record) error {
	c.audit(a)
	if c.format == "json" {
		return writeJSON(c.stdout, changeReport{1, a.subject, a.dryRun, a.what, before, after})
	}
	if err := writeRecord(c.stdout, a.subject, after); err != nil {
		return err
	}
	if a.dryRun {
		c.say("weir: nothing was changed; without --dry-run, this holds for %s", a.subject)
	} else {
		c.say("weir: processes follow within %s", k.policy.AccountsAge())
	}
	return nil
}

// until says when something ends, for people.
func until(t *account.Terms) string {
	text := ""
	if !t.Expires.IsZero() {
		text += " until " + t.Expires.UTC().Format(time.RFC3339)
	}
	if t.Reason != "" {
		text += fmt.Sprintf(" (%s)", t.Reason)
	}
	return text
}
