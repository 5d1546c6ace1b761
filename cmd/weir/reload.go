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

// reloadOnHangup reads the policy again at every SIGHUP. The func that it
// returns ends that.
func reloadOnHangup(ctx context.Context, s *server) (stop func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-hangup:
				if err := s.reload(ctx); err != nil {
					s.o.log.Error("the policy was not reloaded; the one in force stays", "err", err)
				} else {
					s.o.log.Info("the policy was reloaded", "revision", s.engine.Policy().Revision())
				}
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

// reload puts the policy file in force again. On an error the old one stays. It
// says what does not follow the file, and who begins with a full limit by it.
func (s *server) reload(ctx context.Context) error {
	old := s.engine.Policy()
	p, err := s.o.load()
	if err != nil {
		return err
	}
	v, err := verifierOf(ctx, p.Auth(), s.o.auth)
	if err != nil {
		return err
	}
	if err := s.engine.Reload(p); err != nil {
		return err
	}
	s.verifier.Store(v)
	for _, w := range p.Warnings() {
		s.o.log.Warn("policy: "+w.Message, "at", placeOf(w))
	}
	if s.o.storeOf != nil {
		if text := s.o.storeOf(p); text != s.o.url.text {
			next, err := parseStore(text) // may show no password
			if err == nil {
				s.o.log.Warn("the policy's store is another one now: counts stay where they are until a restart", "store", s.o.url.String(), "after_restart", next.String())
			}
		}
	}
	fresh, gone, err := changedCounters(ctx, old, p)
	if err != nil {
		return fmt.Errorf("the policy is in force, but not compared with the last one: %w", err)
	}
	if len(fresh)+len(gone) > 0 {
		s.o.log.Warn("limits whose name, caller, mode, algorithm or window is new start with nothing used", "limits", strings.Join(fresh, ", "), "gone", strings.Join(gone, ", "))
	}
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
	now := time.Now().UnixNano()
	m := memstore.New(memstore.Options{MaxKeys: 1, Now: func() int64 { return now }})
	defer func() { err = errors.Join(err, m.Close()) }()
	l := weir.NewLimiter(m, weir.Options{Now: func() int64 { return now }})
	op := weir.Op{Key: weir.NewKey("caller", "any"), Limit: before.Limit, Shadow: before.Mode == policy.Shadow}
	if _, err := l.Take(ctx, op); err != nil {
		return false, err
	}
	op.Limit, op.Shadow = after.Limit, after.Mode == policy.Shadow
	seen, err := l.Peek(ctx, op)
	return err == nil && seen[0].Used > 0, err
}
