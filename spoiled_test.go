package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// spoiling is a server to whose items another program writes as well.
type spoiling struct {
	*testing.T
	store  weir.Store
	fields func(weir.Key) []string
	set    func(key weir.Key, field, value string)
	drop   func(key weir.Key, field string)
	junk   []string // what is no integer, and what a script or DynamoDB takes for a number all the same
}

// onSpoiling runs a test on each server, on Redis with lost replies that are found
// out and without.
func onSpoiling(t *testing.T, test func(s *spoiling)) {
	for _, resend := range []bool{false, true} {
		t.Run(fmt.Sprintf("redis, resend=%v", resend), func(t *testing.T) { test(spoilingRedis(t, resend)) })
	}
	t.Run("dynamodb", func(t *testing.T) { test(spoilingDynamo(t)) })
}

func spoilingRedis(t *testing.T, resend bool) *spoiling {
	server := redistest.Start(t, redistest.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := redisstore.New(client, redisstore.Options{Resend: resend})
	if err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) rueidis.RedisResult {
		t.Helper()
		r := client.Do(context.Background(), client.B().Arbitrary(args...).Build())
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	return &spoiling{t, store, func(key weir.Key) []string {
		names, err := do("HKEYS", key.String()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		return names
	}, func(key weir.Key, field, value string) {
		do("HSET", key.String(), field, value)
	}, func(key weir.Key, field string) {
		do("HDEL", key.String(), field)
	}, []string{"abc", "", "1e0", "5 "}}
}

func spoilingDynamo(t *testing.T) *spoiling {
	server := dynalite.Start(t, dynalite.Options{})
	client, err := dynamostore.NewClient(context.Background(), "us-east-1", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const table = "spoiled"
	store, err := dynamostore.New(client, dynamostore.Options{Table: table})
	if err == nil {
		err = store.Create(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	update := func(key weir.Key, expression, field string, values map[string]types.AttributeValue) {
		t.Helper()
		if _, err := client.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
			TableName: aws.String(table), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key.String()}},
			UpdateExpression: &expression, ExpressionAttributeNames: map[string]string{"#f": field}, ExpressionAttributeValues: values,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return &spoiling{t, store, func(key weir.Key) []string {
		out, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{
			TableName: aws.String(table), ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key.String()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Collect(maps.Keys(out.Item))
	}, func(key weir.Key, field, value string) {
		var v types.AttributeValue = &types.AttributeValueMemberN{Value: value}
		if value == "abc" {
			v = &types.AttributeValueMemberS{Value: value}
		}
		update(key, "SET #f = :v", field, map[string]types.AttributeValue{":v": v})
	}, func(key weir.Key, field string) {
		update(key, "REMOVE #f", field, nil)
	}, []string{"abc", "1e30"}}
}

// of is the fields of an op's limit.
func (s *spoiling) of(op weir.Op) []string {
	name := op.Limit.Name() + "."
	if op.Shadow {
		name = op.Limit.Name() + "~."
	}
	return slices.DeleteFunc(s.fields(op.Key), func(field string) bool { return !strings.HasPrefix(field, name) })
}

// spoil puts something else in the place of what is counted of an op's limit.
func (s *spoiling) spoil(op weir.Op, value string) {
	s.Helper()
	n := 0
	for _, field := range s.of(op) {
		if _, kind, _ := strings.Cut(field, "."); kind[0] == 'c' || kind[0] == 't' {
			s.set(op.Key, field, value)
			n++
		}
	}
	if n == 0 {
		s.Fatalf("%v has no field to spoil", op.Limit)
	}
}

// mend removes what is counted of an op's limit.
func (s *spoiling) mend(op weir.Op) {
	for _, field := range s.of(op) {
		s.drop(op.Key, field)
	}
}

// spoilt are limits of each kind of one key, none of which refills during a test.
func (s *spoiling) spoilt(key weir.Key) (ops []weir.Op) {
	for i, form := range []string{"quota 100/d", "1/d burst 100", "quota 100/year calendar", "sliding 100/90d"} {
		ops = append(ops, weir.Op{Limit: limit(s, form, fmt.Sprint("limit-", i)), Key: key})
	}
	return ops
}

// Which limits of a call are spoiled: the first, the last, several, and all.
var whichSpoiled = [][]int{{0}, {1}, {2}, {3}, {0, 2}, {1, 3}, {0, 1, 2}, {0, 1, 2, 3}}

// used is what is counted of ops, of which no field is spoiled any more.
func (s *spoiling) used(ops ...weir.Op) (n []int64) {
	s.Helper()
	each, err := weir.NewLimiter(s.store, weir.Options{Deadline: patient}).Peek(s.Context(), ops...)
	if err != nil {
		s.Fatal(err)
	}
	for _, d := range each {
		if d.ResetAfter < time.Minute {
			d.Used = 0 // of a bucket: what refills between two looks at two clocks
		}
		n = append(n, d.Used)
	}
	return n
}

// What a call has taken of limits that can be read is settled, once, though a field of
// another is spoiled since, a shadow's too; that one is the error.
func TestSettleBesideASpoiledField(t *testing.T) {
	onSpoiling(t, func(s *spoiling) {
		lim := weir.NewLimiter(s.store, weir.Options{Deadline: patient})
		costs := [][]int64{{0, 0, 0, 0}, {2, 3, 1, 4}, {7, 8, 6, 9}, {7, 0, 5, 9}}
		for n, junk := range s.junk {
			for _, spoiled := range whichSpoiled {
				for _, shadow := range []bool{false, true} {
					actual := costs[n%len(costs)]
					n++
					what := fmt.Sprintf("%v spoiled with %q, shadows %v, settled at %v", spoiled, junk, shadow, actual)
					ops := s.spoilt(weir.NewKey("account", what))
					for i := range ops {
						ops[i].Cost, ops[i].Shadow = 5, shadow && slices.Contains(spoiled, i)
					}
					r, d, err := lim.Reserve(s.Context(), ops...)
					if err != nil || !d.Allowed {
						s.Fatal(d, err)
					}
					for _, i := range spoiled {
						s.spoil(ops[i], junk)
					}
					err = r.Settle(s.Context(), actual...)
					if changes := slices.ContainsFunc(spoiled, func(i int) bool { return actual[i] != 5 }); changes != errors.As(err, new(*weir.SpoiledError)) {
						s.Errorf("%s: %v", what, err)
					}
					if err := r.Cancel(s.Context()); err != nil {
						s.Errorf("%s: a second time: %v", what, err)
					}
					for _, i := range spoiled {
						s.mend(ops[i])
					}
					for i, used := range s.used(ops...) {
						if !slices.Contains(spoiled, i) && used != actual[i] {
							s.Errorf("%s: %v has used %d", what, ops[i].Limit, used)
						}
					}
				}
			}
		}
	})
}

// A shadow's limit with a spoiled field keeps no limit beside it from being counted
// exactly: neither where the shadow was without room when it was last seen, so that its
// fields are in the write for that, nor where the field is one that no write names. Nor
// do those of the limit's own shadow.
func TestSpoiledShadowBesideALimit(t *testing.T) {
	onSpoiling(t, func(s *spoiling) {
		for _, c := range []struct{ form, field string }{
			{"quota 3/d", ""}, {"3/d burst 3", ""}, {"quota 3/year calendar", ""}, {"sliding 3/90d", ""},
			{"1000/s burst 2", "shadow~.c"}, {"quota 300/d", "shadow~.t"}, {"quota 300/year calendar", "shadow~.c@year/UTC:1735689600"}, {"sliding 300/h", "shadow~.c@1h:1735689600"},
			{"quota 300/d", "counted~.c"}, // as it was while that limit was a shadow
		} {
			key := weir.NewKey("account", c.form+c.field)
			lim := weir.NewLimiter(s.store, weir.Options{Deadline: patient, Observer: &weir.Observer{Failed: func(_ context.Context, op weir.Op, err error) {
				if !op.Shadow {
					s.Errorf("%s, %q: %v", c.form, c.field, err)
				}
			}}})
			ops := []weir.Op{{Limit: limit(s, "quota 20/d", "counted"), Key: key}, {Limit: limit(s, c.form, "shadow"), Key: key, Shadow: true}}
			allowed := 0
			for n := range 30 {
				if d, err := lim.Take(s.Context(), ops...); err != nil {
					s.Error(err)
				} else if d.Allowed {
					allowed++
				}
				switch {
				case n < 5:
				case c.field != "":
					s.set(key, c.field, "abc")
				default:
					for _, field := range s.of(ops[1]) {
						s.set(key, field, "abc")
					}
				}
			}
			if allowed != 20 {
				s.Errorf("%s, %q: %d are allowed", c.form, c.field, allowed)
			}
		}
	})
}
