package lambdalimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/lambdalimit"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// One line around a handler. A function of several instances takes a store that
// they share, and passes the result of Wrap to lambda.Start.
func ExampleWrap() {
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(`
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: seats, match: POST /seats, by: [account, ip], limit: quota 1/day}
`)}}, "weir.yaml", policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	e, err := lambdalimit.NewEngine(engine.Options{Policy: p, Store: memstore.New(memstore.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	book := func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 201}, nil
	}
	handler := lambdalimit.Wrap(book, e, lambdalimit.Options{})

	event := json.RawMessage(`{"version": "2.0", "rawPath": "/seats", "requestContext": {
		"http": {"method": "POST", "sourceIp": "192.0.2.1"},
		"authorizer": {"jwt": {"claims": {"sub": "customer-42"}}}}}`)
	for range 2 {
		out, err := handler(context.Background(), event)
		if err != nil {
			log.Fatal(err)
		}
		text, _ := json.Marshal(out)
		var answer struct{ StatusCode int }
		_ = json.Unmarshal(text, &answer)
		fmt.Println(answer.StatusCode)
	}
	// Output:
	// 201
	// 429
}
