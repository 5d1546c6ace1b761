package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
)

// A key that is none of weir's is told from a server that fails, and how to remove it.
func TestAKeyThatIsNoRecord(t *testing.T) {
	b := newBench(t)
	for _, write := range [][]string{
		{"SET", "test:record##who", "x"}, {"RPUSH", "test:record##who", "x"},
		{"HSET", "test:record##who", "value", "x"}, {"HSET", "test:record##who", "version", "x"},
	} {
		b.server.Do(t, write...)
		_, _, err := b.store.Get(context.Background(), "who")
		if !errors.Is(err, weir.ErrNoRecord) || !strings.HasSuffix(err.Error(), "remove it with: redis-cli DEL 'test:record##who'") {
			t.Errorf("%v: %v", write, err)
		}
		b.server.Do(t, "DEL", "test:record##who")
		if value, version, err := b.store.Get(context.Background(), "who"); value != nil || version != "" || err != nil {
			t.Errorf("%v: removed: %q, %q, %v", write, value, version, err)
		}
	}
}
