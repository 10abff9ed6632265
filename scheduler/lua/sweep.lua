-- Drops from the heads of a provider's flows what no lease would let go any more, for where no lease comes by: references
-- past their deadline, and canceled ones. ARGV: now, provider, from (so many flows of each list are passed over).
-- Returns {dropped, where to go on; -1: all flows were seen}.
local FLOWS_MAX = 200        -- flows looked at per list
local DROPPED_MAX = 1000     -- references dropped per call
if state == 'lost' then return { '!lost' } end
if not tuning_raw then return { '!untuned' } end
if state ~= 'ready' then return { 0, -1 } end -- being loaded: the next sweep looks
local name, from = ARGV[2], tonumber(ARGV[3])
local park, held = P .. 'park:' .. name, P .. 'held:' .. name
local room, more = DROPPED_MAX, false
local tombs_exist = call('EXISTS', P .. 'tomb') == 1

local function ended(ref)
  local late = unpack_record('>I2', ref, 23) * 4294967296 + unpack_record('>I4', ref, 25) <= now
  local tombs = tombs_exist and call('ZMSCORE', P .. 'tomb', sub(ref, 1, 16), sub(ref, 1, 20))
  local canceled = tombs and (tombs[1] or tombs[2])
  if canceled then call('ZREM', P .. 'tomb', sub(ref, 1, 16), sub(ref, 1, 20)) end
  return late or canceled
end
local function drop_heads(f) -- returns whether something is left
  local q, size = P .. 'q:' .. f.key, 1
  while room > 0 do
    local refs, count, segments = call('LRANGE', q, 0, min(size, room) - 1), 0, 0
    while count < #refs and ended(refs[count + 1]) do
      count = count + 1
      segments = segments + byte(refs[count], 21)
    end
    if count > 0 then
      call('LTRIM', q, count, -1)
      account(f, -count, -segments)
      room = room - count
    end
    if #refs == 0 or count < #refs then return #refs > 0 end
    size = 100
  end
  return call('EXISTS', q) == 1
end

-- Parked flows come first: one that is empty must not stay parked, and no longer counts.
local parked = call('ZRANGE', park, from, from + FLOWS_MAX - 1)
for i = 1, #parked do
  local f = parse(sub(parked[i], 9))
  if f.ci and not drop_heads(f) then
    call('ZREM', park, parked[i])
    count_active(f, -1)
  end
end
more = #parked == FLOWS_MAX
-- What a number holds comes back at its deadline at the latest.
local due = call('ZRANGEBYSCORE', held, '-inf', now, 'LIMIT', 0, FLOWS_MAX)
for i = 1, #due do
  local size, at = unpack_record('>I2', due[i])
  local ref = sub(due[i], at + size)
  local f = parse(sub(due[i], at, at + size - 1))
  if f.ci and ended(ref) then
    call('ZREM', held, due[i])
    account(f, -1, -byte(ref, 21))
  end
end
-- An empty flow stays in its line until a lease visits it; a line without any other is idle, as a lease would find it.
for _, L in ipairs(provider_lines(name)) do
  local keys, left = L and call('ZRANGE', P .. 'act:' .. L.name, from, from + FLOWS_MAX - 1) or {}, false
  for i = 1, #keys do
    if drop_heads(parse(keys[i])) then left = true end
  end
  if #keys == FLOWS_MAX then
    more = true
  elseif L and from == 0 and not left and L.idle == 0 then
    if L.acc > 0 then sample_drain(L, 200) end
    L.idle, L.busy_at, L.acc, L.mu_at, L.dirty = 1, 0, 0, now, true
  end
end
save()
return { DROPPED_MAX - room, (more or room <= 0) and (room > 0 and from + FLOWS_MAX or from) or -1 }
