package dynamostore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
)

// An item that is none of weir's is told from a table that fails, and how to remove it.
func TestAnItemThatIsNoRecord(t *testing.T) {
	x := newTimed(t, servers.full)
	table := tableOf(x)
	if err := x.store.Put(context.Background(), "who", []byte("1"), "", someDay.AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	items, err := x.client.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table})
	if err != nil || len(items.Items) != 1 {
		t.Fatalf("%v, %v", items, err)
	}
	odd := items.Items[0]
	for name, v := range odd {
		if _, binary := v.(*types.AttributeValueMemberB); binary {
			odd[name] = &types.AttributeValueMemberS{Value: "by hand"}
		}
	}
	if _, err := x.client.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &table, Item: odd}); err != nil {
		t.Fatal(err)
	}
	pk := odd["pk"].(*types.AttributeValueMemberS).Value
	_, _, err = x.store.Get(context.Background(), "who")
	if want := `remove it with: aws dynamodb delete-item --table-name '` + table + `' --key '{"pk":{"S":"` + pk + `"}}'`; !errors.Is(err, weir.ErrNoRecord) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
