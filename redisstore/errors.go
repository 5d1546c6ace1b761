package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
)

// Rights is what a user of Redis needs on the store's keys to decide, as rules
// for ACL SETUSER. docs/redis.md says what other uses need.
const Rights = "+eval +evalsha +time +hgetall +hlen +hset +hincrby +hdel +pexpire"

// clusterRights is what it needs to find the nodes of a cluster: the first up to
// Redis 7, the second later.
const clusterRights = "+cluster|slots +cluster|shards"

// recordRights is what it needs to write records.
const recordRights = "+eval +evalsha +hget +hset +persist +pexpireat"

// errorf makes an error that names the server. Keys of items are callers' names
// and stay out of errors.
func (s *Store) errorf(what, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", s.where, what, fmt.Errorf(format, args...))
}

// lacksRights says how a user comes to rights, which are rules for ACL SETUSER.
func lacksRights(rights string) string {
	return "the user lacks rights; allow them with: ACL SETUSER NAME " + rights
}

// denied is what to do about a text with which a server refuses a user something
// that what needs, and "" for any other text. A command that the user gives is
// named in it, one in a script not before Redis 7.2.
func (s *Store) denied(what, text string) string {
	if !strings.HasPrefix(text, "NOPERM") && !strings.Contains(text, "user executing the script") && !strings.Contains(text, "ACL failure in script") {
		return ""
	}
	if _, command, ok := strings.Cut(text, "to run the '"); ok {
		command, _, _ = strings.Cut(command, "'")
		if strings.HasPrefix(command, "cluster|") {
			return lacksRights(clusterRights)
		}
		return lacksRights("+" + command)
	}
	if strings.Contains(text, "access") {
		return lacksRights("~" + s.prefix + "*")
	}
	if what == putRecord {
		return lacksRights(recordRights)
	}
	return lacksRights(Rights)
}

// remedies are the server's refusals, by their first word, and what to do.
var remedies = [...]struct{ code, remedy string }{
	{"READONLY", "the server is a replica and takes no writes; connect to the primary: behind Sentinel with master_set=NAME, in a cluster with redis+cluster://"},
	{"LOADING", "the server has started and is still loading its data; it answers when that is done"},
	{"MOVED", "the server is a node of a cluster and the key is on another; use redis+cluster://, or a cluster client"},
	{"ASK", "the key is moving to another node of the cluster; use redis+cluster://, or a cluster client"},
	{"TRYAGAIN", "the key is moving to another node of the cluster; it answers when that is done"},
	{"CROSSSLOT", "the server is a node of a cluster, or shares keys out itself; use redis+cluster:// or a cluster client, or set one_by_one=true (OneByOne)"},
	{"CLUSTERDOWN", "the cluster has no node for a part of the keys; look at it with: redis-cli --cluster check HOST:PORT"},
	{"MASTERDOWN", "the server is a replica that has lost its primary; connect to the primary"},
	{"NOREPLICAS", "the server takes no writes with so few replicas (min-replicas-to-write); bring the replicas back"},
	{"OOM", "the server's memory is full; raise its maxmemory, or give weir a server of its own, and leave maxmemory-policy at noeviction"},
	{"MISCONF", "the server can't save its data and takes no writes; free its disk, or look at its log"},
	{"BUSY", "a script of another program has run for too long; end it with: redis-cli SCRIPT KILL"},
	{"UNKILLABLE", "a script of another program has run for too long and has written; the server must be restarted"},
	{"NOAUTH", "the server wants a password: redis://USER:PASSWORD@HOST"},
	{"WRONGPASS", "the user or the password is wrong"},
	{"WRONGTYPE", "a key of another program has the name of an item; remove it, and set a prefix of your own"},
	{"NOSCRIPT", "the server forgets scripts at once; look at what resets it"},
}

// refusal is what to do about an error that the server answered.
func refusal(text string) string {
	for _, r := range remedies {
		if strings.HasPrefix(text, r.code) && (len(text) == len(r.code) || text[len(r.code)] == ' ') {
			return r.remedy
		}
	}
	for _, r := range remedies {
		// Older servers put what a command in the script answered behind a text
		// of their own: "Error running script ... -READONLY You can't ...".
		if strings.Contains(text, " -"+r.code+" ") {
			return r.remedy
		}
	}
	switch {
	case strings.Contains(text, "max number of clients"):
		return "the server has no connection left; raise its maxclients, or open fewer"
	case strings.Contains(text, "DB index is out of range"):
		return "the server has fewer databases than the number in redis://HOST/NUMBER; give a lower one, or none and a prefix"
	case strings.Contains(text, "unknown command"):
		return "the server has no scripts, which this store needs; use Redis 5 or newer, or Valkey, and of a Sentinel add master_set=NAME to its URL: redis-cli -h HOST -p PORT SENTINEL MASTERS lists the names"
	case strings.Contains(text, "No such master"):
		return "the Sentinel knows no primary by the name of master_set; the names that it knows: redis-cli -h HOST -p PORT SENTINEL MASTERS"
	case strings.Contains(text, tooMany):
		return "another program, or somebody by hand, has written thousands of fields to an item; remove them"
	case spoils(text):
		return "a field of an item is not a number: another program writes to this key, or by hand; remove the field"
	}
	return ""
}

