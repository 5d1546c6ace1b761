package boltstore_test

import (
	"path/filepath"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
	"github.com/weirlabs/weir/storetest"
)

func open(tb testing.TB, path string, o boltstore.Options) *boltstore.Store {
	tb.Helper()
	s, err := boltstore.Open(path, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func inFile(mode boltstore.Sync) storetest.Open {
	return func(tb testing.TB, now func() int64) weir.Store {
		return open(tb, filepath.Join(tb.TempDir(), "weir.db"), boltstore.Options{Sync: mode, Now: now})
	}
}

func TestInterval(t *testing.T) { storetest.Run(t, inFile(boltstore.SyncInterval)) }

func TestAlways(t *testing.T) { storetest.Run(t, inFile(boltstore.SyncAlways)) }
