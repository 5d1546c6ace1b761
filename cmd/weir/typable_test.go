package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlabs/weir/internal/redistest"
)

// tried runs a command, and then what its hint says, as a shell reads it.
func tried(t *testing.T, args ...string) (code int, said string, again int, saidThen, try string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	_, try, found := strings.Cut(errs.String(), "\ntry: ")
	if try = strings.TrimSpace(try); !found || !strings.HasPrefix(try, "weir ") {
		t.Errorf("weir %q: exit %d, and no command to try:\n%s", args, code, errs.String())
		return code, errs.String(), -1, "", try
	}
	shell := exec.Command("sh", "-c", `weir() { for a in "$@"; do printf '%s\0' "$a"; done; }; `+try)
	words, err := shell.Output()
	if err != nil {
		t.Fatalf("%s: %v", try, err)
	}
	var then bytes.Buffer
	again = run(context.Background(), strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00"), &then, &then)
	return code, errs.String(), again, then.String(), try
}

// The whole kind: what a hint prints can be typed as it stands. It finds the
// policy and the store that were typed, whatever characters are in their names,
// and is no mistake itself.
func TestEveryHintWorksAsItIsPrinted(t *testing.T) {
	t.Setenv("TEST_SECRET", testSecret)
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(versioned, "2199-01-01") + "  limits:\n    - {name: seats, match: \"POST /seats/{seat}\", by: account+path.seat, limit: 9/h}\n"
	file := writeFile(t, filepath.Join(dir, "my weir.yaml"), text)
	up := newRecorder(t, nil)
	store := "redis://" + redistest.Start(t, redistest.Options{}).Addr + "?prefix=a%27b%3A"
	url := proxied(t, text, up.URL, "--store", store)
	served(t, url+"/orders", "ann")
	here := []string{"-c", file, "--store", store}
	for _, c := range []struct {
		args string // words, of which _ is a space
		code int    // of the command
		then int    // of what is to be tried
		says string // by then
	}{
		{"usage", 2, 1, "account#customer-42 has used nothing"},
		{"usage --account acme-*", 2, 1, "nothing is said of anybody"},
		{"usage --account o'neil --plan gold", 2, 1, "has used nothing"},
		{"usage --account bob", 1, 0, "account#ann"},
		{"usage --account tenant#bob", 2, 1, "account#customer-42 has used nothing"},
		{"keys get account#bob", 1, 0, "account#ann"},
		{"keys get bob", 2, 1, "account#bob has used nothing"},
		{"keys get account#ann --plan gold", 2, 0, "orders"},
		{"keys get seat#1", 1, 0, "account#ann"},
		{"keys get account#ann orders", 2, 0, "orders"},
		{"keys get o'neil orders", 2, 1, "account#o%27neil has used nothing"},
		{"keys reset account#bob orders now", 2, 1, "account#bob has used nothing of orders"},
		{"keys reset bob orders now", 2, 1, "account#bob has used nothing of orders"},
		{"keys top -n 0", 2, 0, "account#ann"},
		{"keys top account#a free", 2, 0, "account#ann"},
		{"keys reset account#ann order", 1, 0, "starts over"},
		{"accounts get bob", 1, 0, "account#ann"},
		{"accounts set ann", 2, 0, "--billing-anchor WHEN"},
		{"accounts set ann --plan gold", 2, 0, "plan free"},
		{"accounts set ann --plan free@7", 2, 0, "keeps free@2"},
		{"accounts set ann_b --clear pin", 2, 1, "has none of plan"},
		{"accounts set ann --clear billing-anchor", 1, 0, "keeps free@2"},
		{"accounts set acme-* --plan free@1", 2, 0, "account#acme-*"},
		{"accounts set ann --billing-anchor soon", 2, 0, "billing anchor"},
		{"accounts set ann --plan free@2 --expires yesterday", 2, 0, "keeps free@2"},
		{"accounts migrate --from free@2 --to free@2", 2, 0, "account#ann"},
		{"accounts migrate --from free@2 --to free@7", 2, 0, "account#ann\n"},
		{"accounts migrate --from paid@1 --to paid@2", 2, 0, ""},
		{"accounts migrate --from free@1 --to free@2 --dry-run", 1, 0, "account#ann"}, // none is left
		{"keys override account#ann order unlimited", 1, 0, "limit orders"},
		{"keys override account#ann orders 9", 2, 0, "limit orders"},
		{"keys override account#bob orders --remove", 1, 1, "nothing is said of account#bob"},
		{"keys override tenant#a orders unlimited", 2, 0, "limit orders = unlimited"},
		{"keys ban account#bob --lift", 1, 1, "nothing is said of account#bob"},
		{"keys ban", 2, 0, "banned"},
		{"keys erase account#zoe", 1, 0, "0 keys"},
		{"keys erase account#zoe now", 2, 1, "account#zoe"},
		{"keys erase account#a*", 2, 0, "account#ann"},
		{"why 0000000000000", 1, 3, "decisions.jsonl"},
		{"why", 2, 1, "keeps nothing of the refusal"},
		{"keys top --store nonsense:", 2, 2, "memory: is seen by nobody"},
		{"keys top --store memory:", 2, 0, "weir keys top"},
		{"keys ban account#ann --store redis://localhost:1/?prefx=v", 2, 0, "All take prefix=P"},
		{"cost --rps -1", 2, 0, ""},
	} {
		words := strings.Fields(c.args)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "_", " ")
		}
		args := append(append(words[:len(words):len(words)], here...), "--reason", "it's so")
		if words[0] == "usage" || words[0] == "why" || words[0] == "cost" || words[1] == "get" || words[1] == "top" || words[1] == "reset" || words[1] == "list" {
			args = args[:len(args)-2]
		}
		if strings.Contains(c.args, "--store") {
			args = append(words, "-c", file)
		}
		code, said, then, saidThen, try := tried(t, args...)
		if code != c.code {
			t.Errorf("weir %s: exit %d, want %d: %s", c.args, code, c.code, said)
		}
		if then != c.then || !strings.Contains(saidThen, c.says) {
			t.Errorf("weir %s, and then %s: exit %d, want %d and %q: %s", c.args, try, then, c.then, c.says, saidThen)
		}
	}
}

