package main

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// secretStores are stores' URLs with SECRET where somebody may put a password,
// rightly or not. None can be used.
var secretStores = []string{
	"redis://127.0.0.1:1?user=u&password=SECRET", "redis://u:SECRET@127.0.0.1:1/x", "redis://SECRET@127.0.0.1:1/x", "rediss://u:SECRET@127.0.0.1:1?pasword=SECRET",
	// What is special in a password ends the part of the URL that it stands in.
	"redis://u:12?SECRET=RET@h:6379", "redis://u:12/SECRET@h", "redis://u:12#SECRET@h", "redis://u:SECRET/x@h", "redis://u:SECRET%zz@h",
	"redis://u:12?SECRET@h", "redis://SECRET?x@h", "redis://SECRET?x%zz@h", "redis://u:12/SECRET?x@h", "redis://u:12?SECRET@h&SECRET@h",
	"redis://u:12?max_ttl=SECRET@h", "redis://u:12?resend=SECRET@h", "redis://u:12?one_by_one=SECRET@h", "redis://SECRET?master_set=x@h",
	"redis+cluster://127.0.0.1:1?addr=u:SECRET@127.0.0.1:2", "redis:u:SECRET@h", "redis//u:SECRET@h", "redisSECRET@h", "SECRET@h:6379",
	"bolt://u:SECRET@x/y", "bolt:w.db?password=SECRET", "bolt:w.db?SECRET@h", "bolt:w.db?a=%zzSECRET", "memory:?a=%zzSECRET",
	"dynamodb://k:SECRET@x/y?region=eu-central-1", "dynamodb:k:SECRET@x/y", "dynamodb:table?endpoint=k:SECRET@127.0.0.1:1", "dynamodb:table?region=r&password=SECRET",
	"dynamodb:table?region=r&create=maybe&endpoint=http://k:SECRET@127.0.0.1:1", "postgres://u:SECRET@h",
	"REDIS://ADMIN:SECRET@h", "redis://u:SECRET", "redis://u:12SECRET", "redis://:SECRET", "redis:u:SECRET", "postgres://u:SECRET",
}

// TestNoErrorShowsASecret: whatever is wrong with a store's URL, and wherever it
// was given, nothing that is printed shows what may be a password.
func TestNoErrorShowsASecret(t *testing.T) {
	t.Chdir(t.TempDir())
	const limits = "application: {limits: [{name: a, match: GET /, by: ip, limit: 1/s}]}\n"
	writeFile(t, "weir.yaml", "weir: 1\n"+limits)
	for i, store := range secretStores {
		// The password stands in a mistake of the store and in the line of another one.
		own := writeFile(t, "own"+strconv.Itoa(i)+".yaml", "weir: 1\nstore: \""+store+"\"\n"+limits)
		other := writeFile(t, "other"+strconv.Itoa(i)+".yaml", "store: '"+store+"'\n"+limits)
		folded := writeFile(t, "folded"+strconv.Itoa(i)+".yaml", "weir: 1\n'store' :\n  '"+store+"'\n"+limits)
		strore := writeFile(t, "strore"+strconv.Itoa(i)+".yaml", "weir: 1\n\"Strore\" : "+store+"\n"+limits)
		url := store
		if !strings.Contains(url, "://") {
			url = "redis://" + url // what looks like no store is shown where none belongs
		}
		edge := writeFile(t, "edge"+strconv.Itoa(i)+".yaml", "weir: 1\nedge_store: "+url+"\nname: "+url+"\n"+limits)
		storre := writeFile(t, "storre"+strconv.Itoa(i)+".yaml", "weir: 1\nstorre: "+store+"\n"+limits)
		for _, line := range [][]string{
			{"store", "check", "--store", store}, {"store", "ls", "--store", store}, {"store", "create", "--store", store},
			{"keys", "top", "--store", store}, {"proxy", "--to", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--store", store},
			{"keys", "get", "nobody", "--store", store}, {"store", "check", "-c", own}, {"proxy", "--to", "http://127.0.0.1:1", "-c", own},
			{"check", own}, {"check", "--json", own}, {"check", "--format", "sarif", own}, {"check", other}, {"check", "--json", other}, {"check", storre}, {"diff", own, own},
			{"check", folded}, {"check", strore}, {"check", edge}, {"check", "--json", edge},
		} {
			var out, errs bytes.Buffer
			code := run(t.Context(), line, &out, &errs)
			if strings.Contains(out.String()+errs.String(), "SECRET") {
				t.Errorf("weir %s shows the secret:\n%s%s", strings.Join(line, " "), &out, &errs)
			}
			if file := filepath.Ext(line[len(line)-1]) == ".yaml"; code != exitUsage && !file || code == exitLost {
				t.Errorf("weir %s: exit %d\n%s%s", strings.Join(line, " "), code, &out, &errs)
			}
		}
	}
}

// TestTypedAgainWithoutSecret: a hint that repeats a store keeps all of it that is no
// secret.
func TestTypedAgainWithoutSecret(t *testing.T) {
	for text, want := range map[string]string{
		"dynamodb:t?endpoint=http://k:SECRET@h:1&region=r": "--store 'dynamodb:t?endpoint=http%3A%2F%2Fk%3Axxxxx%40h%3A1&region=r'",
		"dynamodb:t?endpoint=http://h:1&region=r":          "--store 'dynamodb:t?endpoint=http://h:1&region=r'",
		"redis://u:SECRET@h?prefix=p":                      "--store 'redis://u:xxxxx@h?prefix=p'",
		"redis://h?addr=i:1&addr=j:1&master_set=m":         "--store 'redis://h?addr=i:1&addr=j:1&master_set=m'",
		"bolt:a b.db?sync=always":                          "--store 'bolt:a b.db?sync=always'",
	} {
		u, err := parseStore(text)
		if got := u.flag(); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}
