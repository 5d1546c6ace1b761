// Command appsync-quotas is the resolver of a GraphQL API whose operations
// analyze and generate have quotas per plan. What fails is not counted, the
// field usage says what is left, and every other field passes untouched.
//
// BUCKET_TABLE names the DynamoDB table; AWS_ENDPOINT_URL_DYNAMODB points to a
// test server. resolver.js turns refusals into GraphQL errors.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/lambdalimit"
	"github.com/weirlabs/weir/policy"
)

//go:embed weir.yaml
var files embed.FS

func main() {
	handler, err := newHandler(context.Background())
	if err != nil {
		slog.Error("the function cannot start", "cause", err.Error())
		os.Exit(1)
	}
	lambda.Start(handler)
}

func newHandler(ctx context.Context) (lambdalimit.Func, error) {
	table := os.Getenv("BUCKET_TABLE")
	if table == "" {
		return nil, errors.New("BUCKET_TABLE is not set: it names the DynamoDB table with the string key pk")
	}
	p, err := policy.Load(files, "weir.yaml", policy.Options{})
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(ctx, "", "")
	if err != nil {
		return nil, err
	}
	store, err := dynamostore.New(client, dynamostore.Options{Table: table})
	if err != nil {
		return nil, err
	}
	e, err := lambdalimit.NewEngine(engine.Options{Policy: p, Store: store})
	if err != nil {
		return nil, err
	}
	if err := lambdalimit.Warm(ctx, store); err != nil {
		slog.Warn("the store did not answer at start", "cause", err.Error()) // and says so again when it matters
	}
	return lambdalimit.Wrap(resolve, e, lambdalimit.Options{Metrics: os.Stdout}), nil
}

// field is what the resolver reads of AppSync's context.
type field struct {
	Info      struct{ FieldName string }
	Arguments struct{ Prompt string }
}

func resolve(ctx context.Context, f field) (any, error) {
	switch f.Info.FieldName {
	case "usage":
		report, err := lambdalimit.Usage(ctx)
		return json.RawMessage(report), err
	case "generate", "analyze":
		if f.Arguments.Prompt == "" {
			return lambdalimit.Result{ErrorType: "BadRequest", ErrorMessage: "prompt is missing"}, nil
		}
		return f.Info.FieldName + ": " + f.Arguments.Prompt, nil
	}
	return "pong", nil
}
