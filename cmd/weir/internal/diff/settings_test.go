package diff

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir/policy"
)

// What is compared goes into comments of pull requests.
func TestNoChangeShowsAPassword(t *testing.T) {
	for _, stores := range [][2]string{
		{"redis://u:SECRET@h:1/", "redis://u:SECRETS@h:1/"}, {"memory:", "rediss://:SECRET@h:1/"},
		{"redis+cluster://u:SECRET@h:1/", "redis+cluster://v:SECRET@g:1/"}, {"redis://u:SECRET@h:1/", "redis://u:SECRET%zz@h:1/"},
		{"redis://h:1/?password=SECRET", "redis://h:1/?password=SECRETS"}, {"redis://SECRET@h:1/", "redis://SECRETS@h:1/"},
	} {
		changes := Compare(edited(t, "name: shop", "name: shop\nstore: '"+stores[0]+"'"), edited(t, "name: shop", "name: shop\nstore: '"+stores[1]+"'"))
		if said := fmt.Sprintf("%+v", changes); len(changes) != 1 || strings.Contains(said, "SECRET") {
			t.Errorf("%v: %s", stores, said)
		}
	}
}

func TestAnotherKeyOfTheSameOwner(t *testing.T) {
	of := func(keys ...string) *policy.Policy {
		file := ""
		for _, k := range keys {
			file += fmt.Sprintf("acme - %x\n", sha256.Sum256([]byte(k)))
		}
		p, err := policy.Load(fstest.MapFS{
			"weir.yaml": {Data: []byte("weir: 1\nauth: {api_keys: {header: X-Api-Key, file: k}}\napplication: {limits: [{name: a, match: GET /a, by: partner, limit: 1/s}]}\n")},
			"k":         {Data: []byte(file)},
		}, "weir.yaml", policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		was, is []string
		want    int
	}{{[]string{"x", "y"}, []string{"y", "x"}, 0}, {[]string{"x"}, []string{"z"}, 1}, {[]string{"x"}, []string{"x", "y"}, 1}} {
		if changes := Compare(of(c.was...), of(c.is...)); len(changes) != c.want {
			t.Errorf("%v to %v: %+v", c.was, c.is, changes)
		}
	}
}

func TestWhenAVersionBegins(t *testing.T) {
	const text = "weir: 1\napplication:\n  plans:\n    order: [free]\n    free: {orders: quota 50/hour}\n    free@2: {since: 2027-01-01, orders: quota 40/hour}\n  operations: {orders: {match: POST /orders}}\n"
	changes := Compare(load(t, text), load(t, strings.Replace(text, "2027", "2028", 1)))
	if len(changes) != 1 || changes[0].Who != "new accounts" || !strings.Contains(changes[0].New, "2028-01-01") {
		t.Errorf("%+v", changes)
	}
}

// The whole kind: calendars are the same only by name.
func TestSpellingsOfALimit(t *testing.T) {
	for _, c := range []struct {
		was, is string
		same    bool
	}{
		{"50/s", "50/s burst 50", true}, {"1/s burst 5", "60/m burst 5", true}, {"0.1/s burst 5", "6/m burst 5", true}, {"quota 10/day", "quota 10/24h", true},
		{"quota 10/day", "quota 10/d", true}, {"quota 10/month", "quota 10/30d", true}, {"quota 10/day calendar", "quota 10/day calendar UTC", true}, {"sliding 10/m", "sliding 10/60s", true},
		{"quota 10/day calendar", "quota 10/day", false}, {"quota 10/day calendar", "quota 10/day calendar Europe/Berlin", false}, {"quota 10/month calendar", "quota 10/month billing", false},
		{"1/s burst 5", "61/m burst 5", false}, {"sliding 10/m", "quota 10/m", false}, {"quota 10/m", "10/m", false},
	} {
		of := func(limit string) *policy.Policy {
			return load(t, "weir: 1\napplication: {limits: [{name: a, match: GET /a, by: account, limit: "+limit+"}]}\n")
		}
		if changes := Compare(of(c.was), of(c.is)); (len(changes) == 0) != c.same {
			t.Errorf("%s, %s: %+v", c.was, c.is, changes)
		}
	}
}
