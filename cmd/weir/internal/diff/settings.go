package diff

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir/policy"
)

// settings compares what is no limit.
func (c *comparer) settings(was, is *policy.Policy) {
	set := func(name, who, old, now string) {
		if old != now {
			kind := "changed"
			switch {
			case old == "":
				kind = "added"
			case now == "":
				kind = "removed"
			}
			c.changes = append(c.changes, Change{Kind: kind, Layer: "settings", Name: name, Who: who, Field: name, Old: old, New: now, Effect: ""})
		}
	}
	all, operators := "everybody", "whoever runs it"
	callers := func(p *policy.Policy) string {
		var list []string
		for _, s := range p.CallerSources() {
			list = append(list, s.Name+": "+s.From)
		}
		return strings.Join(list, ", ")
	}
	plans := func(p *policy.Policy) string {
		if len(p.Plans()) == 0 {
			return ""
		}
		return strings.Join(p.Plans(), ", ") + " from " + p.PlansFrom()
	}
	set("callers", all, callers(was), callers(is))
	set("plans", "accounts", plans(was), plans(is))
	set("client_ip", "callers known by their address", was.Addressing(), is.Addressing())
	c.auth(was.Auth(), is.Auth(), set)
	old, now := WithoutPassword(was.Store()), WithoutPassword(is.Store())
	if old == now && was.Store() != is.Store() {
		now += ", with other credentials"
	}
	set("store", all, old, now)
	set("accounts.max_age", "callers with a record", was.AccountsAge().String(), is.AccountsAge().String())
	set("plan versions", "new accounts", versions(was), versions(is))
	set("edge_store", "every address", edgeStore(was), edgeStore(is))
	set("retry_after_jitter", "who is refused", jitter(was), jitter(is))
	set("cors", "pages of other origins", strings.Join(was.CORS(), ", "), strings.Join(is.CORS(), ", "))
	set("log_keys", operators, was.LogKeys(), is.LogKeys())
	set("revision", operators, fmt.Sprint(was.Revision()), fmt.Sprint(is.Revision()))
	set("name", operators, was.Name(), is.Name())
}

// WithoutPassword is a store's URL as others may see it: xxxxx in place of a password,
// and of the value of a parameter that no store has.
func WithoutPassword(store string) string {
	place, params, _ := strings.Cut(store, "?")
	if scheme, _, found := strings.Cut(place, "://"); found {
		u, err := url.Parse(place)
		if err != nil {
			return scheme + "://..."
		}
		if _, both := u.User.Password(); u.User != nil && !both {
			u.User = url.User("xxxxx") // a user alone is a password in the wrong place
		}
		place = u.Redacted()
	}
	if params == "" {
		return place
	}
	query, err := url.ParseQuery(params)
	if err != nil {
		return place + "?..."
	}
	for name, values := range query {
		for i, v := range values {
			shown := "xxxxx"
			switch u, err := url.Parse(v); {
			case name == "endpoint" && err == nil && u.Host != "":
				shown = u.Redacted()
			case slices.Contains(storeParams, name):
				shown = v
			}
			if shown != v {
				values[i] = shown
				params = query.Encode()
			}
		}
	}
	return place + "?" + params
}

// storeParams are the parameters of stores' URLs whose values anybody may see.
var storeParams = []string{"addr", "ca", "cert", "create", "key", "master_set", "max_ttl", "one_by_one", "prefix", "region", "resend", "sync"}

// versions says from when on new accounts have which version of a plan.
func versions(p *policy.Policy) string {
	var all []string
	for _, plan := range p.Plans() {
		for _, v := range p.VersionsOf(plan) {
			s := fmt.Sprintf("%s@%d", plan, v)
			if since := p.VersionSince(plan, v); !since.IsZero() {
				s += " since " + since.UTC().Format(time.RFC3339)
			}
			all = append(all, s)
		}
	}
	return strings.Join(all, ", ")
}

func jitter(p *policy.Policy) string {
	if p.RetryAfterJitter() == 0 {
		return ""
	}
	return p.RetryAfterJitter().String()
}

func edgeStore(p *policy.Policy) string {
	if p.EdgeShared() {
		return "shared"
	}
	return "memory"
}

func (c *comparer) auth(was, is policy.Auth, set func(name, who, old, now string)) {
	jwt := func(j *policy.JWT) string {
		if j == nil {
			return ""
		}
		s := "a public key"
		switch {
		case j.SecretEnv != "":
			s = "the secret in " + j.SecretEnv
		case j.JWKS != "":
			s = "the keys of " + j.JWKS
		}
		if j.Issuer != "" {
			s += ", issuer " + j.Issuer
		}
		if j.Audience != "" {
			s += ", audience " + j.Audience
		}
		return s
	}
	old, now := jwt(was.JWT), jwt(is.JWT)
	if old == now && was.JWT != nil && !reflect.DeepEqual(was.JWT.PublicKey, is.JWT.PublicKey) {
		now = "another public key"
	}
	set("auth.jwt", "callers with a token", old, now)
	keys := func(k *policy.APIKeys) string {
		if k == nil {
			return ""
		}
		owners := map[string]bool{}
		for _, one := range k.All() {
			owners[one.Owner+" ("+or(one.Plan, "no plan")+")"] = true
		}
		var list []string
		for o := range owners {
			list = append(list, o)
		}
		slices.Sort(list)
		const most = 5
		if len(list) > most {
			list = append(list[:most], fmt.Sprintf("and %d more", len(owners)-most))
		}
		return fmt.Sprintf("%d keys in %s: %s", k.Len(), k.Header, strings.Join(list, ", "))
	}
	old, now = keys(was.APIKeys), keys(is.APIKeys)
	if old == now && was.APIKeys != nil && !was.APIKeys.Same(is.APIKeys) {
		now += ", with other keys or owners"
	}
	set("auth.api_keys", "callers with an API key", old, now)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
