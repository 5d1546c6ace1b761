package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// classic is the usual scheme on DynamoDB, to be compared with: a strongly
// consistent read, then a write on condition that the version has not changed,
// and after three lost attempts a denial.
type classic struct {
	client         *dynamodb.Client
	table          string
	capacity       float64
	tokensPerNano  float64
	attempts       int
	expiresSeconds int64
}

func newClassic(client *dynamodb.Client, table string, w workload) scheme {
	rate := float64(w.tokens) / float64(w.per)
	return classic{client, table, float64(w.burst), rate, 3, int64(float64(w.burst)/rate/1e9) + 3600}
}

func (c classic) take(ctx context.Context, key string) (allowed, falsely bool, err error) {
	pk := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "account#" + key}}
	for range c.attempts {
		out, err := c.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &c.table, Key: pk, ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		if err != nil {
			return false, false, err
		}
		ctx.Value(spentKey{}).(*spent).add(*out.ConsumedCapacity.CapacityUnits, 0)
		now := time.Now().UnixNano()
		tokens, version := c.capacity, int64(0)
		if out.Item != nil {
			if tokens, err = strconv.ParseFloat(out.Item["tokens"].(*types.AttributeValueMemberN).Value, 64); err != nil {
				return false, false, err
			}
			at, err := strconv.ParseInt(out.Item["at"].(*types.AttributeValueMemberN).Value, 10, 64)
			if err != nil {
				return false, false, err
			}
			if version, err = strconv.ParseInt(out.Item["version"].(*types.AttributeValueMemberN).Value, 10, 64); err != nil {
				return false, false, err
			}
			tokens = min(c.capacity, tokens+float64(max(0, now-at))*c.tokensPerNano)
		}
		if tokens < 1 {
			return false, false, nil
		}
		lost, err := c.write(ctx, pk, tokens-1, now, version)
		if err != nil || !lost {
			return err == nil, false, err
		}
	}
	return false, true, nil // there was a token at every attempt
}

func (c classic) write(ctx context.Context, pk map[string]types.AttributeValue, tokens float64, now, version int64) (lost bool, err error) {
	item := map[string]types.AttributeValue{
		"pk":        pk["pk"],
		"tokens":    &types.AttributeValueMemberN{Value: strconv.FormatFloat(tokens, 'f', -1, 64)},
		"at":        &types.AttributeValueMemberN{Value: strconv.FormatInt(now, 10)},
		"version":   &types.AttributeValueMemberN{Value: strconv.FormatInt(version+1, 10)},
		"expiresAt": &types.AttributeValueMemberN{Value: strconv.FormatInt(now/1e9+c.expiresSeconds, 10)},
	}
	in := &dynamodb.PutItemInput{
		TableName: &c.table, Item: item, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}
	if version > 0 {
		in.ConditionExpression = aws.String("version = :v")
		in.ExpressionAttributeValues = map[string]types.AttributeValue{":v": &types.AttributeValueMemberN{Value: fmt.Sprint(version)}}
	}
	out, err := c.client.PutItem(ctx, in)
	spent := ctx.Value(spentKey{}).(*spent)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		spent.add(0, 1) // AWS charges it like a write
		return true, nil
	}
	if err != nil {
		return false, err
	}
	spent.add(0, *out.ConsumedCapacity.CapacityUnits)
	return false, nil
}
