package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir/cmd/weir/internal/cases"
	"github.com/weirlabs/weir/policy"
)

const claimsPolicy = `weir: 1
auth:
  jwt: {hs256_secret_env: TEST_SECRET, issuer: https://issuer.example, audience: shop}
callers: {account: jwt.sub, tenant: jwt.tenant, ip: client_ip}
application:
  limits:
    - {name: seats, match: POST /seats, by: [account+tenant, account, ip], limit: quota 300/hour, anonymous: quota 100/hour}
`

// The whole kind: whatever claims somebody hands to explain or to a case, they are
// judged as the proxy judges them in a token that is signed.
func TestClaimsAreJudgedAsInASignedToken(t *testing.T) {
	service := newRecorder(t, nil)
	url := proxied(t, claimsPolicy, service.URL)
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), claimsPolicy)
	p, err := (&common{config: file}).loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{}`, `{"sub":"maya"}`, `{"sub":""}`, `{"sub":" "}`, `{"sub":5}`, `{"sub":0}`, `{"sub":1.5}`, `{"sub":true}`, `{"sub":null}`, `{"sub":["maya"]}`, `{"sub":{"id":"maya"}}`,
		`{"sub":"` + strings.Repeat("x", 256) + `"}`, `{"sub":"` + strings.Repeat("x", 257) + `"}`, `{"sub":"maya","Sub":5}`,
		`{"sub":"maya","exp":1}`, `{"sub":"maya","exp":-5}`, `{"sub":"maya","exp":null}`, `{"sub":"maya","exp":"soon"}`, `{"sub":"maya","exp":1e300}`, `{"sub":"maya","exp":32503680000}`,
		`{"sub":"maya","nbf":32503680000}`, `{"sub":"maya","nbf":"x"}`, `{"sub":"maya","nbf":1}`, `{"sub":"maya","iat":9100000000000000000}`, `{"sub":"maya","iat":32503680000}`,
		`{"sub":"maya","iss":"https://other.example"}`, `{"sub":"maya","iss":5}`, `{"sub":"maya","aud":"other"}`, `{"sub":"maya","aud":["other","shop"]}`, `{"sub":"maya","aud":[]}`, `{"sub":"maya","aud":null}`,
		`{"sub":"maya","tenant":"acme"}`, `{"sub":"maya","tenant":7}`, `{"sub":"maya","tenant":7.5}`, `{"sub":"maya","tenant":null}`, `{"sub":"maya","tenant":["acme"]}`, `{"sub":"maya","tenant":{"a":1}}`, `{"sub":"maya","tenant":false}`, `{"sub":"maya","tenant":""}`,
		`{"exp":1}`, `{"sub":"","exp":1}`, `{"tenant":"acme"}`,
	} {
		// What every token of that issuer has.
		claims := jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix(), "iss": "https://issuer.example", "aud": "shop"}
		if err := json.Unmarshal([]byte(text), &claims); err != nil {
			t.Fatal(err)
		}
		bearer, err := signed(claims)
		if err != nil {
			t.Fatal(err)
		}
		res, _ := do(t, "POST", url+"/seats", "Authorization", bearer)
		want := fmt.Sprint(res.StatusCode, " ", res.Header.Get("RateLimit-Policy"))

		var out, errs bytes.Buffer
		run(t.Context(), []string{"explain", "-c", file, "--method", "POST", "--path", "/seats", "--token", text, "--json"}, &out, &errs)
		var said explainReport
		if err := json.Unmarshal(out.Bytes(), &said); err != nil {
			t.Fatalf("%s: %v\n%s", text, err, errs.String())
		}
		if said.Verdict.Allowed {
			said.Verdict.Status = 200
		}
		if got := fmt.Sprint(said.Verdict.Status, " ", said.Verdict.Headers["RateLimit-Policy"]); got != want {
			t.Errorf("%s: explain says %s, the proxy %s", text, got, want)
		}
		if got := statusOfCase(t, p, text); got != res.StatusCode && (got != 0 || res.StatusCode != 200) {
			t.Errorf("%s: a case says %d, the proxy %d", text, got, res.StatusCode)
		}
		for _, r := range said.Fates {
			if res.StatusCode == 401 && (r.Applies || len(r.Limits) > 0 || !strings.Contains(r.Why, "401 before")) {
				t.Errorf("%s: the proxy answers 401, and of the limit explain says %+v", text, r)
			}
		}
	}
}

// statusOfCase runs one case whose token has these claims: 0 when it is served.
func statusOfCase(t *testing.T, p *policy.Policy, claims string) int {
	t.Helper()
	f, err := cases.Parse("cases.yaml", []byte(fmt.Sprintf("start: %s\ncases:\n  - {request: {method: POST, path: /seats, token: %s}, expect: {allowed: 1}}\n",
		time.Now().UTC().Format(time.RFC3339), claims)))
	if err != nil {
		t.Fatal(err)
	}
	results, err := cases.Run(t.Context(), p, f)
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Steps[0].Status
}

// An account is named only where there is one, also where no token is verified.
func TestExplainNamesNoAccountThatIsNone(t *testing.T) {
	const anyone = "weir: 1\nclient_ip: {from: socket}\napplication: {limits: [{name: l, match: POST /a, by: account, limit: 5/s}]}\n"
	for _, text := range []string{anyone, claimsPolicy} {
		file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), text)
		for claims, want := range map[string]string{`{"sub":null}`: "a token without sub", `{"tenant":"x"}`: "a token without sub", `{"sub":"maya"}`: "account maya"} {
			var out, errs bytes.Buffer
			run(t.Context(), []string{"explain", "-c", file, "--method", "POST", "--path", "/a", "--token", claims}, &out, &errs)
			said := out.String() + errs.String()
			if strings.Contains(said, "<nil>") || !strings.Contains(said, want) && !strings.Contains(said, "no rule here depends on it") {
				t.Errorf("%s: %s", claims, said)
			}
		}
	}
}
