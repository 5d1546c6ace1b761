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

	"github.com/weirlabs/weir/internal/plan"
)

// Check looks at the server, or at every node of a cluster, once, for a start-up
// or a command. An error means that limits can't be kept there; warnings say
// what will go wrong later. It tries whether the user may do all that deciding
// needs on every node, makes a trial of it, on keys that it removes again, and
// reads INFO: a user who may not do that, or not read records, gets a warning.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	client, err := s.client(ctx)
	if err != nil {
		return nil, s.explain("check", err)
	}
	nodes := client.Nodes()
	addrs := slices.Sorted(maps.Keys(nodes))
	for _, addr := range addrs {
		records, err := s.rights(ctx, nodes[addr], addr, client.Mode() == rueidis.ClientModeCluster)
		if err != nil {
			return nil, err
		}
		if !records {
			warnings = append(warnings, fmt.Sprintf("redis %s: what is said of accounts, such as bans and limits of their own, can't be read, without which weir proxy does not start; %s", addr, lacksRights("+hmget")))
		}
	}
	if err := s.trial(ctx, client); err != nil {
		return nil, err
	}
	for _, addr := range addrs {
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
	begin := func(c *call, guards int) {
		c.writes = encoded{}
		c.writes.op(1)
		c.writes.begin(0, milliseconds(time.Second), guards, 1)
	}
	name := func(c *call) {
		c.writes.op(0)
		c.writes.value(field)
	}
	calls := make([]*call, 2)
	for i := range calls {
		calls[i] = &call{key: s.prefix + "check##" + rand.Text()}
		begin(calls[i], 0)
		calls[i].writes.op(verbPut)
		name(calls[i])
		calls[i].writes.value("1")
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
		begin(c, 1) // removes what was written
		c.writes.op(int(plan.Equal) | opText)
		name(c)
		c.writes.value("1")
		c.writes.op(verbDrop)
		c.writes.op(0)
		s.batches.send(ctx, client, &flight{batch: calls[i : i+1]})
		if c.err != nil {
			return s.explain(what, c.err)
		}
		if c.text != "0 " {
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
