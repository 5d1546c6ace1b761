package main

import (
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir/boltstore"
	"github.com/weirlabs/weir/cmd/weir/internal/diff"
	"github.com/weirlabs/weir/redisstore"
)

// storeURL is a store's address, taken apart and checked.
type storeURL struct {
	text   string // as it was given; of Redis it may hold a password
	scheme string
	name   string // the table, the file, or the server without its credentials
	params url.Values
	maxTTL time.Duration // 0: no bound
	create bool          // of dynamodb:
	sync   boltstore.Sync
}

type storeScheme struct {
	scheme, form string
	params       []string
}

// storeSchemes are the schemes with their parameters. Those of Redis are
// checked by package redisstore.
var storeSchemes = []storeScheme{
	{"memory", "memory:", []string{"max_ttl", "prefix"}},
	{"bolt", "bolt:FILE?sync=interval|always", []string{"max_ttl", "prefix", "sync"}},
	{"redis", "redis://HOST:6379", nil},
	{"rediss", "rediss://HOST:6379", nil},
	{"redis+cluster", "redis+cluster://HOST:6379", nil},
	{"rediss+cluster", "rediss+cluster://HOST:6379", nil},
	{"dynamodb", "dynamodb:TABLE?region=R&endpoint=URL&create=true", []string{"create", "endpoint", "max_ttl", "prefix", "region"}},
}

// storeForms says in words how a store can be named.
func storeForms() string {
	var forms []string
	for _, s := range storeSchemes {
		forms = append(forms, s.form)
	}
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + " and " + forms[last]
}

// parseStore reads a store's URL. An error is a usage error, and shows nothing of
// the URL that may be a password.
func parseStore(text string) (storeURL, error) {
	u := storeURL{text: text}
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		return u, usage("--store memory:", "the store has no scheme; there are %s", storeForms())
	}
	u.scheme = scheme
	i := slices.IndexFunc(storeSchemes, func(s storeScheme) bool { return s.scheme == scheme })
	switch {
	case i < 0 && strings.Contains(scheme, "@"):
		return u, usage("--store memory:", "the store's scheme is unknown; there are %s", storeForms())
	case i < 0:
		return u, usage("--store memory:", "store scheme %q is unknown; there are %s", scheme, storeForms())
	}
	if u.redis() {
		return u, u.parseRedis()
	}
	name, query, _ := strings.Cut(rest, "?")
	u.name = name
	switch {
	case scheme == "memory" && name != "":
		return u, usage("--store memory:", "store memory: has no name")
	case strings.Contains(rest, "@") && (scheme == "dynamodb" && strings.Contains(name, "@") || strings.HasPrefix(name, "//")):
		return u, usage("--store "+shellWord(scheme+":little-stage"), "store %s: has no user, no password and no host", scheme)
	}
	if err := u.parseParams(query, storeSchemes[i].params); err != nil {
		return u, err
	}
	switch {
	case scheme == "bolt" && name == "":
		return u, usage("--store bolt:weir.db", "store bolt: names no file")
	case scheme == "bolt" && strings.HasPrefix(name, "//"):
		return u, usage("--store "+shellWord("bolt:"+strings.TrimPrefix(name, "//")), "store bolt: is followed by the file itself, without //: bolt:weir.db here, bolt:/var/lib/weir.db anywhere")
	case scheme == "dynamodb" && name == "":
		return u, usage("--store dynamodb:little-stage", "store dynamodb: names no table")
	}
	return u, nil
}

// remote reports whether the store is outside of this process.
func (u *storeURL) remote() bool { return u.scheme != "memory" && u.scheme != "bolt" }

// redis reports whether the store is a Redis or Valkey of any kind.
func (u *storeURL) redis() bool { return strings.HasPrefix(u.scheme, "redis") }

// parseRedis finds the name under which a server may be shown to people. Whether the
// files that the URL names are there is seen where the store is used.
func (u *storeURL) parseRedis() error {
	at, err := url.Parse(u.text)
	if err != nil || at.Hostname() == "" {
		return usage("--store "+u.scheme+"://localhost:6379", "store %s: cannot be read; write %s://[USER:PASSWORD@]HOST:6379, and %%XX for what is special in a password", u.scheme, u.scheme)
	}
	s, err := redisstore.Open(u.text, redisstore.Options{}) // connects when it is first needed
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return wrongRedis(err)
	default:
		u.maxTTL = s.Caps().MaxKeep
		if err := s.Close(); err != nil {
			return err
		}
	}
	u.name = at.Host + at.Path
	return nil
}

// wrongRedis is a usage error of what package redisstore says of a URL. It names no
// store to use: without a parameter that could be what somebody else counts on.
func wrongRedis(err error) error { return errHint{errUsage{err}, "weir store --help"} }

// parseParams reads what follows the ?, which may be known parameters only.
func (u *storeURL) parseParams(query string, known []string) error {
	plain := "--store " + shellWord(u.scheme+":"+u.name)
	params, err := url.ParseQuery(query)
	if err != nil {
		return usage(plain, "store %s: the parameters cannot be read; write %%XX for what is special in them", u.scheme)
	}
	for p, values := range params {
		if !slices.Contains(known, p) {
			if strings.Contains(p, "@") {
				p = "..." // it may be half of a password
			}
			return usage(plain, "store %s: has no parameter %q; it has %s", u.scheme, p, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return usage(plain, "store %s: the parameter %s is given twice", u.scheme, p)
		}
	}
	u.params = params
	if v := params.Get("max_ttl"); params.Has("max_ttl") {
		if u.maxTTL, err = time.ParseDuration(v); err != nil || u.maxTTL <= 0 {
			return usage("--store "+shellWord(u.scheme+":"+u.name+"?max_ttl=24h"), "store %s: max_ttl=%s is not a time such as 24h", u.scheme, v)
		}
	}
	if v := params.Get("create"); params.Has("create") {
		if u.create, err = strconv.ParseBool(v); err != nil {
			return usage("--store "+shellWord(u.scheme+":"+u.name+"?create=true"), "store %s: create=%s is neither true nor false", u.scheme, v)
		}
	}
	switch v := params.Get("sync"); {
	case !params.Has("sync"), v == "interval":
	case v == "always":
		u.sync = boltstore.SyncAlways
	default:
		return usage("--store "+shellWord(u.scheme+":"+u.name+"?sync=always"), "store %s: sync=%s is neither interval nor always", u.scheme, v)
	}
	return nil
}

// String is the store without what may be nobody's business.
func (u *storeURL) String() string {
	if u.redis() {
		return u.scheme + "://" + u.name
	}
	return u.scheme + ":" + u.name
}

// flag is the store as it is typed again, with its parameters, and with xxxxx in
// place of a password.
func (u *storeURL) flag() string {
	return "--store " + shellWord(diff.WithoutPassword(u.text))
}
