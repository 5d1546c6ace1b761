package plan

import (
	"fmt"
	"strings"
	"testing"
	"testing/quick"
)

// Every field has one text, every text one field, and no two fields share one.
func TestFieldText(t *testing.T) {
	var specs []*Spec
	for _, name := range []string{"a", "a.t", "c", "t", "a-t.c", "free.render"} {
		for _, text := range []string{"1/s", "quota 3/h", "quota 3/5m", "quota 3/h calendar", "quota 3/day calendar Europe/Berlin", "quota 3/day calendar Etc/GMT+5", "quota 3/month billing", "sliding 3/5m", "sliding 3/h"} {
			s := parsed(t, name, text)
			specs = append(specs, s, s.Shadow())
		}
	}
	fields := map[Field]bool{}
	for _, s := range specs {
		switch s.alg {
		case bucket:
			for _, k := range []Kind{Arrival, Interval, Depth, Revision} {
				fields[s.field(k)] = true
			}
		case quota:
			fields[s.field(Start)], fields[s.field(Count)] = true, true
		default:
			for _, w := range []uint32{0, 1, 1800000000, 1<<32 - 1} {
				f := s.field(Cell)
				f.Window = w
				fields[f] = true
			}
		}
	}
	texts := map[string]Field{}
	for f := range fields {
		text := f.Text()
		if other, ok := texts[text]; ok {
			t.Errorf("%+v and %+v are both %q", f, other, text)
		}
		texts[text] = f
		if back, ok := ParseField(text); !ok || back != f {
			t.Errorf("%q is read as %+v (%v), want %+v", text, back, ok, f)
		}
	}
	for _, want := range []string{"a.t", "a~.t", "free.render.t", "a.c", "a~.s", "a.c@day/Europe/Berlin:1800000000", "a.c@month/billing:1", "c.c@5m:0"} {
		if _, ok := texts[want]; !ok {
			t.Errorf("no field is %q", want)
		}
	}
	t.Logf("%d fields", len(fields))
}

// What is not the text of a field is not read as one: a store leaves it alone.
func TestParseFieldRefuses(t *testing.T) {
	parsed(t, "known", "1/s")
	parsed(t, "known", "quota 3/h")
	parsed(t, "known", "sliding 3/h")
	for _, text := range []string{
		"", ".", "t", ".t", "known", "known.", "known.x", "known.T", "known.tt", "known .t", "pk", "expiresAt", "w0", "n1",
		"unknown.t", "known~~.t", "~.t", "known.c@2h", "known.s@1h", "known.c@1h", "known.c@", "known.c@1h:", "known.c@1h:-1", "known.c@1h:+1", "known.c@1h:4294967296", "known.c@1h:1x",
		"known.t@", "known.t@:", "known.c@1h:007", "known.s@1h:5", "known.s@1h:", "known.t:5", "known.c@1h:1:2",
	} {
		if f, ok := ParseField(text); ok {
			t.Errorf("%q is read as %+v, whose text is %q", text, f, f.Text())
		}
	}
}

func FuzzParseField(f *testing.F) {
	parsed(f, "known", "1/s")
	parsed(f, "known", "quota 3/h")
	parsed(f, "known", "sliding 3/h")
	for _, text := range []string{"known.t", "known~.d", "known.c@1h", "known.c@1h:7", "known.s@1h:", "known.t@"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if field, ok := ParseField(text); ok && field.Text() != text {
			t.Fatalf("%q is read as the field %q", text, field.Text())
		}
	})
}

// Traffic and stored data never make the tables grow.
func TestTablesGrowOnlyWithLimits(t *testing.T) {
	s := parsed(t, "", "10/s").Revised(3, Scale)
	size := func() string {
		tables.RLock()
		defer tables.RUnlock()
		return fmt.Sprint(len(tables.identities), len(tables.shapes), len(tables.byText), len(tables.shapeIndex))
	}
	before := size()
	var c Cells
	for n := range int64(2000) {
		c.Set(s.field(Interval), n*1e6+1000)
		c.Set(s.field(Depth), n*1e9+2000)
		c.Set(s.field(Arrival), base+n)
		s.Step(&c, base+n, 1)
		ParseField(fmt.Sprintf("other%d.t", n))
	}
	if after := size(); after != before {
		t.Errorf("the tables grew from %s to %s", before, after)
	}
	for range 100 {
		parsed(t, "", "10/s").Revised(3, Scale)
	}
	if after := size(); after != before {
		t.Errorf("the same limit made the tables grow from %s to %s", before, after)
	}
}

