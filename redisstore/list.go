package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
)

var _ weir.Lister = (*Store)(nil)

// pageTrips is how many times a page of keys asks a server at most.
const pageTrips = 16

// ListKeys implements [weir.Lister]. It scans every primary: it is for the
// program, never for the path of a request. As SCAN does, it may give a key
// twice while the server grows or shrinks its tables, and it needs +scan, +role.
// Without a prefix of the store's own, hashes of other programs whose names look
// like keys are listed as well.
func (s *Store) ListKeys(ctx context.Context, prefix, cursor string, max int) (keys []weir.Key, next string, err error) {
	next, err = s.scan(ctx, scan{what: "list keys", begin: s.prefix + prefix, max: max, trips: pageTrips}, cursor, func(text string) bool {
		key, ok := weir.ParseKey(strings.TrimPrefix(text, s.prefix))
		if ok { // records and trials are none
			keys = append(keys, key)
		}
		return ok
	})
	if err != nil {
		return nil, "", err
	}
	return keys, next, nil
}

// scan is what a listing looks for.
type scan struct {
	what  string // for errors
	begin string // of the names of the hashes
	max   int    // that are taken
	trips int    // that are made
}

// position is where a listing goes on: on a node, at its SCAN cursor, after the
// names that a SCAN gave beyond those that were asked for.
type position struct {
	Node   string   `json:"n"`
	Cursor uint64   `json:"c,omitempty"`
	Left   []string `json:"l,omitempty"`
}

// scan gives the names of hashes to take, which says whether one counts, until
// enough were taken or enough trips made.
func (s *Store) scan(ctx context.Context, l scan, cursor string, take func(name string) bool) (next string, err error) {
	if l.max <= 0 {
		return "", s.errorf(l.what, "at most %d keys were asked for; ask for 1 or more", l.max)
	}
	var at position
	if cursor != "" {
		if err := json.Unmarshal([]byte(cursor), &at); err != nil {
			return "", s.errorf(l.what, "the cursor is none that was given (%w)", err)
		}
	}
	client, err := s.client(ctx)
	if err != nil {
		return "", s.explain(l.what, err)
	}
	primaries, err := s.primaries(ctx, client)
	if err != nil {
		return "", s.explain(l.what, err)
	}
	pattern, taken, trips := literal(l.begin)+"*", 0, 0
	for _, node := range slices.Sorted(maps.Keys(primaries)) {
		if node < at.Node {
			continue
		}
		if node > at.Node {
			at = position{Node: node}
		}
		for first := true; first || at.Cursor != 0 || len(at.Left) > 0; first = false {
			if len(at.Left) == 0 {
				if trips == l.trips {
					return at.text(), nil
				}
				if err := s.scanOnce(ctx, l.what, primaries[node], pattern, min(l.max, 1000), &at); err != nil {
					return "", err
				}
				trips++
			}
			for len(at.Left) > 0 && taken < l.max {
				if take(at.Left[0]) {
					taken++
				}
				at.Left = at.Left[1:]
			}
			if taken == l.max {
				return s.resume(at, primaries), nil
			}
		}
	}
	return "", nil
}

// scanOnce is one SCAN, whose names it leaves in at.
func (s *Store) scanOnce(ctx context.Context, what string, node rueidis.Client, pattern string, count int, at *position) error {
	began := time.Now()
	entry, err := node.Do(ctx, node.B().Scan().Cursor(at.Cursor).Match(pattern).Count(int64(count)).Type("hash").Build()).AsScanEntry()
	if err != nil {
		err = s.explain(what, err)
	}
	s.trip(ctx, weir.Trip{Took: time.Since(began), Err: err})
	if err != nil {
		return err
	}
	at.Cursor, at.Left = entry.Cursor, entry.Elements
	slices.Sort(at.Left)
	at.Left = slices.Compact(at.Left)
	return nil
}

// text is the cursor of a position.
func (at position) text() string {
	text, _ := json.Marshal(at) // strings and a number
	return string(text)
}

// resume is the cursor behind what was taken, and "" at the end of the last node.
func (s *Store) resume(at position, primaries map[string]rueidis.Client) string {
	if at.Cursor == 0 && len(at.Left) == 0 {
		later := ""
		for node := range primaries {
			if node > at.Node && (later == "" || node < later) {
				later = node
			}
		}
		if later == "" {
			return ""
		}
		at = position{Node: later}
	}
	return at.text()
}

// primaries are the nodes that hold keys of their own.
func (s *Store) primaries(ctx context.Context, client rueidis.Client) (map[string]rueidis.Client, error) {
	nodes := client.Nodes()
	if client.Mode() != rueidis.ClientModeCluster {
		return nodes, nil
	}
	for addr, node := range nodes {
		role, err := node.Do(ctx, node.B().Role().Build()).ToArray()
		if err != nil {
			return nil, err
		}
		if len(role) == 0 {
			return nil, fmt.Errorf("ROLE of %s is empty", addr)
		}
		if name, _ := role[0].ToString(); name != "master" {
			delete(nodes, addr)
		}
	}
	if len(nodes) == 0 {
		return nil, errors.New("the cluster has no primaries")
	}
	return nodes, nil
}

// literal is a pattern that matches a text only.
func literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}
