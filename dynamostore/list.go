package dynamostore

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
)

var _ weir.Lister = (*Store)(nil)

// pageItems is how many items a page of keys looks at, unless more are asked
// for: reading costs a unit for some 8 KB, whatever is found.
const pageItems = 1000

// ListKeys implements [weir.Lister] with one Scan, which reads at least a
// thousand items, whatever their key, and is charged for all of them: it is for
// the program, never for the path of a request. It needs dynamodb:Scan. Items
// whose time is over are left out, whether or not DynamoDB has deleted them.
func (s *Store) ListKeys(ctx context.Context, prefix, cursor string, most int) (keys []weir.Key, next string, err error) {
	const what = "list keys"
	scan, ok := s.client.(scanner)
	if !ok {
		return nil, "", s.errorf(what, "the client can't scan; give New a *dynamodb.Client")
	}
	if most <= 0 {
		return nil, "", s.errorf(what, "at most %d keys were asked for; ask for 1 or more", most)
	}
	in := &dynamodb.ScanInput{
		TableName:                &s.table,
		Limit:                    aws.Int32(int32(min(max(most, pageItems), math.MaxInt32))),
		FilterExpression:         aws.String("NOT begins_with(#pk, :record) AND (attribute_not_exists(#exp) OR #exp > :now)"),
		ProjectionExpression:     aws.String("#pk"),
		ExpressionAttributeNames: map[string]string{"#pk": KeyAttribute, "#exp": ExpiryAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":record": &types.AttributeValueMemberS{Value: s.prefix + recordPrefix},
			":now":    number(s.clock.now() / int64(time.Second)),
		},
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
	if from := s.prefix + prefix; from != "" { // begins_with takes no empty text
		*in.FilterExpression += " AND begins_with(#pk, :from)"
		in.ExpressionAttributeValues[":from"] = &types.AttributeValueMemberS{Value: from}
	}
	if cursor != "" {
		in.ExclusiveStartKey = itemKey(cursor)
	}
	out, err := s.scan(ctx, scan, in, what)
	if err != nil {
		return nil, "", err
	}
	for _, item := range out.Items {
		pk := keyOf(item)
		if len(keys) == most {
			return keys, s.prefix + keys[most-1].String(), nil
		}
		if key, ok := weir.ParseKey(strings.TrimPrefix(pk, s.prefix)); ok {
			keys = append(keys, key)
		}
	}
	return keys, keyOf(out.LastEvaluatedKey), nil
}
