package weir_test

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/redis/rueidis"
	bolt "go.etcd.io/bbolt"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/redisstore"
)

// The steps and the seed of TestStoresAgree; make parity takes 100,000 steps.
const (
	stepsVariable = "WEIR_PARITY_STEPS"
	seedVariable  = "WEIR_PARITY_SEED"
	fewSteps      = 500
)

var parityKeys = []weir.Key{someone, weir.NewKey("account", "b"), weir.NewKey("account", "b", "event", "1")}

// kept is a store, and what its own foreign client finds of a key in it: the
// fields of limits, by name.
type kept struct {
	name  string
	store weir.Store
	read  func(weir.Key) map[string]int64
}

// One random script gives the same decisions on every store, step by step, and
// leaves the same in it. What is left is read with a client that is not weir's.
func TestStoresAgree(t *testing.T) {
	number := func(variable string, otherwise uint64) uint64 {
		text := os.Getenv(variable)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}
	steps, seed := int(number(stepsVariable, fewSteps)), number(seedVariable, rand.Uint64())
	slow := limit(t, "1/h burst 30", "slow")
	limits := append(scriptLimits(t, false), slow)
	var first *script
	var left map[weir.Key]map[string]int64 // in the first store that is not in this process
	for _, open := range []func(*testing.T, *clock) kept{inMemory, inFile, inRedis, inDynamo} {
		c := newClock()
		k := open(t, c)
		began := time.Now()
		// Two processes. Every decision is the store's, at its time: a memo is a
		// second old.
		o := weir.Options{Deadline: patient, Now: c.now, NoCoalescing: true}
		lim, other := weir.NewLimiter(k.store, o), weir.NewLimiter(k.store, o)
		s := &script{place: &place{TB: t, clock: c, Limiter: lim}, others: []*weir.Limiter{other}, random: rand.New(rand.NewPCG(seed, 41)), limits: limits, grain: time.Microsecond}
		for range steps {
			s.step()
		}
		for _, key := range parityKeys { // whatever the script did last, something is in use
			d, err := s.Take(context.Background(), weir.Op{Limit: slow, Key: key})
			s.note("take", d, err)
		}
		if first == nil {
			first = s
		}
		differing := 0
		for i := range first.lines {
			// Where one op can never be allowed, a remote store is not asked at all.
			if i < len(s.lines) && (s.lines[i] == first.lines[i] || s.lines[i].d.Reason == weir.ReasonNotAsked) {
				continue
			}
			if differing++; differing == 1 {
				t.Errorf("%s, line %d:\n%+v, in memory\n%+v\nrepeat with %s=%d %s=%d", k.name, i, first.lines[i], s.lines[min(i, len(s.lines)-1)], seedVariable, seed, stepsVariable, steps)
			}
		}
		if len(s.lines) != len(first.lines) {
			t.Errorf("%s: %d lines, in memory %d", k.name, len(s.lines), len(first.lines))
		}
		t.Logf("%s: %d steps of seed %d, %d decisions, %d differing, in %v", k.name, steps, seed, len(s.lines), differing, time.Since(began).Round(time.Millisecond))
		if k.read == nil {
			continue
		}
		if err := k.store.Close(); err != nil {
			t.Fatal(err)
		}
		found := map[weir.Key]map[string]int64{}
		for _, key := range parityKeys {
			found[key] = k.read(key)
			if len(found[key]) == 0 {
				t.Errorf("%s holds nothing of %v", k.name, key)
			}
		}
		sameMeaning(t, k.name, found, first, c)
		if k.name == "boltstore" {
			continue // it does not write what means nothing any more
		}
		if left == nil {
			left = found
		}
		for key, fields := range found {
			if !maps.Equal(fields, left[key]) {
				t.Errorf("%s holds of %v\n%v, and another store\n%v", k.name, key, fields, left[key])
			}
		}
	}
}

