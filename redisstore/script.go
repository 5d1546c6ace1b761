package redisstore

// script applies the first of some writes that holds to the hash KEYS[1], and
// answers the item as it was before. The caller works out what the item is
// afterwards: it has the write. ARGV[1] is the writes as packed by encode.
//
// A number is taken apart into billions and the rest (xh, xl); both parts and
// their differences are exact in doubles, or so far from zero that only their
// sign matters. text puts one together again, held at the ends of int64.
//
// A guard is field, operator, billions, rest: operator 0 compares texts, 1 is
// at most, 2 above and 3 equal; 4 more is "or absent", 8 more is relative to
// now. The field "" is the clock. An action is field, verb, billions, rest: verb
// 0 puts the text that stands in place of billions, 1 puts a number relative to
// now, 2 adds and 3 removes. Putting what is there already is left out.
//
// Before anything is written, everything is worked out and every error that a
// full memory or a wrong type causes has happened: HSET comes first, once.
const script = `local K,call=KEYS[1],redis.call
local T=call('TIME')
local h=call('HGETALL',K)
local p={cmsgpack.unpack(ARGV[1])}
local S,U,n,v=T[1]+0,T[2]*1000,#h,{}
for i=1,n,2 do v[h[i]]=h[i+1] end
local ring,tries,done,j,x0,xh,xl=v.w,p[1],-1,0
j=tries+2
if ring then
  for i=1,tries do
    if p[i+1]~='' and string.find(ring,p[i+1],1,true) then done='='..i-1 tries=0 break end
  end
end
local function split(x)
  x0=x
  if #x<16 then xh,xl=0,x+0 return end
  xh,xl=string.sub(x,1,-10)+0,string.sub(x,-9)+0
  if xh<0 then xl=-xl end
end
local function text(a,b)
  local r=b%1e9
  a=a+(b-r)/1e9
  if a>9223372035 and (a>9223372036 or r>854775807) then return '9223372036854775807' end
  if a>0 then return string.format('%d%09d',a,r) end
  if a==0 then return string.format('%d',r) end
  if a< -9223372036 and (a< -9223372037 or r<145224192) then return '-9223372036854775808' end
  if r>0 then a=a+1 r=1e9-r end
  if a==0 then return string.format('-%d',r) end
  return string.format('%d%09d',a,r)
end
for try=1,tries do
  local keep,guards,acts,ok=p[j],j+4*p[j+1],p[j+2],true
  for g=j+3,guards+2,4 do
    local f,o,a,b=p[g],p[g+1],p[g+2],p[g+3]
    local x=v[f]
    if o==0 then
      if x~=a then ok=false break end
    else
      if o>=8 then o=o-8 a=a+S b=b+U end
      local absent=o>=4
      if absent then o=o-4 end
      if x or f=='' then
        if not x then a=S-a b=U-b
        else
          if x~=x0 then split(x) end
          a=xh-a b=xl-b
        end
        local d=a*1e9+b
        if o==1 then ok=d<=0 elseif o==2 then ok=d>0 else ok=d==0 end
      else ok=absent end
      if not ok then break end
    end
  end
  j=guards+3
  if ok then
    done=try-1
    local w,k,gone={'HSET',K},2
    for g=j,j+4*acts-1,4 do
      local f,o,a,b=p[g],p[g+1],p[g+2],p[g+3]
      local x=v[f]
      if o==1 then a=text(S+a,U+b)
      elseif o==2 then
        if x then
          if x~=x0 then split(x) end
          a=text(xh+a,xl+b)
        else a=text(a,b) end
      elseif o==3 then
        gone=gone or {'HDEL',K}
        gone[#gone+1]=f
        a=x
      end
      if a~=x then w[k+1]=f w[k+2]=a k=k+2 end
    end
    local nonce=p[try+1]
    if nonce~='' then
      if ring then nonce=nonce..string.sub(ring,1,36) end
      w[k+1]='w' w[k+2]=nonce k=k+2
    end
    if k>2 then call(unpack(w)) end
    if gone then
      call(unpack(gone))
      if ring and call('HLEN',K)==1 then keep='60000' end
    end
    call('PEXPIRE',K,keep)
    break
  end
  j=j+4*acts
end
h[n+1]=T[1] h[n+2]=T[2] h[n+3]=done
return table.concat(h,' ')`
