// Command little-stage-lambda is the reservations function of the Little Stage
// ticket shop: POST /reservations books a seat, behind an HTTP API with a JWT
// authorizer, for ten clicks in a row and then one every two seconds.
//
// BUCKET_TABLE names the DynamoDB table, BUCKET_CAPACITY (10) and
// REFILL_PER_SECOND (0.5) the bucket. AWS_ENDPOINT_URL_DYNAMODB points to a test
// server. Everything is made once per process, before the first event.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/lambdalimit"
	"github.com/weirlabs/weir/policy"
)

//go:embed weir.yaml
var text string

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
	p, err := loadPolicy()
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
	return lambdalimit.Wrap(book, e, lambdalimit.Options{Metrics: os.Stdout}), nil
}

// book is the function itself. It knows nothing of limits.
func book(_ context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	body, err := json.Marshal(map[string]string{"reservation": "confirmed"})
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	return events.APIGatewayV2HTTPResponse{
		StatusCode: 201, Headers: map[string]string{"content-type": "application/json"}, Body: string(body),
	}, nil
}

// loadPolicy fills the environment's two numbers into the policy.
func loadPolicy() (*policy.Policy, error) {
	var mistakes []error
	number := func(name, otherwise string) string {
		value := cmp.Or(os.Getenv(name), otherwise)
		if f, err := strconv.ParseFloat(value, 64); err != nil || f <= 0 {
			mistakes = append(mistakes, fmt.Errorf("%s is %q: it must be a number above 0", name, value))
		}
		return value
	}
	filled := os.Expand(text, func(name string) string {
		if name == "BUCKET_CAPACITY" {
			return number(name, "10")
		}
		return number(name, "0.5")
	})
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return policy.Load(oneFile(filled), "weir.yaml", policy.Options{})
}

// oneFile is a file system of a text that has been filled in.
type oneFile string

func (f oneFile) Open(string) (fs.File, error) { return openFile{strings.NewReader(string(f))}, nil }

type openFile struct{ *strings.Reader }

func (openFile) Close() error { return nil }

func (openFile) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid } // a text has no date
