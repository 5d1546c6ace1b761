package dynamostore_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
)

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
	began := time.Now()
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
	// A reply that was long on its way tells the time by so much less exactly.
	if skew := store.Skew(); skew.Abs() > 5*time.Second+time.Since(began) {
		t.Errorf("the skew against a server on this machine is %v", skew)
	}
}
