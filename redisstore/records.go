package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
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

const putRecord = "put a record"

// putScript stores a record if its version is still ARGV[1]. A version that is
// already ARGV[3] is this very write, sent twice on its way. A new record has no
// time to expire that would have to go. HSET is the command that a server without
// memory refuses, and so comes first; what is then refused says that it was done.
const putScript = `local v=redis.call('HGET',KEYS[1],'version') or ''
if v==ARGV[3] then return 1 end
if v~=ARGV[1] then return 0 end
redis.call('HSET',KEYS[1],'value',ARGV[2],'version',ARGV[3])
local r
if ARGV[4]~='' then r=redis.pcall('PEXPIREAT',KEYS[1],ARGV[4]) elseif v~='' then r=redis.pcall('PERSIST',KEYS[1]) end
if type(r)=='table' and r.err then return {err='WRITTEN '..r.err} end
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
	if answer := answered(err); answer != nil && strings.HasPrefix(answer.Error(), "WRONGTYPE") {
		s.trip(ctx, weir.Trip{Took: time.Since(began)})
		return nil, "", s.noRecord(what, key)
	}
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
		return nil, "", s.noRecord(what, key)
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

// noRecord is the error of a key that is none of weir's, by its name in Redis.
func (s *Store) noRecord(what, key string) error {
	return s.errorf(what, "%w; remove it with: redis-cli DEL '%s'", weir.ErrNoRecord, key)
}

// Put implements [weir.Records] with one script. A value has at most 390 KiB. A
// time to expire is rounded up to whole milliseconds.
func (s *Store) Put(ctx context.Context, key string, value []byte, ifVersion string, expiresAt time.Time) error {
	const what = putRecord
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
	if answer := answered(err); answer != nil && strings.Contains(answer.Error(), "WRITTEN ") {
		err = s.errorf(what, "it is written, but when it goes is as before, or never: %s (%w)", cmp.Or(s.denied(what, answer.Error()), "the server refused it"), err)
	} else if err != nil {
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

// List implements [weir.Records]. It scans every primary, items of callers
// included: it is for the program, never for the path of a request. As SCAN
// does, it may give a key twice while the server grows or shrinks its tables,
// and it needs +scan, +role.
func (s *Store) List(ctx context.Context, prefix, cursor string, max int) (keys []string, next string, err error) {
	from := s.prefix + recordPrefix
	next, err = s.scan(ctx, scan{what: "list records", begin: from + prefix, max: max, trips: math.MaxInt}, cursor, func(key string) bool {
		keys = append(keys, strings.TrimPrefix(key, from))
		return true
	})
	if err != nil {
		return nil, "", err
	}
	return keys, next, nil
}

func (s *Store) recordKey(what, key string) (string, error) {
	if key == "" || len(key) > maxRecordKey {
		return "", s.errorf(what, "a key of %d bytes; 1 to %d are allowed", len(key), maxRecordKey)
	}
	return s.prefix + recordPrefix + key, nil
}
