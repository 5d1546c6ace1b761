package policy

import "strings"

// trie finds every pattern that a path matches: those of `match:` and of
// `path:` in one walk. It visits each of its nodes at most once for a path.
type trie struct {
	root  branch
	hosts bool // some pattern names a host
}

type branch struct {
	literals []twig
	index    map[string]*branch // of literals, when there are more than a few
	wildcard *branch
	ends     []leaf // patterns that end here
	multis   []leaf // patterns that match here and everything below
}

// twig is a branch with the segment that leads to it.
type twig struct {
	segment string
	*branch
}

// fewTwigs is how many are looked through faster than a map.
const fewTwigs = 8

// literal returns the branch that a segment leads to, or nil.
func (b *branch) literal(segment string) *branch {
	if b.index != nil {
		return b.index[segment]
	}
	for i := range b.literals {
		if b.literals[i].segment == segment {
			return b.literals[i].branch
		}
	}
	return nil
}

func (b *branch) grow(segment string) *branch {
	next := new(branch)
	b.literals = append(b.literals, twig{segment, next})
	switch {
	case b.index != nil:
		b.index[segment] = next
	case len(b.literals) > fewTwigs:
		b.index = map[string]*branch{}
		for _, t := range b.literals {
			b.index[t.segment] = t.branch
		}
	}
	return next
}

// leaf is one pattern and the number of what it belongs to.
type leaf struct {
	*pattern
	target int32
}

// hit is a leaf with the reading of the path that it matched.
type hit struct {
	target  int32
	reading int16
	loose   bool  // only when a last slash is added or left out
	dots    dots  // as the reading's
	last    uint8 // as the reading's
	pattern *pattern
}

func (t *trie) add(p *pattern, target int32) {
	b := &t.root
	t.hosts = t.hosts || p.host != ""
	for _, s := range p.segs {
		if s.literal == "" {
			if b.wildcard == nil {
				b.wildcard = new(branch)
			}
			b = b.wildcard
			continue
		}
		next := b.literal(s.literal)
		if next == nil {
			next = b.grow(s.literal)
		}
		b = next
	}
	if p.tail == multi {
		b.multis = append(b.multis, leaf{p, target})
	} else {
		b.ends = append(b.ends, leaf{p, target})
	}
}

// request is what patterns look at.
type request struct {
	method    string
	host      string
	preflight bool
	reading   int16
	path      *reading
	trace     *trace // nil but for who explains
}

// find appends every match of one reading to hits.
func (t *trie) find(q *request, hits []hit) []hit {
	return t.root.find(q, q.path.text, hits)
}

func (b *branch) find(q *request, rest string, hits []hit) []hit {
	end := rest == ""
	for i := range b.multis {
		hits = b.multis[i].append(hits, q, end && !q.path.slash)
	}
	if end {
		for i := range b.ends {
			hits = b.ends[i].append(hits, q, q.path.slash != (b.ends[i].tail == slash))
		}
		return hits
	}
	rest = rest[1:]
	seg := rest
	if end := strings.IndexByte(rest, '/'); end >= 0 {
		seg, rest = rest[:end], rest[end:]
	} else {
		rest = ""
	}
	if next := b.literal(seg); next != nil {
		hits = next.find(q, rest, hits)
	}
	if b.wildcard != nil {
		hits = b.wildcard.find(q, rest, hits)
	}
	return hits
}

func (l *leaf) append(hits []hit, q *request, loose bool) []hit {
	if why := l.misses(q, loose); why != missNothing {
		if q.trace != nil {
			q.trace.missed(l.target, l.pattern, why)
		}
		return hits
	}
	return append(hits, hit{l.target, q.reading, loose, q.path.dots, q.path.last, l.pattern})
}

// miss says in what a request differs from a pattern that has its path.
type miss uint8

const (
	missNothing miss = iota
	missPath         // nothing but the path is known to differ
	missSlash        // the last slash, which counts in path:
	missPreflight
	missMethod
	missHost
	missCase
)

// misses checks what is not in the trie. loose says that the path is the
// pattern's when a last slash is added or left out.
func (p *pattern) misses(q *request, loose bool) miss {
	switch {
	case loose && p.edge:
		return missSlash
	case p.method == "":
		// A preflight asks on behalf of a call: it counts at the edge, where
		// paths have no method, and where a pattern names OPTIONS.
		if q.preflight && !p.edge {
			return missPreflight
		}
	case p.method != q.method && !(p.method == "GET" && q.method == "HEAD"):
		return missMethod
	}
	if p.host != "" && p.host != q.host {
		return missHost
	}
	if p.exact {
		rest := q.path.exact
		for _, s := range p.segs {
			var seg string
			seg, rest = cutSegment(rest)
			if s.literal != "" && s.written != seg {
				return missCase
			}
		}
	}
	return missNothing
}

// cutSegment splits a reading's text after its first segment.
func cutSegment(text string) (seg, rest string) {
	text = text[1:]
	if end := strings.IndexByte(text, '/'); end >= 0 {
		return text[:end], text[end:]
	}
	return text, ""
}
