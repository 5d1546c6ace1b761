package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// A call that fails costs nothing where only success is counted, also while another
// program has spoiled what is counted of another limit, or of a shadow.
func TestOnSuccessBesideASpoiledField(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: first, match: /, by: account, limit: quota 10/d, count: on_success}
    - {name: watched, match: /, by: account, limit: quota 10/d, count: on_success, mode: shadow}
    - {name: calls, match: /, by: account, limit: quota 10/d}
    - {name: last, match: /, by: account, limit: 10/d burst 10, count: on_success}
`
	server := redistest.Start(t, redistest.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, text, func(o *Options) { o.Store = store })
	for id, field := range map[string]string{"a": "first.c", "b": "watched~.c", "c": "calls.c", "d": "last.t"} {
		o := r.ask("/", id)
		if o.Status != 0 || o.Degraded {
			t.Fatalf("%+v", o)
		}
		key := "account#" + id
		server.Do(t, "HSET", key, field, "abc")
		err := o.Settle(context.Background(), 500)
		if spoiled := field != "calls.c"; spoiled != errors.As(err, new(*weir.SpoiledError)) { // of which nothing is given back
			t.Errorf("%s is spoiled: %v", field, err)
		}
		for _, other := range []string{"first.c", "watched~.c", "calls.c"} {
			want := "0"
			if other == "calls.c" {
				want = "1"
			}
			if got := server.Do(t, "HGET", key, other); other != field && got != want {
				t.Errorf("%s is spoiled: %s is %s, want %s", field, other, got, want)
			}
		}
	}
	if !strings.Contains(r.log.String(), "could not give back") {
		t.Errorf("nobody is told: %s", r.log.String())
	}
}
