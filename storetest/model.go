package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// SeedVariable is the environment variable with which a failed model check is
// repeated: the message of the failure says how.
const SeedVariable = "WEIR_STORETEST_SEED"

// modelSteps is how many random writes one model check makes.
const modelSteps = 400

// model drives the store and plain values with the same random writes.
func (s suite) model(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%q is not a number", SeedVariable, text)
		}
	}
	steps := modelSteps
	if s.caps.inProcess && !testing.Short() {
		steps *= 25
	}
	b := s.start(t)
	m := modelCheck{bench: b, random: rand.New(rand.NewPCG(seed, 1)), fields: someFields(t).all(), lossy: s.caps.LossyReplies}
	limit(t, "st-anchor", "1/s")
	anchor := write(nil, put(field(t, "st-anchor.t"), farAhead))
	for range 3 {
		item := modelItem{key: b.key()}
		b.must(item.key, anchor)
		anchor.Apply(&item.state, 0)
		m.items = append(m.items, item)
	}
	for step := range steps {
		if err := m.step(); err != nil {
			t.Fatalf("step %d of seed %d: %v\nrepeat with %s=%d go test -run %q", step, seed, err, SeedVariable, seed, t.Name())
		}
	}
}

type modelItem struct {
	key   weir.Key
	state weir.Cells
	sent  []weir.Write // the last four with nonces that were applied
}

type modelCheck struct {
	*bench
	random *rand.Rand
	fields []weir.Field
	items  []modelItem
	lossy  bool
}

func (m *modelCheck) step() error {
	if m.clock != nil {
		m.clock.advance(time.Duration(m.random.Int64N(5)))
	}
	item := &m.items[m.random.IntN(len(m.items))]
	if m.lossy && len(item.sent) > 0 && m.random.IntN(8) == 0 {
		// A write that only removes may have found no item to leave its nonce on.
		if w := item.sent[m.random.IntN(len(item.sent))]; creates(&w) {
			return m.again(item, w)
		}
	}
	tries := make([]weir.Write, m.random.IntN(4)) // none is a read
	for i := range tries {
		tries[i] = m.write(item)
	}
	var got weir.Cells
	applied, now, err := m.store.Apply(context.Background(), item.key, tries, &got)
	if err != nil {
		return err
	}
	want := -1
	for i := range tries {
		if tries[i].Holds(&item.state, now) {
			want = i
			break
		}
	}
	firstOnly := want > 0 && applied == -1 // a store may look at the first only
	if applied != want && !firstOnly {
		return fmt.Errorf("applied %d, want %d\nitem %v at %d\ntries %v", applied, want, texts(values(&item.state)), now, showAll(tries))
	}
	if applied >= 0 {
		w := &tries[applied]
		w.Apply(&item.state, now)
		if w.Nonce != 0 {
			item.sent = append(item.sent, *w)
			item.sent = item.sent[max(0, len(item.sent)-4):]
		}
	}
	return m.compare(item, &got, tries)
}

// again sends one of the last four writes once more: it counts as applied and
// changes nothing.
func (m *modelCheck) again(item *modelItem, w weir.Write) error {
	var got weir.Cells
	applied, _, err := m.store.Apply(context.Background(), item.key, []weir.Write{w}, &got)
	if err != nil {
		return err
	}
	if applied != 0 {
		return fmt.Errorf("a write that was applied is said not to be: %s", show(w))
	}
	return m.compare(item, &got, []weir.Write{w})
}

func (m *modelCheck) compare(item *modelItem, got *weir.Cells, tries []weir.Write) error {
	if have, want := values(got), values(&item.state); !maps.Equal(have, want) {
		return fmt.Errorf("the item is %v, want %v\nafter %v", texts(have), texts(want), showAll(tries))
	}
	return nil
}

func creates(w *weir.Write) bool {
	for _, a := range w.Do {
		if a.Do != plan.Remove {
			return true
		}
	}
	return false
}

func showAll(tries []weir.Write) string {
	text := ""
	for _, w := range tries {
		text += "\n\t" + show(w)
	}
	return text
}

// write makes a random write whose constants lie close to the item's values.
func (m *modelCheck) write(item *modelItem) weir.Write {
	w := weir.Write{Keep: time.Duration(1 + m.random.Int64N(int64(48*time.Hour)))}
	for range m.random.IntN(4) {
		f := m.fields[m.random.IntN(len(m.fields))]
		g := weir.Cond{Field: f, Cmp: plan.AtMost + plan.Cmp(m.random.IntN(4)), OrAbsent: m.random.IntN(2) == 0}
		g.Value = m.near(item, f)
		if m.random.IntN(4) == 0 {
			g.Value, g.Rel = m.random.Int64N(7)-3, true
		}
		w.If = append(w.If, g)
	}
	if m.random.IntN(6) == 0 {
		// A day to either side: a clock that runs can't be met more exactly.
		w.If = append(w.If, weir.Cond{Field: weir.Field{Kind: clockKind}, Cmp: plan.AtLeast, Value: int64(24*time.Hour) * (m.random.Int64N(3) - 1), Rel: true})
	}
	for _, i := range m.random.Perm(len(m.fields))[:1+m.random.IntN(4)] {
		a := weir.Act{Field: m.fields[i], Do: plan.Put + plan.Do(m.random.IntN(3)), Value: m.random.Int64N(1_000_000_007) - 500_000_000}
		if a.Do == plan.Put && m.random.IntN(2) == 0 {
			a.Value, a.Rel = m.random.Int64N(7)-3, true
		}
		w.Do = append(w.Do, a)
	}
	if m.lossy && m.random.IntN(2) == 0 {
		w.Nonce = m.random.Uint64() | 1
	}
	return w
}

// near is a value at, or just beside, what the item holds.
func (m *modelCheck) near(item *modelItem, f weir.Field) int64 {
	v, ok := item.state.Get(f)
	if !ok {
		v = m.random.Int64()
	}
	return v + m.random.Int64N(3) - 1
}
