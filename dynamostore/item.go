package dynamostore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// ring names the attributes that hold the last four nonces, newest first. A
// field's name always has a dot, so nothing else can be called like this.
var ring = [...]string{"w0", "w1", "w2", "w3"}

// DynamoDB takes so many bytes of an expression, and so many operators and functions.
// That is some 30 limits in one call, or 16 of those that tell of marks.
const (
	maxExpression = 4 << 10
	maxOperators  = 300
)

// fits reports whether DynamoDB takes a request's expressions.
func fits(in *dynamodb.UpdateItemInput) bool {
	if len(*in.UpdateExpression) > maxExpression {
		return false
	}
	if in.ConditionExpression == nil {
		return true
	}
	cond := *in.ConditionExpression // an operator has a space before it and one behind it
	return len(cond) <= maxExpression && strings.Count(cond, " ")/2+strings.Count(cond, "exists(") <= maxOperators
}

// expression collects the placeholders of one UpdateItem.
type expression struct {
	names  map[string]string
	values map[string]types.AttributeValue
	fields []weir.Field
	cond   strings.Builder
	set    strings.Builder
	add    strings.Builder
	remove strings.Builder
}

// encode turns a write into one UpdateItem.
func (s *Store) encode(w *weir.Write, pk string, now int64) *dynamodb.UpdateItemInput {
	e := expression{names: map[string]string{}, values: map[string]types.AttributeValue{}}
	if !creates(w) {
		// Removing from an item that is not there would leave an empty one.
		e.names["#pk"] = KeyAttribute
		clause(&e.cond, "", " AND ", "attribute_exists(#pk)")
	}
	for i := 0; i < len(w.If); i++ {
		if i+1 < len(w.If) && e.between(&w.If[i], &w.If[i+1]) {
			i++
		} else {
			e.guard(&w.If[i], now)
		}
	}
	for i := range w.Do {
		e.act(&w.Do[i], now)
	}
	e.names["#exp"] = ExpiryAttribute
	e.values[":exp"] = number(expiry(now, w.Keep))
	clause(&e.set, "SET ", ", ", "#exp = :exp")
	if w.Nonce != 0 {
		e.nonce(w.Nonce)
	}
	in := &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 itemKey(pk),
		UpdateExpression:                    aws.String(strings.TrimSpace(e.set.String() + e.add.String() + e.remove.String())),
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	}
	if e.cond.Len() > 0 {
		in.ConditionExpression = aws.String(e.cond.String())
	}
	return in
}

func (e *expression) guard(g *weir.Cond, now int64) {
	if g.Field.Kind == plan.Clock {
		return // judged before the write is sent
	}
	want := g.Value
	if g.Rel {
		want = addSat(now, want)
	}
	e.holds(g, comparison(g.Cmp)+e.value(want))
}

// between makes one guard of two that are the ends of a range, and reports whether
// it can: a window has two of them, and each counts.
func (e *expression) between(from, to *weir.Cond) bool {
	if from.Field != to.Field || from.Field.Kind == plan.Clock || from.Cmp != plan.AtLeast || to.Cmp != plan.AtMost ||
		from.Rel || to.Rel || from.OrAbsent != to.OrAbsent || from.Value > to.Value {
		return false
	}
	e.holds(from, " BETWEEN "+e.value(from.Value)+" AND "+e.value(to.Value))
	return true
}

// holds appends what a guard says of its field.
func (e *expression) holds(g *weir.Cond, text string) {
	name := e.name(g.Field)
	text = name + text
	if g.OrAbsent {
		text = "(attribute_not_exists(" + name + ") OR " + text + ")"
	}
	clause(&e.cond, "", " AND ", text)
}

func (e *expression) act(a *weir.Act, now int64) {
	name := e.name(a.Field)
	switch a.Do {
	case plan.Put:
		v := a.Value
		if a.Rel {
			v = addSat(now, v)
		}
		clause(&e.set, "SET ", ", ", name+" = "+e.value(v))
	case plan.Add:
		clause(&e.add, " ADD ", ", ", name+" "+e.value(a.Value))
	case plan.Remove:
		clause(&e.remove, " REMOVE ", ", ", name)
	}
}

// nonce guards against a nonce that the item remembers, and remembers this one.
// An attribute that is not there is unequal to anything. All right-hand sides see
// the item as it was, so the ring moves by one.
func (e *expression) nonce(nonce uint64) {
	for i, name := range ring {
		e.names["#w"+strconv.Itoa(i)] = name
	}
	e.values[":w"] = &types.AttributeValueMemberN{Value: strconv.FormatUint(nonce, 10)}
	e.values[":z"] = number(0)
	clause(&e.cond, "", " AND ", "#w0 <> :w AND #w1 <> :w AND #w2 <> :w AND #w3 <> :w")
	clause(&e.set, "SET ", ", ", "#w3 = if_not_exists(#w2, :z), #w2 = if_not_exists(#w1, :z), #w1 = if_not_exists(#w0, :z), #w0 = :w")
}

