package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"

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

// A11: the table, as made and as described.
func TestSpec_A11_Table(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	store := open(t, client, dynamostore.Options{})
	if err := store.Create(context.Background()); err != nil {
		t.Fatalf("a second Create: %v", err)
	}
	table := tableOf(t)
	out, err := client.DescribeTable(context.Background(), &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	if k := out.Table.KeySchema; len(k) != 1 || *k[0].AttributeName != "pk" || k[0].KeyType != types.KeyTypeHash {
		t.Errorf("the key is %+v", k)
	}
	if a := out.Table.AttributeDefinitions; len(a) != 1 || *a[0].AttributeName != "pk" || a[0].AttributeType != types.ScalarAttributeTypeS {
		t.Errorf("the attributes are %+v", a)
	}
	if b := out.Table.BillingModeSummary; b == nil || b.BillingMode != types.BillingModePayPerRequest {
		t.Errorf("the billing mode is %+v", b)
	}
	ttl, err := client.DescribeTimeToLive(context.Background(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	if d := ttl.TimeToLiveDescription; aws.ToString(d.AttributeName) != "expiresAt" || d.TimeToLiveStatus != types.TimeToLiveStatusEnabled {
		t.Errorf("the time to live is %+v", d)
	}
	if warnings, err := store.Check(context.Background()); err != nil || len(warnings) > 0 {
		t.Errorf("Check: %v, %v", warnings, err)
	}
	def := dynamostore.Definition()
	if def.Key != "pk" || def.KeyType != "S" || def.Expiry != "expiresAt" || def.BillingMode != "PAY_PER_REQUEST" ||
		!slices.Equal(def.Actions, []string{"dynamodb:UpdateItem", "dynamodb:GetItem"}) {
		t.Errorf("the definition is %+v", def)
	}
}

// Deciding, giving back, looking and resetting call what the role may call.
func TestSpec_A11_ActionsOfARole(t *testing.T) {
	through := dynalite.NewTransport(nil)
	open(t, clientOf(t, servers.full, nil), dynamostore.Options{})
	for _, operation := range []string{"DescribeTable", "PutItem", "DeleteItem", "Query", "Scan", "TransactWriteItems", "BatchGetItem"} {
		through.Always(operation, dynalite.Reply(400, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not allowed"}`))
	}
	store, err := dynamostore.New(clientOf(t, servers.full, through), dynamostore.Options{Table: tableOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	l := limiterOn(store, weir.Options{})
	op := weir.Op{Limit: parse(t, "role", "1/h burst 2"), Key: weir.NewKey("account", "customer-42")}
	ctx := context.Background()
	r, d, err := l.Reserve(ctx, op)
	if err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := r.Cancel(ctx); err != nil {
		t.Error(err)
	}
	if _, err := l.Peek(ctx, op); err != nil {
		t.Error(err)
	}
	if err := l.Reset(ctx, op.Key); err != nil {
		t.Error(err)
	}
	if err := store.Put(ctx, "accounts/a", []byte("x"), "", time.Time{}); err != nil {
		t.Error(err)
	}
	if _, _, err := store.Get(ctx, "accounts/a"); err != nil {
		t.Error(err)
	}
	if warnings, err := store.Check(ctx); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "dynamodb:DescribeTable") {
		t.Errorf("Check without the permission to describe: %v, %v", warnings, err)
	}
	if _, _, err := store.List(ctx, "", "", 10); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("List without the permission to scan: %v", err)
	}
}

func TestTableThatIsMissing(t *testing.T) {
	store, err := dynamostore.New(clientOf(t, servers.full, nil), dynamostore.Options{Table: "no-such-table"})
	if err != nil {
		t.Fatal(err)
	}
	want := "weir store create --store 'dynamodb:no-such-table?region=us-east-1&endpoint=" + servers.full.URL + "'"
	l := limiterOn(store, weir.Options{})
	_, err = l.Take(context.Background(), weir.Op{Limit: parse(t, "missing", "1/h"), Key: weir.NewKey("account", "customer-42")})
	_, checked := store.Check(context.Background())
	for _, err := range []error{err, checked} {
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, weir.ErrOutcomeUnknown) || strings.Contains(err.Error(), "customer-42") {
			t.Errorf("the error is %v; it should name the command %s", err, want)
		}
	}
}

func TestTableWithAnotherKey(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	for name, key := range map[string][]types.KeySchemaElement{
		"wrong-name": {{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		"sort-key":   {{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange}},
		"wrong-type": {{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	} {
		var attributes []types.AttributeDefinition
		for _, k := range key {
			typ := types.ScalarAttributeTypeS
			if name == "wrong-type" {
				typ = types.ScalarAttributeTypeN
			}
			attributes = append(attributes, types.AttributeDefinition{AttributeName: k.AttributeName, AttributeType: typ})
		}
		_, err := client.CreateTable(context.Background(), &dynamodb.CreateTableInput{
			TableName: aws.String(name), KeySchema: key, AttributeDefinitions: attributes, BillingMode: types.BillingModePayPerRequest,
		})
		if err != nil {
			t.Fatal(err)
		}
		store, err := dynamostore.New(client, dynamostore.Options{Table: name})
		if err != nil {
			t.Fatal(err)
		}
		_, checked := store.Check(context.Background())
		for what, err := range map[string]error{"Check": checked, "Create": store.Create(context.Background())} {
			if err == nil || !strings.Contains(err.Error(), "partition key pk (S) alone") || !strings.Contains(err.Error(), name) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
		_, err = limiterOn(store, weir.Options{}).Take(context.Background(), weir.Op{Limit: parse(t, "other", "1/h"), Key: weir.NewKey("account", "customer-42")})
		if err == nil || !strings.Contains(err.Error(), "weir store check --store 'dynamodb:"+name) || strings.Contains(err.Error(), "customer-42") {
			t.Errorf("Take on %s: %v", name, err)
		}
	}
}

func TestCheckWarns(t *testing.T) {
	ctx := context.Background()
	through := dynalite.NewTransport(nil)
	store := open(t, clientOf(t, servers.full, through), dynamostore.Options{})
	describe := func(consistency string) dynalite.Fault {
		return dynalite.Reply(200, `{"Table":{"TableName":"t","TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],`+
			`"AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"Replicas":[{"RegionName":"eu-west-1"}]`+consistency+`}}`)
	}
	for consistency, want := range map[string]int{"": 1, `,"MultiRegionConsistency":"EVENTUAL"`: 1, `,"MultiRegionConsistency":"STRONG"`: 0} {
		through.Script("DescribeTable", describe(consistency))
		warnings, err := store.Check(ctx)
		if err != nil || len(warnings) != want || want == 1 && !strings.Contains(warnings[0], "overwrite each other") {
			t.Errorf("a global table with %q: %v, %v", consistency, warnings, err)
		}
	}
	for state, want := range map[string]string{
		`{"TimeToLiveStatus":"DISABLED"}`:                                                "time to live is not on for expiresAt",
		`{"TimeToLiveStatus":"ENABLED","AttributeName":"ttl"}`:                           "time to live is not on for expiresAt",
		`{"TimeToLiveStatus":"DISABLING","AttributeName":"expiresAt"}`:                   "time to live is not on for expiresAt",
		`{"TimeToLiveStatus":"ENABLING","AttributeName":"expiresAt"}`:                    "",
		`{"TimeToLiveStatus":"ENABLED","AttributeName":"expiresAt"},"Unknown":"ignored"`: "",
	} {
		through.Script("DescribeTimeToLive", dynalite.Reply(200, `{"TimeToLiveDescription":`+state+`}`))
		warnings, err := store.Check(ctx)
		if text := strings.Join(warnings, "\n"); err != nil || (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("time to live %s: %v, %v", state, warnings, err)
		}
	}
	through.Script("DescribeTimeToLive", dynalite.Reply(400, `{"__type":"com.amazon.coral.service#UnknownOperationException"}`))
	if warnings, err := store.Check(ctx); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "knows no time to live") {
		t.Errorf("a server without time to live: %v, %v", warnings, err)
	}
}

// Create waits for the table, and works where the server has no time to live.
func TestCreateWaits(t *testing.T) {
	through := dynalite.NewTransport(nil)
	creating := dynalite.Reply(200, `{"Table":{"TableName":"t","TableStatus":"CREATING"}}`)
	through.Script("DescribeTable", dynalite.Reply(400, `{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"not yet"}`), creating)
	unknown := dynalite.Reply(400, `{"__type":"com.amazon.coral.service#UnknownOperationException"}`)
	through.Script("UpdateTimeToLive", unknown)
	store := open(t, clientOf(t, servers.full, through), dynamostore.Options{})
	if n := through.Calls("DescribeTable"); n != 3 {
		t.Errorf("Create described the table %d times, want 3", n)
	}
	through.Script("DescribeTimeToLive", unknown)
	if err := store.Create(context.Background()); err != nil {
		t.Errorf("Create on a server that can't describe the time to live: %v", err)
	}
	through.Always("DescribeTable", creating)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough waited"))
	if err := store.Create(ctx); err == nil {
		t.Error("Create did not end with its context")
	}
}

func TestNewRefuses(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	for want, o := range map[string]dynamostore.Options{
		"table name":          {},
		`table name "a b"`:    {Table: "a b"},
		`table name "ab"`:     {Table: "ab"},
		`table name "täble"`:  {Table: "täble"},
		`table name "aaaa`:    {Table: strings.Repeat("a", 256)},
		"prefix of 513 bytes": {Table: "limits", Prefix: strings.Repeat("p", 513)},
		"MaxKeep":             {Table: "limits", MaxKeep: -1},
	} {
		if _, err := dynamostore.New(client, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q in it", o, err, want)
		}
	}
	if _, err := dynamostore.New(nil, dynamostore.Options{Table: "limits"}); err == nil {
		t.Error("a store without a client was made")
	}
	store, err := dynamostore.New(client, dynamostore.Options{Table: "limits", MaxKeep: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l := limiterOn(store, weir.Options{})
	if _, err := l.Take(context.Background(), weir.Op{Limit: parse(t, "month", "quota 5/month"), Key: weir.NewKey("account", "a")}); err == nil || !strings.Contains(err.Error(), "month") {
		t.Errorf("a month in a store that keeps a day: %v", err)
	}
}

func TestNewClient(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_DYNAMODB"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	if _, err := dynamostore.NewClient(ctx, "", ""); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	if _, err := dynamostore.NewClient(ctx, "us-east-1", "localhost:8000"); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:8000") {
		t.Errorf("an endpoint that is no URL: %v", err)
	}
	// The environment's endpoint is used, and a test server needs no more.
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", servers.full.URL)
	client, err := dynamostore.NewClient(ctx, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if client, err := dynamostore.NewClient(ctx, "", "", config.WithLogger(logging.Nop{})); err != nil || client.Options().Logger != (logging.Nop{}) {
		t.Errorf("the SDK's logger is not the one that was given: %v", err)
	}
	store := open(t, client, dynamostore.Options{})
	if warnings, err := store.Check(ctx); err != nil || len(warnings) != 0 {
		t.Errorf("Check: %v, %v", warnings, err)
	}
	if skew := store.Skew(); skew.Abs() > 5*time.Second {
		t.Errorf("the skew against a server on this machine is %v", skew)
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

// A restart of everything, and a server that was killed, keep the limit.
func TestLimitSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	op := weir.Op{Limit: parse(t, "kept", "1/d burst 5"), Key: weir.NewKey("account", "customer-42")}
	for round := range 3 {
		server := dynalite.Start(t, dynalite.Options{Dir: dir})
		store := open(t, clientOf(t, server, nil), dynamostore.Options{Table: "kept"})
		if warnings, err := store.Check(context.Background()); err != nil || len(warnings) > 0 {
			t.Errorf("round %d: %v, %v", round, warnings, err)
		}
		l := limiterOn(store, weir.Options{})
		for i := range 2 {
			if d := take(t, l, op); d.Allowed != (2*round+i < 5) {
				t.Errorf("round %d, call %d: %+v", round, i, d)
			}
		}
		server.Close()
	}
}

const takerVariable = "WEIR_DYNAMOSTORE_TEST_TAKER"

// taker is the body of a process that takes from a shared limit: URL, table and
// limit are in the environment, one line with the number of allowed calls goes
// to its output.
func taker() int {
	server, table, _ := strings.Cut(os.Getenv(takerVariable), " ")
	ctx := context.Background()
	client, err := dynamostore.NewClient(ctx, "us-east-1", server)
	if err == nil {
		var store *dynamostore.Store
		if store, err = dynamostore.New(client, dynamostore.Options{Table: table}); err == nil {
			var allowed int
			if allowed, err = takeAll(ctx, store); err == nil {
				fmt.Println(allowed)
				return 0
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func takeAll(ctx context.Context, store weir.Store) (allowed int, err error) {
	limit, err := weir.ParseLimit("1/d burst 100")
	if err != nil {
		return 0, err
	}
	l := limiterOn(store, weir.Options{})
	for range 80 {
		d, err := l.Take(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "shared")})
		if err != nil {
			return 0, err
		}
		if d.Allowed {
			allowed++
		} else if d.Reason != weir.ReasonLimit {
			return 0, fmt.Errorf("%+v", d)
		}
	}
	return allowed, nil
}

// Processes of their own that know nothing of each other keep one limit.
func TestProcessesKeepOneLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		open(t, clientOf(t, server, nil), dynamostore.Options{})
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		outputs := make(chan string, 3)
		for range cap(outputs) {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), takerVariable+"="+server.URL+" "+tableOf(t))
			cmd.Stderr = os.Stderr
			go func() {
				out, err := cmd.Output()
				if err != nil {
					out = []byte(err.Error())
				}
				outputs <- string(out)
			}()
		}
		total := 0
		for range cap(outputs) {
			out, n := <-outputs, 0
			if _, err := fmt.Sscan(out, &n); err != nil {
				t.Fatalf("a process said %q", out)
			}
			total += n
		}
		if total != 100 {
			t.Errorf("%d calls were allowed in three processes, want 100", total)
		}
	})
}

// A stored number beyond what weir writes is an error, never a decision.
func TestNumbersBeyondTheRange(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	store := open(t, client, dynamostore.Options{})
	op := weir.Op{Limit: parse(t, "range", "1/h"), Key: weir.NewKey("account", "customer-42")}
	table := tableOf(t)
	for _, v := range []types.AttributeValue{
		&types.AttributeValueMemberN{Value: fmt.Sprintf("%d0", math.MaxInt64)}, &types.AttributeValueMemberN{Value: "4000000000000000000.5"},
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
	}
}
