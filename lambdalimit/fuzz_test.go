package lambdalimit

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"unicode/utf8"
)

// FuzzEvents feeds whatever to every wrapper: nothing panics, what is no event is
// an error of its own, and what is answered is JSON.
func FuzzEvents(f *testing.F) {
	for _, name := range eventFiles(f) {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(append([]byte("["), b...), ']'))
	}
	e := newEngine(f, goldenPolicy)
	handler := func(context.Context, json.RawMessage) (any, error) { return map[string]any{"statusCode": 200}, nil }
	o := Options{TrustForwardedFor: true}
	wraps := []Func{
		Wrap(handler, e, o), WrapAuthorizer(handler, e, o), Wrap(handler, e, Options{ReturnErrors: true, PassUnknown: true}),
		WrapBatch(func(_ context.Context, in []json.RawMessage) ([]any, error) { return make([]any, len(in)), nil }, e, o),
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for i, call := range wraps {
			out, err := call(context.Background(), payload)
			if err != nil {
				var unknown *UnknownEvent
				var nobody *NoCaller
				var refused *LimitExceeded
				if !errors.As(err, &unknown) && !errors.As(err, &nobody) && !errors.As(err, &refused) && json.Valid(payload) && i != 2 {
					t.Fatalf("wrapper %d: %T %v", i, err, err)
				}
				continue
			}
			text, err := marshal(out)
			if err != nil || !json.Valid(text) {
				t.Fatalf("wrapper %d: %q %v", i, text, err)
			}
		}
		if ev, err := read(payload); err == nil {
			a, id := ev.attributes(&o), ev.identity(nil)
			if a.Path == "" || a.Path[0] != '/' && ev.shape.isHTTP() && ev.Path != "" && ev.Path[0] == '/' || !utf8.ValidString(a.Path) {
				t.Fatalf("path %q", a.Path)
			}
			if ev.shape == httpV1 && ev.Version != "" && id.KeyOwner != "" {
				t.Fatalf("a key that nobody verified: %q", id.KeyOwner)
			}
		}
	})
}
