package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// watchEvery is how often the policy's files are looked at. Two looks that agree
// make a file rest.
const watchEvery = 500 * time.Millisecond

// followPolicy reads the policy again at every SIGHUP, and when its files are
// others and rest. The func that it returns ends that.
func (s *server) followPolicy(ctx context.Context) (stop func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	w := newWatch(s)
	tick := time.NewTicker(watchEvery)
	go func() {
		defer close(done)
		defer tick.Stop()
		for {
			select {
			case <-hangup:
				w.read(ctx)
			case <-tick.C:
				w.look(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangup)
		cancel()
		<-done
	}
}

// watch notices when the files of a server's policy are others.
//
// It looks, instead of being told by the system: links that are swapped, folders
// that are mounted over a network and editors that replace files then need no
// thought. A file is read when two looks in a row found it as it is, so that one
// that is being written is left alone; see [sources] for one that changes while it
// is read.
type watch struct {
	server *server
	seen   map[string]fileState
	moved  bool // since it was read, and not at rest yet
}

func newWatch(s *server) *watch {
	w := &watch{server: s, seen: map[string]fileState{}}
	for _, f := range w.states() {
		w.seen[f.name] = f
	}
	return w
}

// states are those of the files to watch now.
func (w *watch) states() []fileState {
	if w.server.o.files == nil {
		return nil
	}
	return statesOf(w.server.o.files())
}

// look reads the policy if its files are others than those that were read, and
// rest.
func (w *watch) look(ctx context.Context) {
	changed := false
	for _, f := range w.states() {
		if !f.same(w.seen[f.name]) {
			w.seen[f.name], changed = f, true
		}
	}
	switch {
	case changed:
		w.moved = true
	case w.moved:
		w.read(ctx)
	}
}

// read reads the policy now, and says what came of it.
func (w *watch) read(ctx context.Context) {
	s := w.server
	before := map[string]fileState{}
	for _, f := range w.states() {
		before[f.name] = f
	}
	err := s.reload(ctx)
	w.seen = map[string]fileState{}
	for _, f := range w.states() { // it may name others now
		w.seen[f.name] = f
		if b, known := before[f.name]; known {
			w.seen[f.name] = b
		}
	}
	w.moved = errors.Is(err, errChanging) // and so read again once they rest
	if w.moved {
		s.o.log.Debug("the policy is being written")
		return
	}
	if s.metrics != nil {
		s.metrics.reloaded(err)
	}
	if err == nil {
		s.o.log.Info("the policy was reloaded", "revision", s.engine.Policy().Revision())
		return
	}
	const kept = "the policy was not reloaded; the one in force stays"
	var mistakes policy.Problems
	if !errors.As(err, &mistakes) {
		s.o.log.Error(kept, "err", err)
		return
	}
	for _, m := range mistakes {
		if m.Severity == policy.Error {
			s.o.log.Error(kept, "at", placeOf(m), "err", m.Message, "fix", m.Hint, "mistakes", len(mistakes))
			return
		}
	}
}

// reload puts the policy file in force again. On an error the old one stays. It
// says what does not follow the file, and who begins with a full limit by it.
func (s *server) reload(ctx context.Context) error {
	old := s.engine.Policy()
	p, err := s.o.load()
	if err != nil {
		return err
	}
	if err := s.sameStore(p); err != nil {
		return err
	}
	v, err := verifierOf(ctx, p.Auth(), s.o.auth)
	if err != nil {
		return err
	}
	if err := s.engine.ReloadWith(p, identifyBy(v)); err != nil {
		return err
	}
	s.verifier.Store(v)
	for _, w := range p.Warnings() {
		s.o.log.Warn("policy: "+w.Message, "at", placeOf(w))
	}
	fresh, gone, err := changedCounters(ctx, old, p)
	if err != nil { // the policy is in force all the same
		s.o.log.Warn("the policy was not compared with the last one", "err", err)
	} else if len(fresh)+len(gone) > 0 {
		s.o.log.Warn("limits whose name, caller, mode, algorithm or window is new start with nothing used", "limits", strings.Join(fresh, ", "), "gone", strings.Join(gone, ", "))
	}
	return nil
}

// sameStore refuses a policy that names another store than the one that counts:
// changing it would give every caller full limits. A policy that names none goes
// on with the one that is open, and it is said when a restart would change that.
func (s *server) sameStore(p *policy.Policy) error {
	if s.o.storeOf == nil {
		return nil
	}
	text := s.o.storeOf(p)
	if text == s.o.url.text {
		return nil
	}
	next, err := parseStore(text) // shows no password
	switch {
	case err != nil:
		return err
	case p.Store() != "":
		return fmt.Errorf("the store cannot change while the proxy runs: it is %s, and the policy names %s; restart the proxy to move, or put the old store back", s.o.url.String(), next.String())
	}
	s.o.log.Warn("the policy's store is another one now: counts stay where they are until a restart", "store", s.o.url.String(), "after_restart", next.String())
	return nil
}

// changedCounters names the limits of a policy of which nothing can be used yet,
// whatever callers used under the last one, and those that are gone.
func changedCounters(ctx context.Context, old, next *policy.Policy) (fresh, gone []string, err error) {
	for _, r := range next.Rules() {
		known := r.Mode == policy.Off || slices.Contains(fresh, r.Name)
		for _, o := range old.Rules() {
			if known {
				break
			}
			if known, err = sameCounter(ctx, o, r, old.EdgeShared() == next.EdgeShared()); err != nil {
				return nil, nil, err
			}
		}
		if !known {
			fresh = append(fresh, r.Name)
		}
	}
	for _, r := range old.Rules() {
		stays := func(n *policy.Rule) bool { return n.Name == r.Name && n.Mode != policy.Off }
		if r.Mode != policy.Off && !slices.ContainsFunc(next.Rules(), stays) && !slices.Contains(gone, r.Name) {
			gone = append(gone, r.Name)
		}
	}
	return fresh, gone, nil
}

// sameCounter reports whether what was used under one rule is used under another.
// It tries that out: who counts, and not how, is known here.
func sameCounter(ctx context.Context, before, after *policy.Rule, edgeStays bool) (same bool, err error) {
	edge := before.Layer == policy.Edge
	if before.Mode == policy.Off || before.Name != after.Name || before.By != after.By ||
		edge != (after.Layer == policy.Edge) || edge && !edgeStays {
		return false, nil
	}
	return carriesOver(ctx, weir.Op{Limit: before.Limit, Shadow: before.Mode == policy.Shadow}, weir.Op{Limit: after.Limit, Shadow: after.Mode == policy.Shadow})
}

// carriesOver reports whether what one op takes of a key is used of another's limit
// too: it takes, in a store of its own, and looks.
func carriesOver(ctx context.Context, before, after weir.Op) (same bool, err error) {
	now := time.Now().UnixNano()
	m := memstore.New(memstore.Options{MaxKeys: 1, Now: func() int64 { return now }})
	defer func() { err = errors.Join(err, m.Close()) }()
	l := weir.NewLimiter(m, weir.Options{Now: func() int64 { return now }})
	before.Key = weir.NewKey("caller", "any")
	after.Key = before.Key
	if _, err := l.Take(ctx, before); err != nil {
		return false, err
	}
	seen, err := l.Peek(ctx, after)
	return err == nil && seen[0].Used > 0, err
}
