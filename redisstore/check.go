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
	if err := s.trial(ctx, client); err != nil {
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

// trial does what deciding does, with two keys that no caller has: it writes to
// both in one script and finds each by itself.
func (s *Store) trial(ctx context.Context, client rueidis.Client) error {
	const what = "check"
	const field = "check.c"
	one := func(verb int64) (w packed, values int) {
		w.int(1)
		w.nonce(0)
		w.decimal(milliseconds(time.Second))
		w.int(0)
		w.int(1)
		w.string(field)
		w.int(verb)
		w.string("1")
		w.int(0)
		return w, 9
	}
	calls := make([]*call, 2)
	for i := range calls {
		calls[i] = &call{key: s.prefix + "check##" + rand.Text()}
		calls[i].writes, calls[i].values = one(verbPut)
	}
	if s.batches.together(client) {
		s.batches.send(ctx, client, &flight{batch: calls})
	} else {
		s.batches.send(ctx, client, &flight{batch: calls[:1]})
		s.batches.send(ctx, client, &flight{batch: calls[1:]})
	}
	for i, c := range calls {
		if c.err != nil {
			return s.explain(what, c.err)
		}
		c.writes, c.values = one(verbDrop)
		s.batches.send(ctx, client, &flight{batch: calls[i : i+1]})
		if c.err != nil {
			return s.explain(what, c.err)
		}
		if !strings.HasPrefix(c.text, field+" 1 ") {
			return s.errorf(what, "a field that was written is not there; if a proxy shares keys out to several servers, set OneByOne, in a URL one_by_one=true")
		}
	}
	return nil
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
