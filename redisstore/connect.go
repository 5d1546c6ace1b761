package redisstore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// pause is how long a failed attempt to connect answers for: callers of a server
// that is down must not all dial it.
const pause = 100 * time.Millisecond

// connector makes a client when it is first needed. rueidis makes none while its
// server is down, and a program may start before its server.
type connector struct {
	option rueidis.ClientOption
	client atomic.Pointer[rueidis.Client]

	mu      sync.Mutex
	attempt *attempt // running, or the last one
	closed  bool
}

type attempt struct {
	done  chan struct{}
	err   error     // after done
	until time.Time // after done: until when err answers
}

func newConnector(o rueidis.ClientOption) *connector { return &connector{option: o} }

// get is the client. All callers wait for one attempt, each no longer than its
// context allows.
func (c *connector) get(ctx context.Context) (rueidis.Client, error) {
	if client := c.client.Load(); client != nil {
		return *client, nil
	}
	a := c.start()
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, notSent{ctx.Err()}
	}
	if a.err != nil {
		return nil, notSent{a.err}
	}
	return *c.client.Load(), nil
}

// have is the client, or nil while there is none.
func (c *connector) have() rueidis.Client {
	if client := c.client.Load(); client != nil {
		return *client
	}
	return nil
}

// start gives the attempt that answers now, which may be a new one.
func (c *connector) start() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.attempt; a != nil {
		select {
		case <-a.done:
			if a.err == nil || time.Now().Before(a.until) {
				return a
			}
		default:
			return a
		}
	}
	a := &attempt{done: make(chan struct{})}
	c.attempt = a
	if c.closed {
		a.err = rueidis.ErrClosing
		close(a.done)
		return a
	}
	go c.connect(a)
	return a
}

func (c *connector) connect(a *attempt) {
	client, err := newClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(a.done)
	switch {
	case err != nil:
		a.err, a.until = err, time.Now().Add(pause)
	case c.closed:
		client.Close()
		a.err = rueidis.ErrClosing
	default:
		c.client.Store(&client)
	}
}

// newClient connects. Sentinels that want a password are given that of the servers,
// which have no use for another in an address. rueidis takes a server that is asked for its cluster, and
// answers no, for a single one. One that answers that the user may not ask is none.
func newClient(o rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(o)
	if answer := answered(err); answer != nil && strings.HasPrefix(answer.Error(), "NOAUTH") && o.Sentinel.MasterSet != "" && o.Password != "" {
		o.Sentinel.Username, o.Sentinel.Password = o.Username, o.Password
		client, err = rueidis.NewClient(o)
		if err != nil && slices.ContainsFunc(o.InitAddress, func(addr string) bool { return refuses(addr, o) }) {
			err = sentinelsOwn{err}
		}
	}
	if err != nil || o.ForceSingleClient || o.Sentinel.MasterSet != "" || client.Mode() == rueidis.ClientModeCluster {
		return client, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Dialer.Timeout)
	defer cancel()
	for _, r := range client.DoMulti(ctx, client.B().ClusterSlots().Build(), client.B().ClusterShards().Build()) {
		if answer := answered(r.Error()); answer != nil && strings.HasPrefix(answer.Error(), "NOPERM") {
			client.Close()
			return nil, answer
		}
	}
	return client, nil
}

// refuses reports whether a Sentinel refuses the user or the password that it is given.
func refuses(addr string, o rueidis.ClientOption) bool {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, Username: o.Sentinel.Username, Password: o.Sentinel.Password,
		Dialer: o.Sentinel.Dialer, TLSConfig: o.Sentinel.TLSConfig, DisableCache: true, ForceSingleClient: true,
	})
	if err == nil {
		client.Close()
	}
	answer := answered(err)
	return answer != nil && strings.HasPrefix(answer.Error(), "WRONGPASS")
}

// close closes the client, now or when it is there.
func (c *connector) close() error {
	c.mu.Lock()
	c.closed = true
	client := c.client.Load()
	c.mu.Unlock()
	if client != nil {
		(*client).Close()
	}
	return nil
}
