package main

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlabs/weir/cmd/weir/internal/openapi"
	"github.com/weirlabs/weir/policy"
)

// initFrom is the policy that weir init writes for a document with these paths, each
// "METHOD PATH", and what it says beside it.
func initFrom(t *testing.T, ops ...string) (*policy.Policy, []openapi.Skipped, string) {
	t.Helper()
	paths := map[string]map[string]any{}
	for _, o := range ops {
		method, path, _ := strings.Cut(o, " ")
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = map[string]any{}
	}
	doc, err := json.Marshal(map[string]any{"openapi": "3.0.0", "paths": paths})
	if err != nil {
		t.Fatal(err)
	}
	text, notes, err := policyFromOpenAPI(writeFile(t, filepath.Join(t.TempDir(), "api.json"), string(doc)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Load(onlyFile(text), "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p, notes, string(text)
}

// operationOf is the operation of a request.
func operationOf(t *testing.T, p *policy.Policy, method, path string) string {
	t.Helper()
	a := &policy.Attributes{Method: method, Path: path, Peer: netip.MustParseAddr("192.0.2.1")}
	m, err := p.Match(a)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := p.Ops(&m, a, policy.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	if len(ops) == 0 {
		return ""
	}
	return ops[0].Rule.Operation
}

// The whole kind: whatever paths a document has, those that a policy can have are in
// it and meet their requests, and each of the others is named with a reason.
func TestInitTakesWhatItCan(t *testing.T) {
	for _, c := range []struct {
		name  string
		ops   []string
		meets []string // "METHOD PATH OPERATION", "-" for none
		notes []string // "WHAT: part of the reason"
	}{
		{"a template within a segment", []string{"GET /accounts.json", "GET /accounts/{sid}.json", "POST /accounts/{sid}.json", "GET /accounts/{sid}/calls.json"},
			[]string{"GET /accounts.json get-accounts-json", "GET /accounts/a1.json get-accounts-sid-json", "POST /accounts/a1.json post-accounts-sid-json", "GET /accounts/a1/calls.json get-accounts-sid-calls-json"},
			[]string{"GET /accounts/{sid}.json: as GET /accounts/{sid}", "POST /accounts/{sid}.json: as POST /accounts/{sid}"}},
		{"several in one segment", []string{"GET /w/{a}-{b}/x", "GET /f/{name}.json", "GET /f/{name}.xml", "GET /f/{id}"},
			[]string{"GET /w/1-2/x get-w-a-b-x", "GET /f/9 get-f-id", "GET /f/n.xml get-f-id"},
			[]string{"GET /w/{a}-{b}/x: as GET /w/{a}/x", "GET /f/{name}.json: get-f-id (GET /f/{id}) matches the same requests", "GET /f/{name}.xml: the same requests"}},
		{"overlapping templates", []string{"GET /x/{a}", "GET /{b}/y", "POST /{b}/y"},
			[]string{"GET /x/1 get-x-a", "GET /x/y get-x-a", "GET /z/y -", "POST /z/y post-b-y"},
			[]string{"GET /{b}/y: some requests would match it and get-x-a (GET /x/{a}), and neither"}},
		{"case only", []string{"GET /Users", "GET /users", "PUT /users"}, []string{"GET /users get-users", "PUT /USERS put-users"}, []string{"GET /users: get-users (GET /Users) matches the same"}},
		{"names of templates", []string{"GET /a/{id}", "GET /a/{name}", "PUT /a/{order-id}/{2}/{}/{id}/{id}", "GET /b/{Id}/{id}"},
			[]string{"GET /a/1 get-a-id", "PUT /a/1/2/3/4/5 put-a-order-id-2-id-id", "GET /b/1/2 get-b-id-id"}, []string{"GET /a/{name}: matches the same"}},
		{"last slashes", []string{"GET /", "GET /pets/", "PUT /pets", "PUT /pets/", "GET /a//b"},
			[]string{"GET / get", "GET /pets get-pets", "GET /pets/ get-pets", "GET /pets/1 -", "GET /other -", "PUT /pets/ put-pets", "GET /a/b get-a-b"}, []string{"PUT /pets/: put-pets (PUT /pets) matches the same"}},
		{"custom verbs", []string{"GET /t/{id}", "POST /t/{id}:cancel", "POST /t:batch"}, []string{"POST /t/1:cancel post-t-id-cancel", "POST /t:batch post-t-batch", "GET /t/1 get-t-id"}, []string{"POST /t/{id}:cancel: as POST /t/{id}"}},
		{"what is no path", []string{"GET /ok", "GET /q?x=1", "GET /f#g", "GET /s/*", "GET /a/../b", "GET /{open", "GET /100%", "GET /s{?q}"},
			[]string{"GET /ok get-ok", "GET /s get-s-q"},
			[]string{"GET /q?x=1: query", "GET /f#g: fragment", "GET /s/*: no meaning", "GET /a/../b: dot segment", "GET /{open: left open", "GET /100%: escape"}},
		{"letters of all kinds", []string{"GET /ä", "GET /a b", "GET /%C3%A9", "GET /\"q\"", "GET /a\\b", "GET /;x"}, []string{"GET /%C3%A4 get", "GET /a%20b get-a-b", "GET /é get-c3-a9", "GET /%22q%22 get-q"}, nil},
		{"everything below", []string{"GET /p/{proxy+}", "GET /{a+}/b"}, []string{"GET /p/1/2 get-p-proxy", "GET /x/b -"}, []string{"GET /{a+}/b: some requests would match"}},
	} {
		p, notes, text := initFrom(t, c.ops...)
		taken := map[string]bool{}
		for _, m := range c.meets {
			part := strings.Fields(m)
			if len(part) < 3 {
				part = append(part, "")
			}
			if got := operationOf(t, p, part[0], part[1]); got != strings.Trim(part[2], "-") {
				t.Errorf("%s: %s %s is of %q, want %q\n%s", c.name, part[0], part[1], got, part[2], text)
			}
			taken[part[2]] = true
		}
		left := 0
		for _, n := range c.notes {
			what, why, _ := strings.Cut(n, ": ")
			found := false
			for _, got := range notes {
				found = found || got.What == what && strings.Contains(got.Why, why)
			}
			if !found {
				t.Errorf("%s: no note %q among %q", c.name, n, notes)
			}
			if !strings.Contains(text, "#   "+what+": ") {
				t.Errorf("%s: the policy does not say that of %s:\n%s", c.name, what, text)
			}
			if !strings.HasPrefix(why, "as ") {
				left++
			}
		}
		if c.notes != nil && len(notes) != len(c.notes) {
			t.Errorf("%s: notes %q, want %q", c.name, notes, c.notes)
		}
		if got := len(p.Rules()); c.notes != nil && got != len(c.ops)-left {
			t.Errorf("%s: %d of %d operations are taken, %d are named as left out", c.name, got, len(c.ops), left)
		}
	}
}

// A document with more operations than a policy can hold gives as many as it can.
func TestInitOfAVeryLargeDocument(t *testing.T) {
	var ops []string
	for i := range 6000 {
		ops = append(ops, "GET /things/{id}/parts/"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/26%26)+string(rune('a'+i/676)))
	}
	p, notes, _ := initFrom(t, ops...)
	if len(p.Rules()) < 1500 || len(notes) == 0 || !strings.Contains(notes[0].Why, "holds no more") {
		t.Errorf("%d operations, %d notes, the first %+v", len(p.Rules()), len(notes), notes[0])
	}
}

// Whatever an operation is called, the policy has it.
func TestInitTakesEveryOperationID(t *testing.T) {
	ids := []string{"null", "Null", "NULL", "~", "true", "FALSE", "yes", "no", "on", "off", "y", "inf", "nan", "1e3", "0x1f", "---", "", "weir", "from", "order", "limit", "<<", "a: b", "#", "é", "*a", "&a", "!a"}
	paths := map[string]any{}
	for i, id := range ids {
		paths["/p"+strconv.Itoa(i)] = map[string]any{"get": map[string]any{"operationId": id}}
	}
	doc, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		t.Fatal(err)
	}
	text, notes, err := policyFromOpenAPI(writeFile(t, filepath.Join(t.TempDir(), "api.json"), string(doc)))
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, %v", notes, err)
	}
	p, err := policy.Load(onlyFile(text), "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if operationOf(t, p, "GET", "/p"+strconv.Itoa(i)) == "" {
			t.Errorf("%q is not taken", id)
		}
	}
}
