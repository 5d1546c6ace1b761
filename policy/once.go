package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// A request may carry an id, so that who sends it again, because no answer came,
// is not charged again. The id is remembered in an item of its own by a limit of
// one call in OnceFor: the item is the id's together with the caller's, so that
// nobody can name another's request, and it is taken after everything else.

// OnceFor is how long the id of a request is remembered.
const OnceFor = 10 * time.Minute

// onceKind is the kind of the items that remember ids.
const onceKind = "once"

// onceSource is where the id of a request comes from.
type onceSource struct {
	header  string // in canonical form, or
	program Expression
}

func (s *onceSource) isZero() bool { return s.header == "" && s.program == nil }

// onceOf reads header.NAME or an expression.
func (l *loader) onceOf(n *node) (s onceSource) {
	if n == nil || !l.is(n, scalar, "once") {
		return s
	}
	if name, ok := strings.CutPrefix(n.text, "header."); ok {
		s.header = l.headerName(n, name)
		return s
	}
	if strings.TrimSpace(n.text) == "" {
		l.wrong(n, codeEmptyText, "write once: header.Idempotency-Key", "once is empty")
		return s
	}
	s.program = l.expression(n, "once", &facts{}, reflect.String)
	return s
}

// id is the id of a request, or "". Its length is bounded by that of a request's
// header; what is remembered of it is a hash. A field that is sent in several lines
// is one, as HTTP has it: who could make an id vanish by a second line would be
// charged for each sending.
func (s *onceSource) id(f *facts) (id string, err error) {
	if s.program != nil {
		v, err := s.program(f)
		if err != nil {
			return "", err
		}
		id, _ = v.(string)
	} else if sent := f.sent[s.header]; len(sent) == 1 {
		id = sent[0]
	} else {
		id = strings.Trim(strings.Join(sent, ", "), ", ")
	}
	return strings.TrimSpace(id), nil
}

// Once is what remembers the id of a request whose ops [Policy.AppendOps] has
// made: an op to be taken together with them, after all of them. When it is the
// one that refuses, the request was charged before, less than OnceFor ago.
// It is nil for a request without an id.
func (m *Match) Once() *weir.Op { return m.found.once }

// noteOnce finds the id of a request for a rule that asks for it.
func (res *resolver) noteOnce(m *Match, h *appHit, f *facts) {
	if h.once.isZero() || h.shadow || m.found.once != nil {
		return
	}
	id, err := h.once.id(f)
	if err != nil {
		m.found.trace.failed(h.rule, "once", err)
	}
	if id == "" {
		return
	}
	var who weir.Key
	if h.byPlan != nil {
		who, _, _, _ = res.account()
	} else if c, err := res.counter(&h.by, h); err == nil {
		who = c.key
	}
	m.found.once = res.p.once(h.rule, id, who)
}

// once is the op that remembers a request's id. It counts on the id together with the rule that asks for it
// and the caller, and fails as nothing: an id that cannot be looked up makes the
// call one that is counted.
func (p *Policy) once(r *rule, id string, who weir.Key) *weir.Op {
	h := sha256.New()
	for _, part := range []string{r.onceName, who.String(), id} {
		sum := sha256.Sum256([]byte(part)) // of fixed length, so that parts cannot run into each other
		h.Write(sum[:])
	}
	return &weir.Op{
		Limit: p.onceLimit, Key: weir.NewKey(onceKind, hex.EncodeToString(h.Sum(nil)[:16])), Cost: 1, OnFail: weir.FailAllow,
	}
}

// compileOnce makes the limit by which ids are remembered, where any rule asks
// for one.
func (k *compiler) compileOnce() {
	if !slices.ContainsFunc(k.p.targets, func(t target) bool { return t.rule != nil && !t.rule.once.isZero() }) {
		return
	}
	l, err := weir.ParseLimit("quota 1/10m")
	if err == nil {
		l, err = l.Named(onceKind)
	}
	if err != nil {
		k.report(Error, codeLimit, 0, 0, 0, "", "%v", err)
		return
	}
	k.p.onceLimit = l
	k.p.limits = append(k.p.limits, l)
	k.p.keep[onceKind] = l.Horizon()
}
