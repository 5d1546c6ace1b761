package dynamostore_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/plan"
)

// Whatever another program has put into an attribute of a limit is an error of that
// item, and a reset mends it. One of another limit that can't be read either is in
// its way, and nothing is reset then.
func TestSpoiledAttributes(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		client := clientOf(t, server, nil)
		limits := []weir.Limit{parse(t, "seats", "5/h"), parse(t, "orders", "quota 5/h"), parse(t, "visits", "quota 5/day calendar")}
		at := newClock(someDay)
		store := open(t, client, dynamostore.Options{Now: at.now})
		l := limiterOn(store, weir.Options{Limits: limits, Now: at.now, Deadline: 10 * time.Second})
		key := weir.NewKey("account", "customer-42")
		table, pk := tableOf(t), key.String()
		set := func(name string, v types.AttributeValue) {
			t.Helper()
			if _, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
				TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}, UpdateExpression: aws.String("SET #n = :v"),
				ExpressionAttributeNames: map[string]string{"#n": name}, ExpressionAttributeValues: map[string]types.AttributeValue{":v": v},
			}); err != nil {
				t.Fatal(err)
			}
		}
		takes := func() error {
			var ops []weir.Op
			for _, limit := range limits {
				ops = append(ops, weir.Op{Limit: limit, Key: key, OnFail: weir.FailError})
			}
			_, err := l.Take(t.Context(), ops...)
			return err
		}
		text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
		number := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
		var spoiled *weir.SpoiledError
		for _, v := range []types.AttributeValue{text("5"), number("2000000000000000000.5"), number("1e30"), &types.AttributeValueMemberNULL{Value: true}, &types.AttributeValueMemberNS{Value: []string{"1"}}} {
			for i, name := range []string{"seats.t", "orders.c"} {
				set(name, v)
				if err := takes(); !errors.As(err, &spoiled) {
					t.Errorf("%s is %+v: a take: %v", name, v, err)
				}
				if _, err := l.Peek(t.Context(), weir.Op{Limit: limits[2], Key: key}); !errors.As(err, &spoiled) || spoiled.Field != name || len(spoiled.More) != 0 {
					t.Errorf("%s is %+v: a look: %v", name, v, err)
				}
				if err := l.Reset(t.Context(), key, limits[i]); err != nil {
					t.Errorf("%s is %+v: a reset: %v", name, v, err)
				}
				if err := takes(); err != nil {
					t.Errorf("%s is %+v: a take after a reset: %v", name, v, err)
				}
			}
			if err := l.Reset(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		set("seats.t", text("x")) // and the others go on
		for n := range 7 {
			d, err := l.Take(t.Context(), weir.Op{Limit: limits[1], Key: key, OnFail: weir.FailDeny})
			if err != nil || d.Degraded || d.Allowed != (n < 5) || d.Used != int64(min(n+1, 5)) {
				t.Errorf("take %d beside a spoiled limit: %+v, %v", n, d, err)
			}
			if d, err := l.Take(t.Context(), weir.Op{Limit: limits[0], Key: key, OnFail: weir.FailDeny}); err != nil || d.Allowed || !d.Degraded {
				t.Errorf("a take of a spoiled limit: %+v, %v", d, err)
			}
		}
		fresh := limiterOn(store, weir.Options{Limits: limits, Now: at.now, Deadline: 10 * time.Second, NoMemo: true})
		for n := range 4 { // a fraction is the integer above it, and nobody is charged who is not let through
			set("orders.c", number([]string{"1.5", "3.25", "4.5", "5.5"}[n]))
			d, err := fresh.Take(t.Context(), weir.Op{Limit: limits[1], Key: key, OnFail: weir.FailDeny})
			held := item(t, client, table, pk)["orders.c"].(*types.AttributeValueMemberN).Value
			if want := []string{"2.5", "4.25", "4.5", "5.5"}[n]; err != nil || d.Allowed != (n < 2) || n < 2 && d.Used != int64(3+2*n) || held != want {
				t.Errorf("take %d of a fraction: %+v, %v; then %s", n, d, err, held)
			}
		}
		set("orders.c", text("x"))
		before := item(t, client, table, pk)
		for _, limit := range limits {
			if err := l.Reset(t.Context(), key, limit); !errors.As(err, &spoiled) || spoiled.Field != "orders.c" || !slices.Equal(spoiled.More, []string{"seats.t"}) {
				t.Errorf("a reset of one limit of two that are spoiled: %v", err)
			}
		}
		if after := item(t, client, table, pk); !reflect.DeepEqual(before, after) {
			t.Errorf("it left\n%v of\n%v", after, before)
		}
		if err := l.Reset(t.Context(), key, limits[:2]...); err != nil {
			t.Error(err)
		}
		if err := takes(); err != nil {
			t.Error(err)
		}
	})
}

// A write for which the time is not right is not sent. What has been read instead is an
// answer to it, of which others that are spoiled are no part.
func TestSpoiledNeighbourOfAWriteOutOfTime(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		client := clientOf(t, server, nil)
		at := newClock(someDay)
		store := open(t, client, dynamostore.Options{Now: at.now})
		key := weir.NewKey("account", "customer-42")
		sound, junk := parse(t, "sound", "quota 5/h"), parse(t, "junk", "quota 5/h")
		l := limiterOn(store, weir.Options{Limits: []weir.Limit{sound, junk}, Now: at.now, Deadline: 10 * time.Second})
		take(t, l, weir.Op{Limit: sound, Key: key}, weir.Op{Limit: junk, Key: key})
		table := tableOf(t)
		if _, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key.String()}}, UpdateExpression: aws.String("SET #n = :v"),
			ExpressionAttributeNames: map[string]string{"#n": "junk.c"}, ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberS{Value: "x"}},
		}); err != nil {
			t.Fatal(err)
		}
		field, ok := weir.ParseField("sound.c")
		if !ok {
			t.Fatal("sound.c is unknown")
		}
		var state weir.Cells
		late := weir.Write{
			If: []weir.Cond{{Field: weir.Field{Kind: plan.Clock}, Cmp: plan.AtMost, Value: at.now() - 1}},
			Do: []weir.Act{{Field: field, Do: plan.Add, Value: 1}},
		}
		applied, _, err := store.Apply(t.Context(), key, []weir.Write{late}, &state)
		if used, _ := state.Get(field); applied != -1 || err != nil || used != 1 {
			t.Errorf("applied %d, %d are used, %v", applied, used, err)
		}
	})
}
