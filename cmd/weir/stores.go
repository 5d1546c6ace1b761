package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/memstore"
)

// This file is the only place that knows all stores: it turns a store's URL
// into a store.

// slowStart is how long a store may take to answer for the first time.
const slowStart = 5 * time.Second

// storeURL is a store's address, taken apart and checked.
type storeURL struct {
	text   string
	scheme string
	name   string // the table
	params url.Values
	maxTTL time.Duration // 0: no bound
	create bool
}

// storeSchemes are the schemes with their parameters.
var storeSchemes = []struct {
	scheme, form string
	params       []string
}{
	{"memory", "memory:", []string{"max_ttl", "prefix"}},
	{"dynamodb", "dynamodb:TABLE?region=R&endpoint=URL&create=true", []string{"create", "endpoint", "max_ttl", "prefix", "region"}},
}

// notBuilt are schemes of stores that this version does not have.
var notBuilt = []string{"bolt", "redis", "rediss", "redis+cluster"}

// parseStore reads a store's URL. An error is a usage error.
func parseStore(text string) (storeURL, error) {
	var forms []string
	for _, s := range storeSchemes {
		forms = append(forms, s.form)
	}
	u := storeURL{text: text}
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		return u, usage("--store memory:", "store %q has no scheme; there are %s", text, strings.Join(forms, " and "))
	}
	u.scheme = scheme
	if slices.Contains(notBuilt, scheme) {
		return u, usage("--store memory:", "store %s: is not built into this version; there are %s", scheme, strings.Join(forms, " and "))
	}
	var known []string
	for _, s := range storeSchemes {
		if s.scheme == scheme {
			known = s.params
		}
	}
	if known == nil {
		return u, usage("--store memory:", "store scheme %q is unknown; there are %s", scheme, strings.Join(forms, " and "))
	}
	name, query, _ := strings.Cut(rest, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return u, usage("--store "+scheme+":"+name, "store %q: the parameters cannot be read: %w", text, err)
	}
	for p, values := range params {
		if !slices.Contains(known, p) {
			return u, usage("--store "+scheme+":"+name, "store %s: has no parameter %q; it has %s", scheme, p, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return u, usage("--store "+scheme+":"+name, "store %s: the parameter %s is given twice", scheme, p)
		}
	}
	u.name, u.params = name, params
	if v := params.Get("max_ttl"); params.Has("max_ttl") {
		if u.maxTTL, err = time.ParseDuration(v); err != nil || u.maxTTL <= 0 {
			return u, usage("--store '"+scheme+":"+name+"?max_ttl=24h'", "store %s: max_ttl=%s is not a time such as 24h", scheme, v)
		}
	}
	if v := params.Get("create"); params.Has("create") {
		if u.create, err = strconv.ParseBool(v); err != nil {
			return u, usage("--store '"+scheme+":"+name+"?create=true'", "store %s: create=%s is neither true nor false", scheme, v)
		}
	}
	switch scheme {
	case "memory":
		if name != "" {
			return u, usage("--store memory:", "store memory: has no name, but got %q", name)
		}
	case "dynamodb":
		if name == "" {
			return u, usage("--store dynamodb:little-stage", "store dynamodb: names no table")
		}
	}
	return u, nil
}

// opened is a store that has answered.
type opened struct {
	weir.Store
	warnings []string
}

// openStore opens a store and waits, up to [slowStart], until it answers. With
// create=true it makes the table first.
func openStore(ctx context.Context, text string, watch *weir.Observer) (*opened, error) {
	u, err := parseStore(text)
	if err != nil {
		return nil, err
	}
	if u.scheme == "memory" {
		m := memstore.New(memstore.Options{})
		if u.maxTTL > 0 {
			return &opened{Store: bounded{m, u.maxTTL}}, nil
		}
		return &opened{Store: m}, nil
	}
	s, err := openDynamo(ctx, u, watch)
	if err != nil {
		return nil, err
	}
	o := &opened{Store: s}
	return o, patiently(ctx, u, func(ctx context.Context) error {
		if u.create {
			if err := s.Create(ctx); err != nil {
				return err
			}
		}
		o.warnings, err = s.Check(ctx)
		return err
	})
}

func openDynamo(ctx context.Context, u storeURL, watch *weir.Observer) (*dynamostore.Store, error) {
	client, err := dynamostore.NewClient(ctx, u.params.Get("region"), u.params.Get("endpoint"))
	if err != nil {
		return nil, errHint{errUsage{err}, "--store 'dynamodb:" + u.name + "?region=us-east-1'"}
	}
	s, err := dynamostore.New(client, dynamostore.Options{
		Table: u.name, Prefix: u.params.Get("prefix"), MaxKeep: u.maxTTL, Observer: watch,
	})
	if err != nil {
		return nil, errHint{errUsage{err}, "--store dynamodb:little-stage"}
	}
	return s, nil
}

// patiently tries until it works, for as long as a store may need to start. An
// answer that waiting cannot change ends it at once.
func patiently(ctx context.Context, u storeURL, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, slowStart)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		var missing *types.ResourceNotFoundException
		if errors.As(err, &missing) {
			return errHint{err, "weir store create --store '" + u.text + "'"}
		}
		if !mayPass(err) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return errInterrupted
			}
			return fmt.Errorf("the store did not answer in %s: %w", slowStart, err)
		}
	}
}

// mayPass tells errors of a server that is still starting.
func mayPass(err error) bool {
	var network net.Error
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil && answer.HTTPStatusCode() != 0 {
		return answer.HTTPStatusCode() >= 500
	}
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)
}

// bounded is a memory store that keeps an item for at most a time: it shows on
// this machine what a store with such a bound will refuse.
type bounded struct {
	*memstore.Store
	keep time.Duration
}

func (b bounded) Caps() weir.Caps {
	c := b.Store.Caps()
	c.MaxKeep = b.keep
	return c
}

// defaultStore is the store of a policy that names none. Limits with a period
// of an hour or more deserve one that survives a restart; this version has no
// embedded one, and the warning says what that means.
func defaultStore(limits []weir.Limit) (text, warning string) {
	for _, l := range limits {
		if l.Period().Duration() >= time.Hour {
			return "memory:", fmt.Sprintf("no store is named, and the limit %s (%s) has a long period: counts are kept in memory and are lost at restart; for counts that last name one, as in --store dynamodb:TABLE", l.Name(), l)
		}
	}
	return "memory:", ""
}
