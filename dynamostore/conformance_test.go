package dynamostore_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/storetest"
)

// tableOf is a table name of this test alone.
func tableOf(tb testing.TB) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '.'
	}, tb.Name())
}

// newClient makes a client of a server, which may go through a Transport.
func newClient(tb testing.TB, s *dynalite.Server, through *dynalite.Transport) *dynamodb.Client {
	tb.Helper()
	o := dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(s.URL),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	if through != nil {
		o.HTTPClient = &http.Client{Transport: through}
		return dynamodb.New(o)
	}
	c, err := dynamostore.NewClient(context.Background(), "us-east-1", s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func open(tb testing.TB, client *dynamodb.Client, o dynamostore.Options) *dynamostore.Store {
	tb.Helper()
	store, err := dynamostore.New(client, o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := store.Create(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return store
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]dynalite.Options{"full": {}, "plain": {Plain: true}} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, dynalite.Start(t, o), nil)
			storetest.Run(t, func(tb testing.TB, now func() int64) weir.Store {
				return open(tb, client, dynamostore.Options{Table: "conformance", Now: now})
			})
		})
	}
}
