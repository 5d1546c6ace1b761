package dynamostore_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
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

// An item reads as the contract says: other programs and people look at it.
func TestItemAsWritten(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	at := newClock(time.Date(2027, 3, 14, 15, 9, 26, 535897932, time.UTC))
	store := open(t, client, dynamostore.Options{Now: at.now})
	rate := parse(t, "reservations", "0.5/s burst 10")
	orders := parse(t, "orders", "quota 50/h")
	l := limiterOn(store, weir.Options{Limits: []weir.Limit{rate, orders}, Now: at.now})
	for id, want := range map[string]string{
		"customer-42":    "account#customer-42",
		"Ab9-_.@:":       "account#Ab9-_.@:",
		"a#b|c d":        "account#a%23b%7Cc%20d",
		"\x00é%":         "account#%00%C3%A9%25",
		"192.0.2.44":     "account#192.0.2.44",
		"x' OR pk <> ''": "account#x%27%20OR%20pk%20%3C%3E%20%27%27",
	} {
		key := weir.NewKey("account", id)
		take(t, l, weir.Op{Limit: rate, Key: key}, weir.Op{Limit: orders, Key: key})
		got := item(t, client, tableOf(t), want)
		if got == nil {
			t.Errorf("id %q: there is no item %q", id, want)
			continue
		}
		if v := number(t, got, "reservations.t"); v != fmt.Sprint(at.now()+int64(2*time.Second)) {
			t.Errorf("reservations.t is %s", v)
		}
		for name, want := range map[string]string{"reservations.i": "2000000000", "reservations.d": "20000000000", "reservations.r": "0"} {
			if v := number(t, got, name); v != want {
				t.Errorf("%s is %s, want %s", name, v, want)
			}
		}
		// The longest limit is an hour, and another hour is kept.
		if v := number(t, got, "expiresAt"); v != fmt.Sprint(at.now()/1e9+7200) {
			t.Errorf("expiresAt is %s", v)
		}
		list := names(got)
		slices.Sort(list)
		if text := strings.Join(list, " "); text != "expiresAt orders.c orders.s pk reservations.d reservations.i reservations.r reservations.t w0 w1 w2 w3" {
			t.Errorf("the attributes are %s", text)
		}
	}
	both := weir.NewKey("account", "a7", "event", "12")
	take(t, l, weir.Op{Limit: rate, Key: both})
	if item(t, client, tableOf(t), "account#a7|event#12") == nil {
		t.Error("there is no item account#a7|event#12")
	}
}

// A4: who loses a conditional write is told so, with the state that beat him,
// and with nothing else.
func TestSpec_A04_LosingWriterIsTold(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		client := clientOf(t, server, nil)
		parse(t, "seats", "quota 1/h")
		f, ok := weir.ParseField("seats.c")
		if !ok {
			t.Fatal("seats.c is no field")
		}
		key := weir.NewKey("account", "customer-42")
		mine, theirs := open(t, client, dynamostore.Options{}), open(t, client, dynamostore.Options{})
		// Both saw no count, so both send the write that was planned from that.
		write := func(nonce uint64) []weir.Write {
			return []weir.Write{{
				If:    []weir.Cond{{Field: f, Value: 0, Cmp: plan.AtMost, OrAbsent: true}},
				Do:    []weir.Act{{Field: f, Value: 1, Do: plan.Add}},
				Nonce: nonce, Keep: time.Hour,
			}}
		}
		var state weir.Cells
		if applied, _, err := theirs.Apply(context.Background(), key, write(1), &state); applied != 0 || err != nil {
			t.Fatalf("the winner got %d, %v", applied, err)
		}
		applied, _, err := mine.Apply(context.Background(), key, write(2), &state)
		if v, _ := state.Get(f); applied != -1 || err != nil || v != 1 {
			t.Errorf("the loser got %d, %v and a count of %d", applied, err, v)
		}
	})
}