// Where there is no policy, the hint makes one, and nothing else.
func TestTheHintOfAMissingPolicyMakesOne(t *testing.T) {
	for _, words := range []string{"accounts list", "keys top", "usage --account ann", "check"} {
		file := filepath.Join(t.TempDir(), "none yet.yaml")
		args := append(strings.Fields(words), "-c", file)
		if words == "check" {
			args = []string{"check", file}
		}
		code, said, then, saidThen, try := tried(t, args...)
		if code != exitUsage || then != exitDone || try != "weir init -c '"+file+"'" {
			t.Errorf("weir %s: exit %d: %s and then %s: exit %d: %s", words, code, said, try, then, saidThen)
		}
	}
}

// A password is in no hint, a user may be; what a variable of the environment
// says is not said again.
func TestAHintShowsNoPassword(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), "weir: 1\ncallers: {ip: client_ip}\napplication:\n  limits: [{name: calls, match: /, by: ip, limit: 9/h}]\n")
	server := redistest.Start(t, redistest.Options{Config: []string{"requirepass hush"}})
	store := "redis://default:hush@" + server.Addr + "?prefix=p"
	for _, env := range []bool{false, true} {
		args := []string{"accounts", "get", "ip#192.0.2.1", "-c", file}
		want := "--store 'redis://default:xxxxx@" + server.Addr + "?prefix=p'"
		if env {
			t.Setenv("WEIR_STORE", store)
			want = "try: weir accounts list -c " + file + "\n"
		} else {
			args = append(args, "--store", store)
		}
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, &out, &errs); code != 1 || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "hush") {
			t.Errorf("exit %d, want %s: %s", code, want, errs.String())
		}
	}
}
