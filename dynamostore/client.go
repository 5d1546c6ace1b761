package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// idleConnections is how many connections stay open between bursts. The SDK's
// default of ten would open and close them all the time.
const idleConnections = 256

// NewClient makes a client from AWS's usual configuration: environment, shared
// files, the role of the machine or function. Region and endpoint are taken from
// there when they are empty, so AWS_REGION and AWS_ENDPOINT_URL_DYNAMODB work. An
// endpoint on this machine is a test server: it needs no credentials and no
// region. Options of the SDK's config package are applied after those, such as
// config.WithLogger. NewClient connects to nothing.
func NewClient(ctx context.Context, region, endpoint string, options ...func(*config.LoadOptions) error) (*dynamodb.Client, error) {
	if endpoint == "" {
		endpoint = os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")
	}
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns = idleConnections
		t.MaxIdleConnsPerHost = idleConnections
	})
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(transport)}
	if region != "" {
		load = append(load, config.WithRegion(region))
	}
	local := false
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, errors.New("dynamodb: the endpoint is not a URL such as http://127.0.0.1:8000") // and may hold a password
		}
		local = loopback(u.Hostname())
	}
	if local && os.Getenv("AWS_ACCESS_KEY_ID") == "" && os.Getenv("AWS_PROFILE") == "" {
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, append(load, options...)...)
	if err != nil {
		return nil, fmt.Errorf("dynamodb: read AWS's configuration: %w", err)
	}
	if cfg.Region == "" && local {
		cfg.Region = "us-east-1"
	}
	if cfg.Region == "" {
		return nil, errors.New("dynamodb: no region: set AWS_REGION, or add ?region=REGION to the store's URL")
	}
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
			o.AccountIDEndpointMode = aws.AccountIDEndpointModeDisabled
		}
	}), nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
