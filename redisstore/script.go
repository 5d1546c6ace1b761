package redisstore

import (
	"fmt"
	"strings"

	"github.com/weirlabs/weir/internal/plan"
)

// A script is made for one form of writes: all of them but names of fields and
// numbers. A store meets few forms, such as those of a bucket that is full, of
// one in use, and of both offered together; what is known of a form when its
// script is made costs a server nothing later.
//
// For each of KEYS a script applies the first of the writes that holds to the
// hash of that name, and answers the item as it was before. The caller works out
// what the item is afterwards: it has the write. ARGV is one group after the
// other: for how many keys, and the values of their writes, in the order in which
// encode meets them; the name of a field is the value that stands before its
// first use.
//
// All answers come in one text. Its first line is the server's seconds and
// microseconds and the length of each answer, negative for an error. An answer is
// the write that was applied ("=" before it: it had been already; after it, behind
// a comma, how many texts the other fields are), the values of the fields that the
// writes name, nothing for one that is absent or was removed, and the name and value
// of each other field. All these stand behind spaces: with more of them than that,
// another program has put one into a field that a write names.
//
// What other programs write to an item must not hold up who else is served. A value
// that is longer than any integer is cut off, a name that no field of a limit has is
// left out, a space in the value of another field is sent as \1, and an item of more
// than maxTexts names and values is an error.
//
// A script compares in doubles. They order two numbers that are more than 4096
// apart, whatever their size, since a number of 64 bits is at most 1024 off as a
// double and "now" little more; and any two of which one is below 2^52. In
// between, diff takes both apart into billions and the rest: their differences
// are exact, or so far from zero that only the sign matters. Sums are made in
// the same way, or by HINCRBY where they can't leave int64, and stay at its ends.
//
// Lua makes a text of a number slowly. Lengths and counts are mostly those of the key
// before, so the last text of each is kept: of 18 keys that is a fifteenth of a script's
// time, of one key it costs a hundredth.
//
// All is worked out before anything is written. Of the commands that write, only
// HSET and HINCRBY can be refused by a server without memory: one of them comes
// first. An error of one key is the answer for that key and touches no other. An
// item of which nothing is left but its nonces goes after a minute, which is
// longer than anybody repeats a write.
const (
	beginning = `local call=redis.call
local T=call('TIME')
local S,U=T[1]+0,T[2]*1000
local N=S*1e9+U
local A,b=ARGV,1
local sub,find,concat=string.sub,string.find,table.concat
`
	// split is the billions of x and the rest.
	split = `local function split(x)
if #x<16 then return 0,x+0 end
local h,l=sub(x,1,-10)+0,sub(x,-9)+0
if h<0 then l=-l end
return h,l
end
`
	// diff is x less the sum of y and of p billions and q.
	diff = `local function diff(x,y,p,q)
local h,l=split(x)
local c,d=split(y)
return (h-c-p)*1e9+(l-d-q)
end
`
	// clock is diff of now.
	clock = `local function clock(y,p,q)
local c,d=split(y)
return (S-c-p)*1e9+(U-d-q)
end
`
	// sum is the text of y and p billions and q.
	sum = `local function sum(y,p,q)
local a,b=split(y)
a=a+p b=b+q
local r=b%1e9
a=a+(b-r)/1e9
if a==S then return T[1]..sub(r+1e9,2) end
if a>9223372035 and (a>9223372036 or r>854775807) then return '9223372036854775807' end
if a>0 then return a..sub(r+1e9,2) end
if a==0 then return string.format('%d',r) end
if a< -9223372036 and (a< -9223372037 or r<145224192) then return '-9223372036854775808' end
if r>0 then a=a+1 r=1e9-r end
if a==0 then return string.format('-%d',r) end
return string.format('%d%09d',a,r)
end
`
	ending = `for i=k+1,k+n do
local ok,a=pcall(one,KEYS[i])
if not ok and type(a)=='table' then a=a.err end
answers[i]=a
local size=ok and #a or -#a
if size~=last then last,text=size,size..'' end
lengths[i]=text
end
k=k+n
b=b+%d
end
return T[1]..' '..T[2]..' '..concat(lengths,' ')..'\n'..concat(answers)`
)

// maxTexts is how many names and values an item may have together.
const maxTexts = 1 << 14

// tooMany is what the script says of an item that has more.
const tooMany = "more fields than an item has"

// end is the end of int64 as text.
const end = "'9223372036854775807'"

