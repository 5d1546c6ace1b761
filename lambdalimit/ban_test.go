package lambdalimit

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// Whoever is served is refused once banned, whatever kind of event brings the
// call: 403 and {"error":"banned"} where there is a status, a typed error
// elsewhere.
func TestABanHoldsForEveryKindOfEvent(t *testing.T) {
	run := func(payload []byte, o Options, change func(*engine.Options)) (out any, err error, served bool) {
		f := Wrap(func(context.Context, json.RawMessage) (any, error) {
			served = true
			return map[string]any{"statusCode": 201}, nil
		}, newEngine(t, goldenPolicy, change), o)
		out, err = f(context.Background(), payload)
		return out, err, served
	}
	banned, kinds := 0, map[string]int{}
	for _, file := range eventFiles(t) {
		payload, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		o := Options{TrustForwardedFor: strings.Contains(file, "alb")}
		var caller weir.Key
		_, err, served := run(payload, o, func(o *engine.Options) {
			o.Decided = func(_ context.Context, o *engine.Outcome) {
				for i := range o.Verdicts {
					caller = o.Verdicts[i].Key
				}
			}
		})
		if err != nil || !served || !caller.Valid() || account.KindOf(caller) == "everyone" {
			continue // nobody is known there
		}
		store := memstore.New(memstore.Options{Now: func() int64 { return noon }})
		e := account.Editor{Records: store}
		if _, _, err := e.Edit(context.Background(), caller, func(r *account.Record) error { r.Ban = new(account.Ban); return nil }); err != nil {
			t.Fatal(err)
		}
		out, err, served := run(payload, o, func(o *engine.Options) { o.Store = store })
		if served {
			t.Errorf("%s: %s is served although banned", name, caller)
		}
		text, _ := json.Marshal(out)
		var re *policy.RequestError
		switch {
		case errors.As(err, &re) && re.Code == "banned":
		case err == nil && strings.Contains(string(text), `"errorType":"banned"`):
			kinds["typed error"]++
		case err == nil && name == "v2-head" && strings.Contains(string(text), `"statusCode":403`):
			// which has no body
		case err == nil && strings.Contains(string(text), `"statusCode":403`) && strings.Contains(string(text), `"body":"{\"error\":\"banned\"}\n"`):
			kinds["403"]++
		default:
			t.Errorf("%s: %s, %v", name, text, err)
		}
		banned++
		store.Close()
	}
	if banned < 40 || kinds["403"] < 20 {
		t.Errorf("only %d events were tried: %v", banned, kinds)
	}
}

func TestABannedCallerIsNotAuthorized(t *testing.T) {
	store := memstore.New(memstore.Options{Now: func() int64 { return noon }})
	defer store.Close()
	e := account.Editor{Records: store}
	if _, _, err := e.Edit(context.Background(), weir.NewKey("account", "a"), func(r *account.Record) error { r.Ban = new(account.Ban); return nil }); err != nil {
		t.Fatal(err)
	}
	f := WrapAuthorizer(func(context.Context, json.RawMessage) (any, error) { return allow("a"), nil },
		newEngine(t, authorizerPolicy, func(o *engine.Options) { o.Store = store }), Options{})
	out, err := f(context.Background(), fixture(t, "apigw-custom-auth-request-type-request"))
	if got := jsonOf(t, out, err); !strings.Contains(got, `"Effect":"Deny"`) || !strings.Contains(got, `"error":"banned"`) || !strings.Contains(got, `"message":"Forbidden"`) {
		t.Error(got)
	}
}
