package proxy

import (
	"context"
	"sync"
)

// Tunnels are the WebSockets of a handler. http.Server.Shutdown knows nothing of
// connections that were taken over, so that whoever ends a process asks for these
// after it. The zero value is ready, and safe for concurrent use.
type Tunnels struct {
	mu   sync.Mutex
	open map[*tunnel]struct{}
	none chan struct{} // closed when the last one ends; nil while nobody waits
}

type tunnel struct{ cut context.CancelFunc }

// begin counts a tunnel, which ends by end, and whose context ends when it is cut.
func (t *Tunnels) begin(ctx context.Context) (_ context.Context, end func()) {
	ctx, cut := context.WithCancel(ctx)
	one := &tunnel{cut}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[*tunnel]struct{}{}
	}
	t.open[one] = struct{}{}
	return ctx, func() {
		cut()
		t.mu.Lock()
		defer t.mu.Unlock()
		if delete(t.open, one); len(t.open) == 0 && t.none != nil {
			close(t.none)
			t.none = nil
		}
	}
}

// Shutdown waits until every tunnel has been closed by one of its ends. When ctx
// ends first it closes the rest, waits for that, and says how many there were.
// No request may reach the handler meanwhile.
func (t *Tunnels) Shutdown(ctx context.Context) (cut int) {
	t.mu.Lock()
	if len(t.open) == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
		return 0
	case <-ctx.Done():
	}
	t.mu.Lock()
	cut = len(t.open)
	for one := range t.open {
		one.cut()
	}
	t.mu.Unlock()
	<-none
	return cut
}
