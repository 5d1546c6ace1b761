package redisstore

// script serves several calls in one: for each key it applies the first of some
// writes that holds to the hash of that name, and answers the item as it was
// before. The caller works out what the item is afterwards: it has the write.
// ARGV[1] is MessagePack, one value after the other: first, for each key, where
// its writes begin; then the writes, as packed by encode. All answers come in one
// text, after their lengths and a newline; the length of an error is negative.
//
// A number is taken apart into billions and the rest (xh, xl); both parts and
// their differences are exact in doubles, or so far from zero that only their
// sign matters. x0 is the text that was taken apart last, since guards and
// actions often look at one field one after the other; f0 is the field that a
// guard compared last, whose text that is; at is where the field that was looked
// for last stands in the item, for the same reason.
//
// A guard is field, operator, billions, rest: operator 0 compares texts, 1 is
// at most, 2 above and 3 equal; 4 more is "or absent", 8 more is relative to
// now. The field "" is the clock. An action is field, verb, billions, rest: verb
// 0 puts the text that stands in place of billions, 1 puts a number relative to
// now, 2 adds and 3 removes. Putting what is there already is left out. To add to
// one field, and nothing else, is left to the server.
//
// All is worked out before anything is written, and sums stay at the ends of
// int64. Of the commands that write, only HSET and HINCRBY can be refused by a
// server without memory, and they come first. An error of one key is the answer for that
// key and touches no other. An item of which nothing is left but its nonces goes
// after a minute, which is longer than anybody repeats a write.
const script = `local call=redis.call
local T=call('TIME')
local p={cmsgpack.unpack(ARGV[1])}
local S,U=T[1]+0,T[2]*1000
local sub,concat=string.sub,table.concat
local function one(K,q)
  local h=call('HGETALL',K)
  local n=#h
  local tries,done,ring=p[q],'-1'
  for i=1,n,2 do if h[i]=='w' then ring=h[i+1] break end end
  if ring then
    for i=q+1,q+tries do
      if p[i]~='' and string.find(ring,p[i],1,true) then done='='..i-q-1 tries=0 break end
    end
  end
  local j,at,f0,x0,xh,xl=q+tries+1,1
  for try=1,tries do
    local keep,guards,acts,ok=p[j],j+4*p[j+1],p[j+2],true
    for g=j+3,guards+2,4 do
      local f,o,a,b=p[g],p[g+1],p[g+2],p[g+3]
      local i,x=at
      repeat
        if h[i]==f then x=h[i+1] at=i break end
        i=i+2
        if i>n then i=1 end
      until i==at
      if o==0 then
        if x~=a then ok=false break end
      else
        if o>=8 then o=o-8 a=a+S b=b+U end
        local absent=o>=4
        if absent then o=o-4 end
        if f=='' then x=f xh=S xl=U x0=x end
        if x then
          f0=f
          if x~=x0 then
            x0=x
            if #x<16 then xh,xl=0,x+0
            else
              xh,xl=sub(x,1,-10)+0,sub(x,-9)+0
              if xh<0 then xl=-xl end
            end
          end
          a=(xh-a)*1e9+(xl-b)
          if o==1 then ok=a<=0 elseif o==2 then ok=a>0 else ok=a==0 end
        else ok=absent end
        if not ok then break end
      end
    end
    j=guards+3
    if ok then
      done=try==1 and '0' or try-1
      local nonce,f,o,a,b=p[q+try],p[j],p[j+1],p[j+2],p[j+3]
      if acts==1 and o==2 and nonce=='' and f==f0 and a<9e6 and a>-9e6 and xh<9e9 and xh>-9e9 then
        if a~=0 or b~=0 then call('HINCRBY',K,f,a*1e9+b) end
        call('PEXPIRE',K,keep)
        break
      end
      local w,k,gone={'HSET',K},2
      if nonce~='' then
        if ring then nonce=nonce..sub(ring,1,36) end
        w[3]='w' w[4]=nonce k=4
      end
      for g=j,j+4*acts-1,4 do
        local f,o,a,b=p[g],p[g+1],p[g+2],p[g+3]
        local i,x=at
        repeat
          if h[i]==f then x=h[i+1] at=i break end
          i=i+2
          if i>n then i=1 end
        until i==at
        if o==3 then
          gone=gone or {'HDEL',K}
          gone[#gone+1]=f
          a=x
        elseif o>0 then
          if o==1 then a=S+a b=U+b
          elseif x then
            if x~=x0 then
              x0=x
              if #x<16 then xh,xl=0,x+0
              else
                xh,xl=sub(x,1,-10)+0,sub(x,-9)+0
                if xh<0 then xl=-xl end
              end
            end
            a=xh+a b=xl+b
          end
          local r=b%1e9
          a=a+(b-r)/1e9
          if a==S then a=T[1]..sub(r+1e9,2)
          elseif a>9223372035 and (a>9223372036 or r>854775807) then a='9223372036854775807'
          elseif a>0 then a=a..sub(r+1e9,2)
          elseif a==0 then a=string.format('%d',r)
          elseif a< -9223372036 and (a< -9223372037 or r<145224192) then a='-9223372036854775808'
          else
            if r>0 then a=a+1 r=1e9-r end
            if a==0 then a=string.format('-%d',r) else a=string.format('%d%09d',a,r) end
          end
        end
        if a~=x then w[k+1]=f w[k+2]=a k=k+2 end
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
  return concat(h,' ',h[1]=='w' and 3 or 1)
end
local answers,lengths={},{}
for i=1,#KEYS do
  local ok,a=pcall(one,KEYS[i],p[i])
  if not ok and type(a)=='table' then a=a.err end
  answers[i]=a
  lengths[i]=ok and #a or -#a
end
return concat(lengths,' ')..'\n'..concat(answers)`
