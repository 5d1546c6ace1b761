package lambdalimit

import (
	"context"
	"time"

	"github.com/weirlabs/weir"
)

// warmTimeout bounds Warm: an environment must come up without its store too.
const warmTimeout = time.Second

// Warm opens the connection to a store, within a second, by a read of an item
// that no caller can have. Call it before lambda.Start: there the process has a
// whole processor and nobody waits, while the first event would have to wait for
// TLS and credentials. An error is no reason to stop, since every limit says what
// holds while its store does not answer; it is meant for a log line.
func Warm(ctx context.Context, s weir.Store) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	var state weir.Cells
	_, _, err := s.Apply(ctx, weir.NewKey("warm", "up"), nil, &state)
	return err
}