// contents are what a server or its Lua say when the reason is what a key holds,
// as the scripts read it. Any other refusal is the server's own.
var contents = [...]string{
	"WRONGTYPE", tooMany,
	"hash value is not", "not an integer", "would overflow", // of HINCRBY
	"attempt to perform arithmetic", "attempt to compare", "attempt to concatenate", "attempt to index", "attempt to get length", "bad argument",
}

// spoils reports whether a server's answer to one key is about what that key holds.
func spoils(text string) bool {
	return slices.ContainsFunc(contents[:], func(c string) bool { return strings.Contains(text, c) })
}

// explain turns the client's error into one that says what to do, and wraps it;
// also [weir.ErrUnreachable] when no connection could be made, so that nothing
// was sent.
func (s *Store) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.As(err, new(sentinelsOwn)) {
		return s.errorf(what, "the Sentinel refuses the URL's user or password, which it is given as the servers are: let it want the same as they do, or none (%w)", err)
	}
	var sent notSent
	early := errors.As(err, &sent)
	if early {
		err = sent.error
	}
	if answer := answered(err); answer != nil {
		err = withoutArgs{err}
		if remedy := cmp.Or(s.denied(what, answer.Error()), refusal(answer.Error())); remedy != "" {
			err = fmt.Errorf("%s (%w)", remedy, err)
		}
		if one := refused(""); errors.As(err, &one) && spoils(string(one)) {
			err = &weir.SpoiledError{Err: err}
		}
		return s.errorf(what, "%w", err)
	}
	switch {
	case dialing(err):
		return s.errorf(what, "%w: no connection; is the server running, and reachable from here? (%w)", weir.ErrUnreachable, err)
	case isTLS(err):
		return s.errorf(what, "no TLS connection; give the authority of the server's certificate as ca=FILE, and your own as cert=FILE with key=FILE if it wants one, or use redis:// when it has no TLS (%w)", err)
	case errors.Is(err, rueidis.ErrNoSlot):
		return s.errorf(what, "the cluster has no node for a part of the keys; look at it with: redis-cli --cluster check HOST:PORT (%w)", err)
	case errors.Is(err, errWaiting):
		return s.errorf(what, "%w", err)
	case errors.Is(err, rueidis.ErrClosing):
		return s.errorf(what, "the client is closed (%w)", err)
	case errors.Is(err, context.DeadlineExceeded):
		return s.errorf(what, "no answer in time (%w)", err)
	case errors.Is(err, context.Canceled):
		return s.errorf(what, "%w", err)
	}
	if early {
		return s.errorf(what, "%w: no connection; the server broke it off before anything was sent: with TLS it wants rediss://, and perhaps cert=FILE with key=FILE (%w)", weir.ErrUnreachable, err)
	}
	return s.errorf(what, "the connection broke (%w)", err)
}

// explainWrite is explain for a script that changes something: it also wraps
// [weir.ErrOutcomeUnknown] when the script may have run.
func (s *Store) explainWrite(what string, err error) error {
	explained := s.explain(what, err)
	if explained != nil && outcomeUnknown(err) {
		return fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, explained)
	}
	return explained
}

// notSent marks an error from before anything was sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// withoutArgs is a server's error without the arguments that it repeats of a command
// that it doesn't know: a key is among them.
type withoutArgs struct{ error }

func (e withoutArgs) Error() string {
	text, _, _ := strings.Cut(e.error.Error(), ", with args beginning with")
	return text
}

func (e withoutArgs) Unwrap() error { return e.error }

// sentinelsOwn marks what a Sentinel has answered, and no server.
type sentinelsOwn struct{ error }

func (e sentinelsOwn) Unwrap() error { return e.error }

// outcomeUnknown reports whether a script that ended in this error may have run.
// It is sure that it did not when the server refused it, or nothing was sent.
func outcomeUnknown(err error) bool {
	var sent notSent
	return !errors.As(err, &sent) && answered(err) == nil && !dialing(err) && !isTLS(err) &&
		!errors.Is(err, rueidis.ErrClosing) && !errors.Is(err, rueidis.ErrNoSlot) && !errors.Is(err, rueidis.ErrNoAddr)
}

// refused is what the server has answered to one key of a script.
type refused string

func (r refused) Error() string { return string(r) }

// answered is the server's own error, or nil.
func answered(err error) error {
	var one refused
	if errors.As(err, &one) {
		return one
	}
	var all *rueidis.RedisError
	if errors.As(err, &all) {
		return all
	}
	return nil
}

func dialing(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) || errors.Is(err, rueidis.ErrNoAddr)
}

func isTLS(err error) bool {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var op *net.OpError // of an alert that the server sent
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &op) && op.Op == "remote error"
}
