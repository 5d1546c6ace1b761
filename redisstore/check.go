package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Check looks at the server, or at every node of a cluster, once, for a start-up
// or a command. An error means that limits can't be kept there; warnings say
// what will go wrong later. It makes one trial of everything that deciding
// needs, on a key that it removes again, and reads INFO: a user who may not gets
// a warning.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	client, err := s.client(ctx)
	if err != nil {
		return nil, s.explain("check", err)
	}
	if err := s.trial(ctx); err != nil {
		return nil, err
	}
	nodes := client.Nodes()
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		c := nodes[addr]
		text, err := c.Do(ctx, c.B().Info().Build()).ToString()
		if e, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(e.Error(), "NOPERM") {
			warnings = append(warnings, fmt.Sprintf("redis %s: its eviction policy was not checked, since the user may not call INFO", addr))
			continue
		}
		if err != nil {
			return warnings, s.explain("check: INFO of "+addr, err)
		}
		warnings = append(warnings, examine(addr, text)...)
	}
	return warnings, nil
}

// trial does what deciding does, with a key that no caller has.
func (s *Store) trial(ctx context.Context) error {
	const what = "check"
	key := s.prefix + "check##" + rand.Text()
	field := "check.c"
	for _, step := range []struct {
		act  packed
		want string // of the item before
	}{
		{trialAct(field, verbPut, "1"), ""},
		{trialAct(field, verbDrop, "0"), field + " 1 "},
		{nil, ""},
	} {
		var b packed
		if step.act == nil {
			b.int(0)
		} else {
			b.int(1)
			b.nonce(0)
			b.decimal(milliseconds(time.Second))
			b.int(0)
			b.int(1)
			b = append(b, step.act...)
		}
		text, err := s.eval(ctx, &s.take, key, string(b)).ToString()
		if err != nil {
			return s.explain(what, err)
		}
		if !strings.HasPrefix(text, step.want) || strings.Count(text, " ") != 2+strings.Count(step.want, " ") {
			return s.errorf(what, "a field that was written reads as %q; the server, or a proxy before it, does not do what Redis does", text)
		}
	}
	return nil
}

func trialAct(field string, verb int64, value string) (b packed) {
	b.string(field)
	b.int(verb)
	b.string(value)
	b.int(0)
	return b
}

// examine reads one node's INFO.
func examine(addr, info string) (warnings []string) {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	if policy := facts["maxmemory_policy"]; policy == "" {
		warnings = append(warnings, fmt.Sprintf("redis %s: it does not say its eviction policy; it must be noeviction, or full memory makes it forget what callers have used", addr))
	} else if policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("redis %s: its eviction policy is %s, so full memory makes it forget what callers have used; set maxmemory-policy noeviction", addr, policy))
	}
	if major, _, _ := strings.Cut(facts["redis_version"], "."); major != "" {
		if n, err := strconv.Atoi(major); err == nil && n < 6 {
			warnings = append(warnings, fmt.Sprintf("redis %s: version %s is not tested; use 6.2 or newer", addr, facts["redis_version"]))
		}
	}
	return warnings
}
