// Command weir is the same handler as bare behind a policy of 20 limits.
package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/lambdalimit"
	"github.com/weirlabs/weir/policy"
)

//go:embed weir.yaml
var files embed.FS

func main() {
	began := time.Now()
	p, err := policy.Load(files, "weir.yaml", policy.Options{})
	if err != nil {
		panic(err)
	}
	client, err := dynamostore.NewClient(context.Background(), "", "")
	if err != nil {
		panic(err)
	}
	store, err := dynamostore.New(client, dynamostore.Options{Table: "limits"})
	if err != nil {
		panic(err)
	}
	e, err := lambdalimit.NewEngine(engine.Options{Policy: p, Store: store})
	if err != nil {
		panic(err)
	}
	handler := lambdalimit.Wrap(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 201}, nil
	}, e, lambdalimit.Options{})
	if started, err := strconv.ParseInt(os.Getenv("STARTED"), 10, 64); err == nil {
		fmt.Println(began.UnixNano()-started, time.Since(began).Nanoseconds())
		return
	}
	lambda.Start(handler)
}
