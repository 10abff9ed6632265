-- Queues a batch. ARGV: now, mode ('enqueue' | 'load'), batch id or epoch id, then per group: flow key, front (0/1),
-- number of references, the references. Returns 1 done, 0 the batch was there already.
-- 'load' belongs to a rebuild: classes need not be open, but the epoch must be the rebuilder's.
local mode, id = ARGV[2], ARGV[3]
local marker = P .. 'batch:' .. id
if mode == 'load' then
  if state ~= 'loading' or epoch_id ~= id then return { '!epoch' } end
  call('PEXPIRE', P .. 'rebuilder', 15000)
else
  if state == 'lost' then return { '!lost' } end
  if call('EXISTS', marker) == 1 then return 0 end
end
local at, closed = 4, false
while at <= #ARGV do -- every check before the first write: a failed script is not rolled back
  local f = parse(ARGV[at])
  if not f.ci then return { '!class' } end
  closed = closed or (mode ~= 'load' and not is_open(f.class))
  at = at + 3 + tonumber(ARGV[at + 2])
end
if closed then return { '!loading' } end

at = 4
while at <= #ARGV do
  local f, count = parse(ARGV[at]), tonumber(ARGV[at + 2])
  local refs = {}
  for i = 1, count do refs[i] = ARGV[at + 2 + i] end
  local segments = put(f, refs, ARGV[at + 1] == '1')
  if mode ~= 'load' then
    local waiting = call('GET', P .. 'w:' .. f.key)
    if waiting then -- what admit counted ahead is here now
      if tonumber(waiting) <= count then call('DEL', P .. 'w:' .. f.key) else call('DECRBY', P .. 'w:' .. f.key, count) end
      local L = line(f.line)
      L.pend = max(0, L.pend - count)
      local s = buckets(f)
      for i = 1, #s do tally(s[i], f.ci, 3, -segments) end
    end
  end
  at = at + 3 + count
end
if mode ~= 'load' then call('SET', marker, '1', 'PX', 3600000) end
save()
return 1