// sameMeaning puts what was read from a store into memory, and asks every limit
// what it makes of it.
func sameMeaning(t *testing.T, name string, found map[weir.Key]map[string]int64, first *script, c *clock) {
	t.Helper()
	ctx := context.Background()
	store := memstore.New(memstore.Options{Now: c.now})
	for key, fields := range found {
		var w weir.Write
		for text, v := range fields {
			f, ok := weir.ParseField(text)
			if !ok {
				t.Fatalf("%s: field %q is nobody's", name, text)
			}
			w.Do = append(w.Do, weir.Act{Field: f, Do: weir.Put, Value: v})
		}
		if _, _, err := store.Apply(ctx, key, []weir.Write{w}, new(weir.Cells)); err != nil {
			t.Fatal(err)
		}
	}
	copied := weir.NewLimiter(store, weir.Options{})
	asked, held := 0, 0
	for _, key := range parityKeys {
		for _, l := range first.limits {
			for _, shadow := range []bool{false, true} {
				op := weir.Op{Limit: l, Key: key, Shadow: shadow}
				want, err1 := first.Peek(ctx, op)
				got, err2 := copied.Peek(ctx, op)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				if asked++; want[0].Used > 0 {
					held++
				}
				if got[0] != want[0] {
					t.Errorf("%s: what is left of %v means for %v\n%+v, in memory\n%+v", name, key, l, got[0], want[0])
				}
			}
		}
	}
	if held == 0 {
		t.Errorf("%s: of %d balances none is in use: the comparison is worth nothing", name, asked)
	}
}

func inMemory(_ *testing.T, c *clock) kept {
	return kept{name: "memstore", store: memstore.New(memstore.Options{Now: c.now})}
}

