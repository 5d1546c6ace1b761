package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir/internal/redistest"
)

// The id that a refused caller is given leads to the reason: in the store's
// records, and in the decision log.
func TestWhy(t *testing.T) {
	const text = `
weir: 1
auth: {jwt: {hs256_secret_env: TEST_SECRET}}
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 1/hour}}
  operations: {render: {match: POST /render}}
  limits: [{name: calls, match: POST /render, by: account, limit: 1/m burst 9}]
`
	up := newRecorder(t, nil)
	store := "redis://" + redistest.Start(t, redistest.Options{}).Addr
	log := filepath.Join(t.TempDir(), "decisions.jsonl")
	url := proxied(t, text, up.URL, "--store", store, "--decision-log", log)
	who := token(t, jwt.MapClaims{"sub": "secret-name"})
	do(t, "POST", url+"/render", "Authorization", who)
	_, body := do(t, "POST", url+"/render", "Authorization", who)
	var refusal struct {
		DenialID          string
		RetryAfterSeconds int
	}
	if err := json.Unmarshal([]byte(body), &refusal); err != nil || refusal.DenialID == "" || refusal.RetryAfterSeconds > 3600 || refusal.RetryAfterSeconds < 3500 {
		t.Fatalf("%s: %v", body, err)
	}
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), text)
	why := func(args ...string) (code int, out, said string) {
		var stdout, stderr bytes.Buffer
		code = run(context.Background(), append([]string{"why", "-c", file, "--store", store}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	for end := time.Now().Add(time.Minute); ; { // it is kept beside the requests
		if code, _, said := why(refusal.DenialID); code == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatal(said)
		}
	}
	for _, from := range [][]string{nil, {"--from", "decisions=" + log}} {
		code, out, said := why(append([]string{refusal.DenialID}, from...)...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", from, code, said)
		}
		for _, want := range []string{refusal.DenialID + ": refused at ", "by the application limit render (quota 1/hour, plan free)", "1 of 1 were used, and the call cost 1", fmt.Sprintf("told to try again %d seconds later", refusal.RetryAfterSeconds)} {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", from, want, out)
			}
		}
		if passes := strings.Contains(out, "would have passed at 2"); passes != (from == nil) {
			t.Errorf("%v: when the call would have passed is said: %v\n%s", from, passes, out)
		}
		if from == nil && !strings.Contains(out, "application limit calls would have allowed it, with 8 left") {
			t.Errorf("nothing of the other limit in\n%s", out)
		}
		if strings.Contains(out, "secret-name") {
			t.Errorf("%v: the caller's name is shown", from)
		}
		if code, out, said = why(append([]string{refusal.DenialID, "--json"}, from...)...); code != 0 {
			t.Fatalf("exit %d: %s", code, said)
		}
		var report map[string]any
		if err := json.Unmarshal([]byte(out), &report); err != nil || report["schema_version"] != 1.0 || report["denial_id"] != refusal.DenialID || report["limit"] != "render" || report["used"] != 1.0 {
			t.Errorf("%v: %s, %v", from, out, err)
		}
		if code, _, said = why(append([]string{"0000000000000"}, from...)...); code != 1 || !strings.Contains(said, "try: weir why 0000000000000") {
			t.Errorf("%v: an unknown id: exit %d, %s", from, code, said)
		}
	}
	if code, _, said := why(); code != 2 || !strings.Contains(said, "try: weir why ") {
		t.Errorf("without an id: exit %d, %s", code, said)
	}
}
