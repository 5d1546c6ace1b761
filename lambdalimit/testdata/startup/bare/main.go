// Command bare is the floor of the start-up table: a handler that has a DynamoDB
// client, without weir.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

func main() {
	began := time.Now()
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		panic(err)
	}
	client := dynamodb.NewFromConfig(cfg)
	handler := func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if _, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: &e.RawPath}); err != nil {
			return events.APIGatewayV2HTTPResponse{}, err
		}
		_, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &e.RawPath})
		return events.APIGatewayV2HTTPResponse{StatusCode: 201}, err
	}
	if started, err := strconv.ParseInt(os.Getenv("STARTED"), 10, 64); err == nil {
		fmt.Println(began.UnixNano()-started, time.Since(began).Nanoseconds())
		return
	}
	lambda.Start(handler)
}
