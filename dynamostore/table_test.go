package dynamostore_test

import (
	"context"
	"errors"
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
)

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
	for kind, key := range map[string][]types.KeySchemaElement{
		"wrong-name": {{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		"sort-key":   {{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange}},
		"wrong-type": {{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	} {
		name := tableOf(t) + kind
		var attributes []types.AttributeDefinition
		for _, k := range key {
			typ := types.ScalarAttributeTypeS
			if kind == "wrong-type" {
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