// few reports whether values and fields have variables of their own.
func (f *form) few() bool { return len(f.kinds) <= locals }

// variable is that of a value (c), a field's text (v) or its number (x).
func (f *form) variable(letter byte, n int) string {
	if f.few() {
		return fmt.Sprintf("%c%d", letter, n)
	}
	return fmt.Sprintf("%c[%d]", letter, n)
}

func (f *form) v(field int) string { return f.variable('v', field+1) }
func (f *form) x(field int) string { return f.variable('x', field+1) }

// arg is a value as it was sent.
func arg(value int) string { return fmt.Sprintf("A[b+%d]", value) }

// ready is a value as it is made ready for all keys of a group.
func (f *form) ready(value int) string {
	switch f.kinds[value-1] {
	case number:
		return arg(value) + "+0"
	case fromNow:
		return arg(value) + "+N"
	case ofNow:
		return "clock(" + arg(value) + ",0,0)"
	case nowToNow:
		return "clock(" + arg(value) + ",S,U)"
	}
	return arg(value)
}

// c is a value that was made ready.
func (f *form) c(value int) string {
	if f.few() {
		return f.variable('c', value)
	}
	return "(" + f.ready(value) + ")"
}

// list is what each gives for 1 to n, with commas.
func list(n int, each func(int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = each(i + 1)
	}
	return strings.Join(all, ",")
}

// script is the script for a form.
func (f *form) script() string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	values := list(len(f.kinds), f.c)
	switch {
	case !f.few():
		line("local at")
	case values != "":
		line("local %s", values)
	}
	line("local many,count")
	f.one(line)
	line("local answers,lengths,k,last,text={},{},0")
	line("while k<#KEYS do")
	line("local n=A[b]+0")
	switch {
	case !f.few():
		line("at={}")
		for i, name := range f.names {
			line("at[%s]=%d", arg(name), i+1)
		}
	case values != "":
		line("%s=%s", values, list(len(f.kinds), f.ready))
	}
	line(ending, len(f.kinds)+1)
	script := s.String()
	for _, function := range []string{sum, clock, diff, split} {
		if name, _, _ := strings.Cut(strings.TrimPrefix(function, "local function "), "("); strings.Contains(script, name+"(") {
			script = function + script // each costs a little in every run
		}
	}
	return beginning + script
}

// one is the function that decides one key.
func (f *form) one(line func(string, ...any)) {
	line("local function one(K)")
	line("local h=call('HGETALL',K)")
	line("local done,o,m='-1','',0")
	f.find(line)
	for i, math := range f.math {
		if math {
			line("%s%s=%s and %s+0", f.local(), f.x(i), f.v(i), f.v(i))
		}
	}
	word := "if"
	for i, t := range f.tries {
		if t.nonce > 0 {
			line("%s w and find(w,%s,1,true) then", word, f.c(t.nonce))
			line("done='=%d'", i)
			word = "elseif"
		}
	}
	for i, t := range f.tries {
		line("%s %s then", word, f.holds(t.guards))
		line("done='%d'", i)
		f.apply(&t, line)
		word = "elseif"
	}
	if word == "elseif" {
		line("end")
	}
	line("if m>0 then")
	line("if m~=many then many,count=m,','..m end")
	line("done=done..count")
	line("if o=='' then o=' '..concat(h,' ',1,m) end")
	line("end")
	if f.few() {
		named := ""
		for i := range f.names {
			named += "' '..(" + f.v(i) + " or '').."
		}
		line("return done..%so", named)
	} else {
		line("for i=1,%d do v[i]=v[i] or '' end", len(f.names))
		line("return done..' '..concat(v,' ')..o")
	}
	line("end")
}

// local declares a variable, unless it stands in a table.
func (f *form) local() string {
	if f.few() {
		return "local "
	}
	return ""
}

