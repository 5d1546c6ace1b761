package redisstore_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
	"github.com/weirlabs/weir/storetest"
)

func TestStore(t *testing.T) {
	c := single(t, redistest.Start(t, redistest.Options{}))
	storetest.Run(t, func(tb testing.TB, _ func() int64) weir.Store {
		return newStore(tb, c, redisstore.Options{Prefix: "test:"})
	})
}

func TestStoreThatResends(t *testing.T) {
	c := single(t, redistest.Start(t, redistest.Options{}))
	storetest.Run(t, func(tb testing.TB, _ func() int64) weir.Store {
		return newStore(tb, c, redisstore.Options{Prefix: "test:", Resend: true, OneByOne: true})
	})
}

func TestStoreOnCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{})
	c := client(t, rueidis.ClientOption{InitAddress: []string{cluster.Nodes[0].Addr}})
	storetest.Run(t, func(tb testing.TB, _ func() int64) weir.Store {
		return newStore(tb, c, redisstore.Options{Prefix: "test:", Resend: true})
	})
}

func BenchmarkStore(b *testing.B) {
	c := single(b, redistest.Start(b, redistest.Options{}))
	storetest.Bench(b, func(tb testing.TB, _ func() int64) weir.Store {
		return newStore(tb, c, redisstore.Options{})
	})
}
