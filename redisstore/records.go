package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
)

// Records are hashes with keys of their own. No caller's key begins like this:
// the part after the first # is never empty, and # in it is written %23.
const recordPrefix = "record##"

// The fields of a record.
const (
	valueField   = "value"
	versionField = "version"
)

const (
	maxRecordKey = 1024
	maxRecord    = 390 << 10 // as much as every store takes
)

// putScript stores a record if its version is still ARGV[1]. A version that is
// already ARGV[3] is this very write, sent twice on its way.
const putScript = `local v=redis.call('HGET',KEYS[1],'version') or ''
if v==ARGV[3] then return 1 end
if v~=ARGV[1] then return 0 end
redis.call('HSET',KEYS[1],'value',ARGV[2],'version',ARGV[3])
if ARGV[4]=='' then redis.call('PERSIST',KEYS[1]) else redis.call('PEXPIREAT',KEYS[1],ARGV[4]) end
return 1`

// Get implements [weir.Records].
func (s *Store) Get(ctx context.Context, key string) (value []byte, version string, err error) {
	const what = "get a record"
	if key, err = s.recordKey(what, key); err != nil {
		return nil, "", err
	}
	client, err := s.client(ctx)
	if err != nil {
		return nil, "", s.explain(what, err)
	}
	began := time.Now()
	fields, err := client.Do(ctx, client.B().Hmget().Key(key).Field(valueField, versionField).Build()).ToArray()
	if err != nil {
		err = s.explain(what, err)
		s.trip(ctx, weir.Trip{Took: time.Since(began), Err: err})
		return nil, "", err
	}
	s.trip(ctx, weir.Trip{Took: time.Since(began)})
	if len(fields) == 2 && fields[0].IsNil() && fields[1].IsNil() {
		return nil, "", nil
	}
	if len(fields) != 2 || fields[0].IsNil() || fields[1].IsNil() {
		return nil, "", s.errorf(what, "it has no value or no version: it was written by hand or by another program")
	}
	text, err := fields[0].ToString()
	if err == nil {
		version, err = fields[1].ToString()
	}
	if err != nil {
		return nil, "", s.explain(what, err)
	}
	return []byte(text), version, nil
}

// Put implements [weir.Records] with one script. A value has at most 390 KiB. A
// time to expire is rounded up to whole milliseconds.
func (s *Store) Put(ctx context.Context, key string, value []byte, ifVersion string, expiresAt time.Time) error {
	const what = "put a record"
	key, err := s.recordKey(what, key)
	if err != nil {
		return err
	}
	if len(value) > maxRecord {
		return s.errorf(what, "a value of %d bytes; at most %d are allowed", len(value), maxRecord)
	}
	expiry := ""
	if !expiresAt.IsZero() {
		expiry = strconv.FormatInt(expiresAt.Add(time.Millisecond-1).UnixMilli(), 10)
	}
	client, err := s.client(ctx)
	if err != nil {
		return s.explain(what, err)
	}
	if err := ctx.Err(); err != nil {
		return s.explain(what, err)
	}
	began := time.Now()
	stored, err := s.put.eval(ctx, client, []string{key}, ifVersion, rueidis.BinaryString(value), rand.Text(), expiry).AsInt64()
	if err != nil {
		err = s.explainWrite(what, err)
	}
	s.trip(ctx, weir.Trip{Took: time.Since(began), Applied: stored == 1, Err: err})
	if err != nil {
		return err
	}
	if stored != 1 {
		return s.errorf(what, "%w; read it again", weir.ErrConflict)
	}
	return nil
}

// position is where a listing goes on: on a node, at its SCAN cursor, after the
// keys that a SCAN gave beyond those that were asked for.
type position struct {
	Node   string   `json:"n"`
	Cursor uint64   `json:"c,omitempty"`
	Left   []string `json:"l,omitempty"`
}

// List implements [weir.Records]. It scans every primary, items of callers
// included: it is for the program, never for the path of a request. As SCAN
// does, it may give a key twice while the server grows or shrinks its tables,
// and it needs +scan, +role.
func (s *Store) List(ctx context.Context, prefix, cursor string, max int) (keys []string, next string, err error) {
	const what = "list records"
	if max <= 0 {
		return nil, "", s.errorf(what, "at most %d keys were asked for; ask for 1 or more", max)
	}
	var at position
	if cursor != "" {
		if err := json.Unmarshal([]byte(cursor), &at); err != nil {
			return nil, "", s.errorf(what, "the cursor is none that List has given (%w)", err)
		}
	}
	client, err := s.client(ctx)
	if err != nil {
		return nil, "", s.explain(what, err)
	}
	primaries, err := s.primaries(ctx, client)
	if err != nil {
		return nil, "", s.explain(what, err)
	}
	from := s.prefix + recordPrefix
	pattern := literal(from+prefix) + "*"
	for _, node := range slices.Sorted(maps.Keys(primaries)) {
		if node < at.Node {
			continue
		}
		if node > at.Node {
			at = position{Node: node}
		}
		for first := true; first || at.Cursor != 0 || len(at.Left) > 0; first = false {
			if len(at.Left) == 0 && (at.Cursor != 0 || first) {
				c := primaries[node]
				began := time.Now()
				entry, err := c.Do(ctx, c.B().Scan().Cursor(at.Cursor).Match(pattern).Count(int64(min(max, 1000))).Build()).AsScanEntry()
				if err != nil {
					err = s.explain(what, err)
					s.trip(ctx, weir.Trip{Took: time.Since(began), Err: err})
					return nil, "", err
				}
				s.trip(ctx, weir.Trip{Took: time.Since(began)})
				at.Cursor, at.Left = entry.Cursor, entry.Elements
				slices.Sort(at.Left)
				at.Left = slices.Compact(at.Left)
			}
			room := min(max-len(keys), len(at.Left))
			for _, key := range at.Left[:room] {
				keys = append(keys, strings.TrimPrefix(key, from))
			}
			at.Left = at.Left[room:]
			if len(keys) == max {
				return keys, s.resume(at, primaries), nil
			}
		}
	}
	return keys, "", nil
}

// resume is the cursor of a position, and "" at the end of the last node.
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
	text, _ := json.Marshal(at) // strings and a number
	return string(text)
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

func (s *Store) recordKey(what, key string) (string, error) {
	if key == "" || len(key) > maxRecordKey {
		return "", s.errorf(what, "a key of %d bytes; 1 to %d are allowed", len(key), maxRecordKey)
	}
	return s.prefix + recordPrefix + key, nil
}

// literal is a pattern that matches a text only.
func literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}