// name gives the placeholder of a field, the same one every time.
func (e *expression) name(f weir.Field) string {
	for i, known := range e.fields {
		if known == f {
			return "#" + strconv.Itoa(i)
		}
	}
	name := "#" + strconv.Itoa(len(e.fields))
	e.fields = append(e.fields, f)
	e.names[name] = f.Text()
	return name
}

func (e *expression) value(v int64) string {
	name := ":" + strconv.Itoa(len(e.values))
	e.values[name] = number(v)
	return name
}

// clause appends to a list, which it begins with a keyword.
func clause(b *strings.Builder, begin, between, text string) {
	if b.Len() == 0 {
		b.WriteString(begin)
	} else {
		b.WriteString(between)
	}
	b.WriteString(text)
}

func comparison(c plan.Cmp) string {
	switch c {
	case plan.AtMost:
		return " <= "
	case plan.Above:
		return " > "
	case plan.AtLeast:
		return " >= "
	}
	return " = "
}

// clockHolds judges the guards on the clock. They are judged here because the
// clock is this process's: what holds now is what the write was planned by.
func clockHolds(w *weir.Write, now int64) bool {
	for i := range w.If {
		if w.If[i].Field.Kind != plan.Clock {
			continue
		}
		only := weir.Write{If: w.If[i : i+1]}
		if !only.Holds(&weir.Cells{}, now) {
			return false
		}
	}
	return true
}

// creates reports whether a write leaves something on an item that did not
// exist.
func creates(w *weir.Write) bool {
	for i := range w.Do {
		if w.Do[i].Do != plan.Remove {
			return true
		}
	}
	return false
}

// expiry is when an item may be deleted, in Unix seconds: never before Keep is
// over, never at once.
func expiry(now int64, keep time.Duration) int64 {
	return now/int64(time.Second) + max(1, ceilSeconds(int64(keep)))
}

func ceilSeconds(ns int64) int64 {
	s := ns / int64(time.Second)
	if ns%int64(time.Second) > 0 {
		s++
	}
	return s
}

// decode reads the integers of an item that this process has limits for. What
// else the item holds is left alone. What is spoiled is an error of a look, with no
// write, and of a write that names it: others go on, and don't see it. To a write a
// fraction is the integer above it, as to the guards that a count is at most or above
// something: an error would refuse who has been charged. To those of the other kinds it
// is not; then no write holds, and the item is busy until a reset.
func decode(item map[string]types.AttributeValue, w *weir.Write, state *weir.Cells) error {
	state.Reset()
	var spoiled []string
	for name, v := range item {
		if strings.IndexByte(name, '.') < 0 {
			continue
		}
		f, ok := weir.ParseField(name)
		if !ok {
			continue
		}
		i, err := integer(name, v)
		if err != nil && w != nil {
			i, err = above(v, err)
		}
		switch {
		case err == nil:
			state.Set(f, i)
		case w == nil || names(w, f):
			spoiled = append(spoiled, name)
		}
	}
	if len(spoiled) == 0 {
		return nil
	}
	slices.Sort(spoiled) // one item is one error, and a map has no order
	_, err := integer(spoiled[0], item[spoiled[0]])
	return &weir.SpoiledError{Field: spoiled[0], More: spoiled[1:], Err: err}
}

// names reports whether a write names a field.
func names(w *weir.Write, f weir.Field) bool {
	return slices.ContainsFunc(w.If, func(c weir.Cond) bool { return c.Field == f }) ||
		slices.ContainsFunc(w.Do, func(a weir.Act) bool { return a.Field == f })
}

// integer reads the attribute of this name.
func integer(name string, v types.AttributeValue) (int64, error) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, fmt.Errorf("attribute %q of an item is not a number: another program writes to this table, or by hand; remove the attribute", name)
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		// DynamoDB adds without end. What one sum can make is the end of int64.
		if sum, _ := strconv.ParseFloat(n.Value, 64); math.Abs(sum) <= 1<<64 {
			err = nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("attribute %q of an item holds %q, not an integer of 64 bits; remove the attribute", name, n.Value)
	}
	return i, nil
}

// above is the integer above a number that is none, or err.
func above(v types.AttributeValue, err error) (int64, error) {
	if n, ok := v.(*types.AttributeValueMemberN); ok {
		if f, bad := strconv.ParseFloat(n.Value, 64); bad == nil && math.Abs(f) < 1<<53 {
			return int64(math.Ceil(f)), nil
		}
	}
	return 0, err
}

// remembers reports whether a nonce is among the last four of an item.
func remembers(item map[string]types.AttributeValue, nonce uint64) bool {
	want := strconv.FormatUint(nonce, 10)
	for _, name := range ring {
		if n, ok := item[name].(*types.AttributeValueMemberN); ok && n.Value == want {
			return true
		}
	}
	return false
}

// itemSize is what AWS counts as an item's size, in bytes: the names, and the
// values, a number being about half a byte a digit and one more.
func itemSize(item map[string]types.AttributeValue) int {
	size := 0
	for name, v := range item {
		size += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			size += (len(v.Value)+1)/2 + 1
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		}
	}
	return size
}

func number(v int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(v, 10)}
}

// addSat adds without wrapping round.
func addSat(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}