// find sorts the item's fields: those that the form names become variables, and
// the others go into the text o. Of a large item they stay in h, m texts in all,
// since a text is copied whenever something is added to it.
func (f *form) find(line func(string, ...any)) {
	var found []string
	switch {
	case !f.few():
		line("local v,x={},{}")
		found = append(found, "at[f] then v[at[f]]=a")
	case len(f.names) > 0:
		line("local %s", list(len(f.names), func(i int) string { return f.v(i - 1) }))
		for i, name := range f.names {
			found = append(found, "f=="+f.c(name)+" then "+f.v(i)+"=a")
		}
	}
	if f.ring {
		line("local w")
		found = append(found, "f=='w' then w=a")
	}
	found = append(found, "f~='w' and #f<256 and not find(f,' ',1,true) then")
	line("local n=#h")
	line("if n>%d then error('%s',0) end", maxTexts, tooMany)
	line("for i=1,n,2 do")
	line("local f,a=h[i],h[i+1]")
	line("if #a>20 and f~='w' then a=sub(a,1,20)..'...' end")
	line("if %s", strings.Join(found, "\nelseif "))
	line("if find(a,' ',1,true) then a=string.gsub(a,' ','\\1') end")
	line("if n<=64 then o=o..' '..f..' '..a else h[m+1]=f h[m+2]=a end")
	line("m=m+2")
	line("end")
	line("end")
}

// holds is the condition under which all guards hold.
func (f *form) holds(guards []part) string {
	all := []string{"true"}
	for _, g := range guards {
		all = append(all, f.guard(g))
	}
	return strings.Join(all[min(1, len(guards)):], " and ")
}

func (f *form) guard(g part) string {
	cmp := plan.Cmp(g.op & opCmp)
	sign, c := map[plan.Cmp]string{plan.AtMost: "<=", plan.Above: ">", plan.AtLeast: ">=", plan.Equal: "=="}[cmp], f.c(g.value)
	if g.op&opClock != 0 {
		return c + sign + "0"
	}
	v, x := f.v(g.field), f.x(g.field)
	holds := x + sign + c
	switch {
	case g.op&opText != 0:
		holds = v + "==" + c
	case g.op&opSmall == 0:
		far := map[plan.Cmp]string{plan.AtMost: "< -4096 or ", plan.Above: ">4096 or ", plan.AtLeast: ">4096 or "}[cmp]
		if far != "" {
			far = x + "-" + c + far
		}
		now := "0,0"
		if g.op&opRel != 0 {
			now = "S,U"
		}
		holds = fmt.Sprintf("(%s%s-%s>=-4096 and %s-%s<=4096 and diff(%s,%s,%s)%s0)", far, x, c, x, c, v, arg(g.value), now, sign)
	}
	if g.op&opEnd != 0 {
		switch cmp {
		case plan.AtLeast:
			holds = "(" + v + "==" + end + " or " + holds + ")"
		case plan.Equal:
			holds = "(" + v + "==" + end + " and diff(" + v + "," + arg(g.value) + ",S,U)<=0 or " + holds + ")"
		}
	}
	switch {
	case g.op&opAbsent != 0:
		return "(not " + v + " or " + holds + ")"
	case g.op&opText != 0:
		return holds
	}
	return v + " and " + holds
}

// apply is what a write does.
func (f *form) apply(t *try, line func(string, ...any)) {
	call := func(command string, args ...string) string {
		command = "'" + command + "',K," + strings.Join(args, ",")
		if f.few() {
			return "call(" + command + ")"
		}
		return "call(unpack{" + command + "})"
	}
	var put, drop, gone []string
	if t.nonce > 0 {
		c := f.c(t.nonce)
		put = append(put, "'w'", "w and "+c+"..sub(w,1,36) or "+c)
	}
	for _, a := range t.acts {
		name := f.c(f.names[a.field])
		if a.op == verbDrop {
			drop, gone = append(drop, name), append(gone, f.v(a.field))
			continue
		}
		c := f.c(a.value)
		switch a.op {
		case verbLater:
			c = "sum(" + c + ",S,U)"
		case verbAdd, verbFew:
			v := f.v(a.field)
			c = v + " and sum(" + v + ",split(" + c + ")) or " + c
		}
		put = append(put, name, c)
	}
	if t.increments() {
		a := t.acts[0]
		line("if not %s or %s<9e18 and %s>-9e18 then %s else", f.v(a.field), f.x(a.field), f.x(a.field), call("HINCRBY", f.c(f.names[a.field]), f.c(a.value)))
	}
	if len(put) > 0 {
		line("%s", call("HSET", put...))
	}
	if t.increments() {
		line("end")
	}
	if len(drop) > 0 {
		line("%s", call("HDEL", drop...))
		for _, v := range gone {
			line("%s=nil", v)
		}
	}
	keep := f.c(t.keep)
	if t.removes() {
		keep = "w and call('HLEN',K)==1 and '60000' or " + keep
	}
	line("call('PEXPIRE',K,%s)", keep)
}
