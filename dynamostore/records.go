package dynamostore

import (
	"context"
	"crypto/rand"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
)

// Records are items of the same table with keys of their own. No caller's key
// begins like this: the part after the first # is never empty, and # in it is
// written %23.
const recordPrefix = "record##"

// The attributes of a record.
const (
	valueAttribute   = "value"
	versionAttribute = "version"
)

// maxRecordKey keeps a record's key, with both prefixes, within the 2,048 bytes
// that DynamoDB allows.
const maxRecordKey = 1024

// maxRecord is the longest value. DynamoDB takes 400 KB for a whole item.
const maxRecord = 390 << 10

// Get implements [weir.Records] with a strongly consistent read. A record whose
// time is over is not there, whether or not DynamoDB has deleted it.
func (s *Store) Get(ctx context.Context, key string) (value []byte, version string, err error) {
	pk, err := s.recordKey("get a record", key)
	if err != nil {
		return nil, "", err
	}
	item, err := s.read(ctx, "get a record", pk)
	if err != nil {
		return nil, "", s.explain("get a record", err)
	}
	version, over := recordVersion(item), s.recordOver(item)
	if version == "" || over {
		return nil, "", nil
	}
	b, ok := item[valueAttribute].(*types.AttributeValueMemberB)
	if !ok {
		return nil, "", s.errorf("get a record", "%w (attribute %q is not binary); remove it with: aws dynamodb delete-item --table-name '%s' --key '{\"%s\":{\"S\":\"%s\"}}'",
			weir.ErrNoRecord, valueAttribute, s.table, KeyAttribute, pk)
	}
	return b.Value, version, nil
}

// Put implements [weir.Records] with one conditional UpdateItem. A value has at
// most 390 KiB. A time to expire is rounded up to whole seconds.
func (s *Store) Put(ctx context.Context, key string, value []byte, ifVersion string, expiresAt time.Time) error {
	const what = "put a record"
	pk, err := s.recordKey(what, key)
	if err != nil {
		return err
	}
	if len(value) > maxRecord {
		return s.errorf(what, "a value of %d bytes; DynamoDB holds at most %d", len(value), maxRecord)
	}
	if value == nil {
		value = []byte{}
	}
	version := rand.Text()
	names := map[string]string{"#value": valueAttribute, "#version": versionAttribute, "#exp": ExpiryAttribute}
	values := map[string]types.AttributeValue{
		":value":   &types.AttributeValueMemberB{Value: value},
		":version": &types.AttributeValueMemberS{Value: version},
		":now":     number(s.clock.now() / int64(time.Second)),
	}
	update := "SET #value = :value, #version = :version"
	if expiresAt.IsZero() {
		update += " REMOVE #exp"
	} else {
		update += ", #exp = :exp"
		at := expiresAt.Unix()
		if expiresAt.Nanosecond() > 0 {
			at++
		}
		values[":exp"] = number(at)
	}
	// A record whose time is over counts as absent, as in Get.
	condition := "attribute_not_exists(#version) OR #exp <= :now"
	if ifVersion != "" {
		condition = "#version = :old AND (attribute_not_exists(#exp) OR #exp > :now)"
		values[":old"] = &types.AttributeValueMemberS{Value: ifVersion}
	}
	out, took, err := s.update(ctx, &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 itemKey(pk),
		UpdateExpression:                    &update,
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	})
	if err == nil {
		s.trip(ctx, weir.Trip{Took: took, WriteUnits: units(out.ConsumedCapacity), Applied: true})
		return nil
	}
	old, failed := s.conditionFailed(ctx, err, took)
	if !failed {
		err = s.explainWrite(what, err)
		s.trip(ctx, weir.Trip{Took: took, Err: err})
		return err
	}
	if old == nil && !s.returnsOld.Load() {
		if old, err = s.read(ctx, what, pk); err != nil {
			return s.explain(what, err)
		}
	}
	if recordVersion(old) == version {
		return nil // this very write, sent twice on its way
	}
	return s.errorf(what, "%w; read it again", weir.ErrConflict)
}

// scan reads one page of the table, and tells the observer of it.
func (s *Store) scan(ctx context.Context, client scanner, in *dynamodb.ScanInput, what string) (*dynamodb.ScanOutput, error) {
	began := time.Now()
	out, err := client.Scan(ctx, in)
	if err != nil {
		err = s.explain(what, err)
		s.trip(ctx, weir.Trip{Took: time.Since(began), Err: err})
		return nil, err
	}
	s.trip(ctx, weir.Trip{Took: time.Since(began), ReadUnits: units(out.ConsumedCapacity)})
	return out, nil
}

// scanner is what List needs of a client.
type scanner interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// List implements [weir.Records]. It scans the whole table, items of callers
// included, and is charged for all it reads: it is for the program, never for
// the path of a request. It needs dynamodb:Scan.
func (s *Store) List(ctx context.Context, prefix, cursor string, max int) (keys []string, next string, err error) {
	const what = "list records"
	scan, ok := s.client.(scanner)
	if !ok {
		return nil, "", s.errorf(what, "the client can't scan; give New a *dynamodb.Client")
	}
	if max <= 0 {
		return nil, "", s.errorf(what, "at most %d keys were asked for; ask for 1 or more", max)
	}
	from := s.prefix + recordPrefix
	in := &dynamodb.ScanInput{
		TableName:                &s.table,
		FilterExpression:         aws.String("begins_with(#pk, :from) AND attribute_exists(#version) AND (attribute_not_exists(#exp) OR #exp > :now)"),
		ProjectionExpression:     aws.String("#pk"),
		ExpressionAttributeNames: map[string]string{"#pk": KeyAttribute, "#version": versionAttribute, "#exp": ExpiryAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":from": &types.AttributeValueMemberS{Value: from + prefix},
			":now":  number(s.clock.now() / int64(time.Second)),
		},
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
	if cursor != "" {
		in.ExclusiveStartKey = itemKey(cursor)
	}
	for {
		out, err := s.scan(ctx, scan, in, what)
		if err != nil {
			return nil, "", err
		}
		for i, item := range out.Items {
			pk := keyOf(item)
			keys = append(keys, strings.TrimPrefix(pk, from))
			if len(keys) == max && (i+1 < len(out.Items) || len(out.LastEvaluatedKey) > 0) {
				return keys, pk, nil
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return keys, "", nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

func (s *Store) recordKey(what, key string) (string, error) {
	if key == "" || len(key) > maxRecordKey {
		return "", s.errorf(what, "a key of %d bytes; 1 to %d are allowed", len(key), maxRecordKey)
	}
	return s.prefix + recordPrefix + key, nil
}

// recordOver reports whether a record's time is over.
func (s *Store) recordOver(item map[string]types.AttributeValue) bool {
	n, ok := item[ExpiryAttribute].(*types.AttributeValueMemberN)
	return ok && parseSeconds(n.Value) <= s.clock.now()/int64(time.Second)
}

func recordVersion(item map[string]types.AttributeValue) string {
	if v, ok := item[versionAttribute].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}

// parseSeconds reads an expiry. What is not a number never expires.
func parseSeconds(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}

func keyOf(item map[string]types.AttributeValue) string {
	if v, ok := item[KeyAttribute].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}