// A13: a cold key costs one write and no read, a refusal at most one write.
func TestSpec_A13_UnitsOfADecision(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		var n trips
		store := open(t, clientOf(t, server, nil), dynamostore.Options{Observer: n.observer()})
		limits := []weir.Limit{parse(t, "a13-rate", "1/h burst 2"), parse(t, "a13-quota", "quota 5/d"), parse(t, "a13-day", "quota 9/d calendar")}
		l := limiterOn(store, weir.Options{Limits: limits})
		const keys = 50
		for i := range keys { // three limits on one item are one write as well
			var ops []weir.Op
			for _, limit := range limits {
				ops = append(ops, weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint(i))})
			}
			if d := take(t, l, ops...); !d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		got := n.take()
		if got.all != keys || got.applied != keys || got.writes != keys || got.reads != 0 || got.failed != 0 {
			t.Errorf("%d cold keys cost %d trips, %v writes and %v reads", keys, got.all, got.writes, got.reads)
		}
		op := weir.Op{Limit: limits[0], Key: weir.NewKey("account", "0")}
		take(t, l, op)
		n.take()
		fresh := limiterOn(store, weir.Options{Limits: limits}) // it remembers nothing of the item
		if d := take(t, fresh, op); d.Allowed {
			t.Fatalf("%+v", d)
		}
		if got := n.take(); got.applied != 0 || got.writes != 1 || server == servers.full && got.reads != 0 {
			t.Errorf("a refusal cost %d trips, %v writes and %v reads", got.all, got.writes, got.reads)
		}
	})
}

// A failed condition is charged by the size of the item, as AWS does.
func TestUnitsOfABigItem(t *testing.T) {
	var n trips
	client := clientOf(t, servers.full, nil)
	store := open(t, client, dynamostore.Options{Observer: n.observer()})
	rate := parse(t, "big", "1/h")
	l := limiterOn(store, weir.Options{})
	op := weir.Op{Limit: rate, Key: weir.NewKey("account", "big")}
	take(t, l, op)
	table := tableOf(t)
	_, err := client.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "account#big"}},
		UpdateExpression:          aws.String("SET note = :n"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberS{Value: strings.Repeat("x", 2500)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.take()
	if d := take(t, limiterOn(store, weir.Options{}), op); d.Allowed {
		t.Fatalf("%+v", d)
	}
	if got := n.take(); got.writes != 3 {
		t.Errorf("a failed write of an item of about 2.6 KB is reported as %v units, want 3", got.writes)
	}
}

// Two prefixes share a table and nothing else.
func TestPrefix(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	one, two := open(t, client, dynamostore.Options{Prefix: "one/"}), open(t, client, dynamostore.Options{Prefix: "two/"})
	op := weir.Op{Limit: parse(t, "prefixed", "1/h"), Key: weir.NewKey("account", "a")}
	for _, store := range []*dynamostore.Store{one, two} {
		l := limiterOn(store, weir.Options{})
		if first, second := take(t, l, op), take(t, l, op); !first.Allowed || second.Allowed {
			t.Errorf("%+v, %+v", first, second)
		}
		if err := store.Put(context.Background(), "r", nil, "", time.Time{}); err != nil {
			t.Error(err)
		}
		if keys, _, err := store.List(context.Background(), "", "", 10); err != nil || !slices.Equal(keys, []string{"r"}) {
			t.Errorf("List: %v, %v", keys, err)
		}
	}
	if item(t, client, tableOf(t), "one/account#a") == nil {
		t.Error("there is no item one/account#a")
	}
}

// A stored number beyond what weir writes is an error, never a decision.
func TestNumbersBeyondTheRange(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	store := open(t, client, dynamostore.Options{})
	op := weir.Op{Limit: parse(t, "range", "1/h"), Key: weir.NewKey("account", "customer-42")}
	table := tableOf(t)
	for _, v := range []types.AttributeValue{
		&types.AttributeValueMemberN{Value: fmt.Sprintf("%d0", int64(math.MaxInt64))}, &types.AttributeValueMemberN{Value: "4000000000000000000.5"},
		&types.AttributeValueMemberS{Value: "soon"}, &types.AttributeValueMemberBOOL{Value: true},
	} {
		_, err := client.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
			TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: op.Key.String()}},
			UpdateExpression:          aws.String("SET #t = :t"),
			ExpressionAttributeNames:  map[string]string{"#t": "range.t"},
			ExpressionAttributeValues: map[string]types.AttributeValue{":t": v},
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := limiterOn(store, weir.Options{}).Take(context.Background(), op)
		if err == nil || !strings.Contains(err.Error(), `"range.t"`) || strings.Contains(err.Error(), "customer-42") {
			t.Errorf("%#v: %+v, %v", v, d, err)
		}
		l := limiterOn(store, weir.Options{})
		if err := l.Reset(context.Background(), op.Key, op.Limit); err != nil {
			t.Errorf("%#v: reset: %v", v, err)
		}
		if d, err := l.Take(context.Background(), op); err != nil || !d.Allowed {
			t.Errorf("%#v: after a reset: %+v, %v", v, d, err)
		}
	}
}
