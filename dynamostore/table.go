package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// The attributes of an item that are not limits.
const (
	// KeyAttribute is the table's only key, a string such as
	// "account#customer-42".
	KeyAttribute = "pk"
	// ExpiryAttribute is when an item may be deleted, in Unix seconds.
	ExpiryAttribute = "expiresAt"
)

// Table describes the table that a Store needs. [Store.Create] makes it, and
// generated templates are written from it, so that both are the same.
type Table struct {
	Key         string   // name of the partition key; there is no sort key
	KeyType     string   // DynamoDB's type of the key: "S", a string
	Expiry      string   // attribute of the time to live, in whole Unix seconds
	BillingMode string   // capacity mode
	Actions     []string // what a role needs on the table to decide, and no more
}

// Definition gives the table that every Store needs.
func Definition() Table {
	return Table{
		Key:         KeyAttribute,
		KeyType:     string(types.ScalarAttributeTypeS),
		Expiry:      ExpiryAttribute,
		BillingMode: string(types.BillingModePayPerRequest),
		Actions:     []string{"dynamodb:UpdateItem", "dynamodb:GetItem"},
	}
}

// admin is what Create and Check need of a client.
type admin interface {
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

func (s *Store) admin(what string) (admin, error) {
	a, ok := s.client.(admin)
	if !ok {
		return nil, s.errorf(what, "the client can only decide; give New a *dynamodb.Client")
	}
	return a, nil
}

// Create makes the table with its time to live, on demand, and waits until it
// can be used. A table that is there already is left as it is, but for a time
// to live that is off. A server without time to live is accepted: expiry is only
// cleaning.
func (s *Store) Create(ctx context.Context) error {
	a, err := s.admin("create")
	if err != nil {
		return err
	}
	def := Definition()
	_, err = a.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &s.table,
		BillingMode:          types.BillingMode(def.BillingMode),
		KeySchema:            []types.KeySchemaElement{{AttributeName: &def.Key, KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &def.Key, AttributeType: types.ScalarAttributeType(def.KeyType)}},
	})
	var exists *types.ResourceInUseException
	if err != nil && !errors.As(err, &exists) {
		return s.explain("create", err)
	}
	table, err := s.waitActive(ctx, a)
	if err != nil {
		return err
	}
	if err := s.checkKey(table); err != nil {
		return err
	}
	out, err := a.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if unknownOperation(err) {
		return nil
	}
	if err != nil {
		return s.explain("create: describe the time to live", err)
	}
	if expires(out.TimeToLiveDescription) {
		return nil
	}
	_, err = a.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &s.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &def.Expiry, Enabled: aws.Bool(true)},
	})
	if err != nil && !unknownOperation(err) {
		return s.explain("create: switch the time to live on", err)
	}
	return nil
}

// waitActive asks until the table can be used: at first often, since a new
// table takes a few seconds.
func (s *Store) waitActive(ctx context.Context, a admin) (*types.TableDescription, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		out, err := a.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
		var missing *types.ResourceNotFoundException // it was made just now, and not every host knows
		if err != nil && !errors.As(err, &missing) {
			return nil, s.explain("create: wait for the table", err)
		}
		if err == nil && (out.Table.TableStatus == types.TableStatusActive || out.Table.TableStatus == types.TableStatusUpdating) {
			return out.Table, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, s.errorf("create", "the table is not ready yet: %w", context.Cause(ctx))
		}
	}
}

// Check looks at the table once, for a start-up or a command. An error means
// that limits can't be kept in it; warnings say what will go wrong later. A role
// that may not describe the table gets a warning, not an error.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	a, err := s.admin("check")
	if err != nil {
		return nil, err
	}
	out, err := a.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
	if accessDenied(err) {
		return []string{fmt.Sprintf("dynamodb table %q: not checked, since the role may not call dynamodb:DescribeTable", s.table)}, nil
	}
	if err != nil {
		return nil, s.explain("check", err)
	}
	if err := s.checkKey(out.Table); err != nil {
		return nil, err
	}
	if replicas := out.Table.Replicas; len(replicas) > 0 && out.Table.MultiRegionConsistency != types.MultiRegionConsistencyStrong {
		warnings = append(warnings, fmt.Sprintf("dynamodb table %q: it is replicated to %d more region(s) with eventual consistency, where the last write wins: counts of two regions overwrite each other. Use one table per region, or multi-region strong consistency", s.table, len(replicas)))
	}
	ttl, err := a.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	switch {
	case accessDenied(err):
		warnings = append(warnings, fmt.Sprintf("dynamodb table %q: time to live not checked, since the role may not call dynamodb:DescribeTimeToLive", s.table))
	case unknownOperation(err):
		warnings = append(warnings, fmt.Sprintf("dynamodb table %q: this server knows no time to live, so items of idle callers stay", s.table))
	case err != nil:
		return warnings, s.explain("check the time to live", err)
	case !expires(ttl.TimeToLiveDescription):
		warnings = append(warnings, fmt.Sprintf("dynamodb table %q: time to live is not on for %s, so items of idle callers stay and cost storage; switch it on with: weir store create --store '%s'", s.table, ExpiryAttribute, s.url()))
	}
	return warnings, nil
}

// checkKey refuses a table whose key is not the single string pk.
func (s *Store) checkKey(t *types.TableDescription) error {
	def := Definition()
	var have []string
	good := len(t.KeySchema) == 1
	for _, k := range t.KeySchema {
		name, typ := aws.ToString(k.AttributeName), ""
		for _, d := range t.AttributeDefinitions {
			if aws.ToString(d.AttributeName) == name {
				typ = string(d.AttributeType)
			}
		}
		good = good && name == def.Key && typ == def.KeyType && k.KeyType == types.KeyTypeHash
		have = append(have, fmt.Sprintf("%s %s (%s)", k.KeyType, name, typ))
	}
	if good {
		return nil
	}
	return s.errorf("check", "its key is %v, and weir needs the partition key %s (%s) alone; use another table: weir store create --store dynamodb:NAME", have, def.Key, def.KeyType)
}

func expires(d *types.TimeToLiveDescription) bool {
	return d != nil && aws.ToString(d.AttributeName) == ExpiryAttribute &&
		(d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling)
}

func accessDenied(err error) bool { return hasCode(err, "AccessDeniedException") }

func unknownOperation(err error) bool { return hasCode(err, "UnknownOperationException") }

func hasCode(err error, code string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code
}
