package policy

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// slips is a policy in which most names stand in two places.
const slips = `weir: 1
auth:
  jwt: {hs256_secret_env: SECRET, issuer: https://issuer.example}
callers: {account: jwt.sub, tenant: jwt.tenant, ip: client_ip}
client_ip: {from: cloudfront, ipv6_prefix: 64}
header_styles: [ietf, draft6]
exempt:
  - {name: webhooks, path: /webhooks/*, because: signed}
edge:
  - {name: rate-all, limit: sliding 200000/5m, by: ip, priority: 40, except_ips: [203.0.113.0/24]}
application:
  plans:
    from: jwt.plans
    order: [free, advanced, enterprise]
    free: {analyze: quota 100/day, generate: quota 10/minute}
    advanced: {analyze: quota 1000/day, generate: quota 100/minute}
    enterprise@1: {analyze: unlimited}
    enterprise@2: {since: 2026-01-01, analyze: quota 5000/day}
  operations:
    analyze: {match: POST /analyze, count: on_success, success: 200-299}
    generate: {match: "POST /generate/{kind}", on_store_error: local, share: 1/4}
  limits:
    - name: reservations
      match: ["POST /events/{event}/seats", "PUT /events/{event}/seats"]
      by: [account+path.event, tenant+path.event]
      limit: [0.5/s burst 10, quota 100/day calendar Europe/Berlin]
      anonymous: 0.1/s burst 2
      cost: 'int(header("X-Seats"))'
      when: 'plan != "enterprise"'
      on_error: deny
      mode: enforce
      denied: {message: "Wait {{.Wait}}.", upgrade_url: /billing}
environments:
  staging: {application: {limits: [{name: reservations, limit: 5/s}]}}
`

// The whole kind: one slip of the pen, wherever it is, is one mistake and no flood.
func TestOneSlipIsOneMistake(t *testing.T) {
	if _, err := loadText(slips); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, at := range regexp.MustCompile(`[A-Za-z_]{2,}`).FindAllStringIndex(slips, -1) {
		word := slips[at[0]:at[1]]
		for _, slip := range []string{word[:len(word)-1], word[1:], word + "x", word[:1] + "x" + word[1:]} {
			tried++
			text := slips[:at[0]] + slip + slips[at[1]:]
			_, err := loadText(text)
			var ps Problems
			if errors.As(err, &ps) && len(ps) > 1 {
				line := strings.Count(slips[:at[0]], "\n") + 1
				t.Errorf("%s for %s in line %d: %d mistakes\n%v", slip, word, line, len(ps), err)
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d slips were tried", tried)
	}
}