// A bucket whose shape found no room in the table decides the same.
func TestUnsharedShape(t *testing.T) {
	s := parsed(t, "", "2/s burst 5")
	u := s.copy()
	u.arrival.Window = 0
	var a, b Cells
	for n := range int64(40) {
		now := base + n*second/7
		if va, vb := s.Step(&a, now, 1+n%3), u.Step(&b, now, 1+n%3); va != vb {
			t.Fatalf("step %d: %+v shared, %+v not", n, va, vb)
		}
	}
	if a.Len() != 1 || b.Len() != 4 || !same(&a, &b) {
		t.Errorf("%v in %d slots, %v in %d", show(&a), a.Len(), show(&b), b.Len())
	}
}

// Different parts give different keys, whatever bytes they hold.
func TestKeys(t *testing.T) {
	for want, parts := range map[string][]string{
		"account#customer-42":            {"account", "customer-42"},
		"ip#192.0.2.44":                  {"ip", "192.0.2.44"},
		"account#A|event#E":              {"account", "A", "event", "E"},
		"account#a%7Cevent%23b":          {"account", "a|event#b"},
		"account#%00%25%C3%A4%20%2F":     {"account", "\x00%ä /"},
		"a:b#c@d_e-f.g":                  {"a:b", "c@d_e-f.g"},
		"account#a|event":                {"account", "a", "event"},
		"ip#2001:db8::%25eth0|event#%0A": {"ip", "2001:db8::%eth0", "event", "\n"},
	} {
		if k := NewKey(parts[0], parts[1], parts[2:]...); k.String() != want || !k.Valid() || k != KeyFromText(want) {
			t.Errorf("%q: %q, want %q", parts, k, want)
		}
	}
	for _, parts := range [][]string{{"", "a"}, {"a", ""}, {"a", "b", ""}, {"a", "b", "c", ""}, {"a", strings.Repeat("b", MaxKey)}, {"a", strings.Repeat("|", MaxKey/3)}} {
		if k := NewKey(parts[0], parts[1], parts[2:]...); k.Valid() {
			t.Errorf("%.40q is a valid key", parts)
		}
	}
	if k := NewKey("a", strings.Repeat("b", MaxKey-2)); !k.Valid() {
		t.Error("a key of MaxKey bytes is not valid")
	}

	const alphabet = "a#|%~:\x00é1"
	word := func(b []byte) string {
		out := make([]byte, 0, len(b)%4+1)
		for i := range len(b)%4 + 1 {
			c := byte(7 * i)
			if i < len(b) {
				c = b[i]
			}
			out = append(out, alphabet[int(c)%len(alphabet)])
		}
		return string(out)
	}
	byText := map[string]string{}
	n := 0
	err := quick.Check(func(parts [][]byte) bool {
		words := []string{"k", "i"}
		for i, p := range parts[:min(len(parts), 5)] {
			if i < 2 {
				words[i] = word(p)
			} else {
				words = append(words, word(p))
			}
		}
		n++
		k := NewKey(words[0], words[1], words[2:]...)
		list := fmt.Sprintf("%q", words)
		if other, ok := byText[k.String()]; ok && other != list {
			t.Errorf("%s and %s are both %q", other, list, k)
		}
		byText[k.String()] = list
		return k.Parts() == (len(words)+1)/2 && k.Hash() == KeyFromText(k.String()).Hash()
	}, &quick.Config{MaxCount: 4000})
	if err != nil || len(byText) < 1000 {
		t.Errorf("%d keys of %d lists: %v", len(byText), n, err)
	}
}
