package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// rightsScript tries every command of all scripts, and HMGET, on a key that
// nobody has, and answers a line for each that failed: the command and why. It
// writes nothing: what would make a field has too many values, or none that is a
// number, and is refused after the user's rights were looked at. In a cluster the
// key is no key of the script, since any node is asked: those that don't have it
// refuse it, but the user first.
const rightsScript = `local k=KEYS[1] or ARGV[1]
local failed=''
for _,c in ipairs({{'TIME'},{'HGETALL',k},{'HLEN',k},{'HSET',k,'f','1','f'},{'HINCRBY',k,'f','f'},{'HDEL',k,'f'},{'PEXPIRE',k,'1000'},{'HMGET',k,'f'}}) do
local r=redis.pcall(unpack(c))
if type(r)=='table' and r.err then failed=failed..string.lower(c[1])..' '..r.err..'\n' end
end
return failed`

var rightsLua = newLua(rightsScript)

// rights looks whether the user of a node may do all that deciding needs. An
// error says what is missing, as far as that can be seen at once. It also
// reports whether the user may read records.
func (s *Store) rights(ctx context.Context, node rueidis.Client, addr string, cluster bool) (records bool, err error) {
	key := s.prefix + "check##" + rand.Text()
	keys, args := []string{key}, []string(nil)
	if cluster {
		keys, args = nil, []string{key}
	}
	// By its name as well: a script that is not known by it yet is sent by EVAL.
	full := node.B().Eval().Script(rightsLua.source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	named := rightsLua.named(node, keys, args...)
	var missing []string
	need := func(right string) {
		if !slices.Contains(missing, right) {
			missing = append(missing, right)
		}
	}
	records = true
	for i, r := range node.DoMulti(ctx, full, named) {
		text, err := r.ToString()
		answer := answered(err)
		switch {
		case answer != nil && strings.HasPrefix(answer.Error(), "NOPERM") && strings.Contains(answer.Error(), "access"):
			need("~" + s.prefix + "*")
		case answer != nil && strings.HasPrefix(answer.Error(), "NOPERM"):
			need([]string{"+eval", "+evalsha"}[i])
		case err != nil && len(missing) == 0:
			return false, s.explain("check", err)
		}
		for line := range strings.Lines(text) {
			command, why, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch {
			case s.denied("", why) == "":
			case strings.Contains(why, "access"):
				need("~" + s.prefix + "*")
			case command == "hmget":
				records = false
			default:
				need("+" + command)
			}
		}
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("redis %s: check: %s", addr, lacksRights(strings.Join(missing, " ")))
	}
	return records, nil
}
