package policy

import (
	"fmt"
	"testing"
)

// BenchmarkRequest is a whole pass, Match and Ops, of the example policy.
func BenchmarkRequest(b *testing.B) {
	p := load(b, little)
	id := Identity{Claims: map[string]any{"sub": "customer-42", "plans": "advanced"}}
	for _, c := range []struct{ name, method, path string }{
		{"exempt", "POST", "/webhooks/stripe"},
		{"edge-only", "GET", "/shows/today"},
		{"limit", "POST", "/reservations"},
		{"path-value", "POST", "/events/12/seats"},
		{"operation", "POST", "/analyze"},
		{"odd-path", "POST", "/events/%31%32/seats"},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := get(c.method, c.path)
			b.ReportAllocs()
			for b.Loop() {
				m, err := p.Match(a)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := p.Ops(&m, a, id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTrie is the matching alone, of a plain path among many rules.
func BenchmarkTrie(b *testing.B) {
	tr := manyRules(b, 1000)
	var room [16]hit
	b.ReportAllocs()
	for b.Loop() {
		paths, err := readPath("/r500/12/orders")
		if err != nil {
			b.Fatal(err)
		}
		q := request{method: "POST", path: paths.at(0)}
		if hits := tr.find(&q, room[:0]); len(hits) != 2 {
			b.Fatal(len(hits))
		}
	}
}

// BenchmarkCheck is what `weir check` does with a policy of 1,000 limits: read it,
// compile it and look for findings.
func BenchmarkCheck(b *testing.B) {
	text := manyLimits(1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := loadText(text); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRules is a whole pass, Match and AppendOps, among few limits and among
// many: limits are looked up, not tried.
func BenchmarkRules(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := load(b, manyLimits(n))
			id := Identity{Claims: map[string]any{"sub": "customer-42"}}
			a := get("POST", fmt.Sprintf("/r%d/42/orders", n/2))
			var room [4]Op
			b.ReportAllocs()
			for b.Loop() {
				m, err := p.Match(a)
				if err != nil {
					b.Fatal(err)
				}
				if ops, err := p.AppendOps(room[:0], &m, a, &id); err != nil || len(ops) != 1 {
					b.Fatal(len(ops), err)
				}
			}
		})
	}
}