// inFile reads with bbolt: items stand in packs, behind 8 bytes, each with its
// key and payload behind the sizes of both. A payload is 8 bytes, then for each
// field a number of a name with a bit for a window, the window, and the value, as
// varints. A pack ends in 4 bytes of checksum.
func inFile(t *testing.T, c *clock) kept {
	path := filepath.Join(t.TempDir(), "weir.db")
	store, err := boltstore.Open(path, boltstore.Options{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return kept{"boltstore", store, func(key weir.Key) map[string]int64 {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		fields := map[string]int64{}
		err = db.View(func(tx *bolt.Tx) error {
			var item []byte
			err := tx.Bucket([]byte("items")).ForEach(func(_, pack []byte) error {
				for rest := pack[:len(pack)-4]; len(rest) > 0; {
					size, n := binary.Uvarint(rest)
					its, behind := string(rest[n:n+int(size)]), rest[n+int(size):]
					end := 4 + binary.BigEndian.Uint32(behind)
					if its == key.String() {
						item = behind[4:end]
					}
					rest = behind[end:]
				}
				return nil
			})
			if err != nil || len(item) < 8 {
				return fmt.Errorf("the item of %v has %d bytes, %v", key, len(item), err)
			}
			for rest := item[8:]; len(rest) > 0; {
				tag, n := binary.Uvarint(rest)
				rest = rest[n:]
				text := tx.Bucket([]byte("names")).Get(binary.BigEndian.AppendUint32(nil, uint32(tag>>1)))
				name := string(text[:len(text)-4])
				if tag&1 == 1 {
					window, n := binary.Uvarint(rest)
					name, rest = name+strconv.FormatUint(window, 10), rest[n:]
				}
				v, n := binary.Varint(rest)
				fields[name], rest = v, rest[n:]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return fields
	}}
}

// No store can remove a field twice in one write.
func TestResetOfLimitsThatShareCounters(t *testing.T) {
	for _, open := range []func(*testing.T, *clock) kept{inMemory, inFile, inRedis, inDynamo} {
		c := newClock()
		k := open(t, c)
		lim := weir.NewLimiter(k.store, weir.Options{Deadline: patient, Now: c.now})
		key := weir.NewKey("account", "a")
		one, other := limit(t, "quota 5/d", "shared"), limit(t, "quota 9/d", "shared")
		if d, err := lim.Take(t.Context(), weir.Op{Limit: one, Key: key, Cost: 5}); err != nil || !d.Allowed {
			t.Fatal(k.name, d, err)
		}
		if err := lim.Reset(t.Context(), key, one, other); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
		if d, err := lim.Take(t.Context(), weir.Op{Limit: one, Key: key, Cost: 5}); err != nil || !d.Allowed {
			t.Errorf("%s: after a reset: %+v, %v", k.name, d, err)
		}
	}
}

// inRedis reads with redis-cli. The clock of a server can't be set: the script
// that decides is told the time instead.
func inRedis(t *testing.T, c *clock) kept {
	server := redistest.Start(t, redistest.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := redisstore.New(&toldTheTime{Client: client, tb: t, now: c.now, known: map[string]string{}}, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return kept{"redisstore", store, func(key weir.Key) map[string]int64 {
		words := strings.Fields(server.Do(t, "HGETALL", key.String()))
		fields := map[string]int64{}
		for i := 0; i+1 < len(words); i += 2 {
			v, err := strconv.ParseInt(words[i+1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			fields[words[i]] = v
		}
		return fields
	}}
}

// toldTheTime is a client that replaces, in each script, the server's time by
// one that it sends along.
type toldTheTime struct {
	rueidis.Client
	tb  testing.TB
	now func() int64

	mu    sync.Mutex
	known map[string]string // the changed script's name, by that of the original
}

func (c *toldTheTime) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	all := make([]rueidis.RedisResult, len(commands))
	for i, cmd := range commands {
		all[i] = c.Do(ctx, cmd)
	}
	return all
}

func (c *toldTheTime) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	const timed, told = "local T=call('TIME')", "local T={ARGV[#ARGV-1],ARGV[#ARGV]}"
	words := cmd.Commands()
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := words[1]
	switch words[0] {
	case "EVALSHA":
		if c.known[asked] == "" {
			return c.Client.Do(ctx, cmd) // the server does not know it either
		}
	case "EVAL":
		sum := sha1.Sum([]byte(words[1]))
		asked = hex.EncodeToString(sum[:])
		if strings.Count(words[1], timed) != 1 {
			c.tb.Errorf("a script does not ask for the time by %q", timed)
		}
		sha, err := c.Client.Do(ctx, c.B().ScriptLoad().Script(strings.Replace(words[1], timed, told, 1)).Build()).ToString()
		if err != nil {
			c.tb.Error(err)
		}
		c.known[asked] = sha
	default:
		return c.Client.Do(ctx, cmd)
	}
	keys, err := strconv.Atoi(words[2])
	if err != nil {
		c.tb.Error(err)
	}
	now := c.now()
	args := append(words[3+keys:len(words):len(words)], strconv.FormatInt(now/1e9, 10), strconv.FormatInt(now%1e9/1e3, 10))
	return c.Client.Do(ctx, c.B().Evalsha().Sha1(c.known[asked]).Numkeys(int64(keys)).Key(words[3:3+keys]...).Arg(args...).Build())
}

// inDynamo reads with AWS's SDK.
func inDynamo(t *testing.T, c *clock) kept {
	server := dynalite.Start(t, dynalite.Options{})
	client, err := dynamostore.NewClient(context.Background(), "us-east-1", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const table = "parity"
	store, err := dynamostore.New(client, dynamostore.Options{Table: table, Now: c.now})
	if err == nil {
		err = store.Create(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return kept{"dynamostore", store, func(key weir.Key) map[string]int64 {
		out, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{
			TableName: aws.String(table), ConsistentRead: aws.Bool(true),
			Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key.String()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]int64{}
		for name, value := range out.Item {
			n, ok := value.(*types.AttributeValueMemberN)
			if !ok || !strings.Contains(name, ".") {
				continue // the key, the expiry and nonces
			}
			v, err := strconv.ParseInt(n.Value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			fields[name] = v
		}
		return fields
	}}
}
