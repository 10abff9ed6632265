-- What egress and operators report and order. ARGV: now, verb, arguments. Needs no open class, but an epoch.
local verb = ARGV[2]
if state == 'lost' then return { '!lost' } end

-- Whether the retry share holds something back, and nothing else waits for the provider.
local function only_retries_wait(name)
  local retries, waiting = 'retry:' .. name, 0
  load_scopes({ retries })
  local s = scopes[retries]
  if not s or s.wait_at == 0 then return false end
  for i = 1, #tuning.classes do waiting = waiting + tallied(s, i, 1) end
  for _, L in ipairs(provider_lines(name)) do
    if L and L.busy_at > 0 then return false end
  end
  return waiting > 0
end

if verb == 'pause' then -- scope, until ('' = until resumed)
  local s = scope_named(ARGV[3])
  if s.pause <= now then s.since = now end
  s.pause, s.dirty = tonumber(ARGV[4]) or FOREVER, true
elseif verb == 'resume' then -- scope
  local s = scope_named(ARGV[3])
  if s.pause > 0 then
    s.pause = 0
    reopened(s, now)
    emptied(s) -- what a pause saved up must not leave at once
  end
elseif verb == 'unpark' then -- provider: up to CHUNK parked flows are looked at again; returns how many there were
  local park = P .. 'park:' .. ARGV[3]
  local parked = call('ZRANGEBYSCORE', park, '(' .. string.format('%.17g', now), '+inf', 'LIMIT', 0, CHUNK)
  local args = {}
  for i = 1, #parked do args[2 * i - 1], args[2 * i] = now, parked[i] end
  if #args > 0 then
    call('ZADD', park, unpack(args))
    wake(ARGV[3])
  end
  return #parked
elseif verb == 'unhold' then -- provider: up to CHUNK messages that their numbers hold are looked at again; how many there were
  local held = P .. 'held:' .. ARGV[3]
  local found = call('ZRANGEBYSCORE', held, '(' .. string.format('%.17g', now), '+inf', 'LIMIT', 0, CHUNK)
  local args = {}
  for i = 1, #found do
    args[2 * i - 1], args[2 * i] = now, found[i]
    local size, from = unpack_record('>I2', found[i])
    local f = parse(sub(found[i], from, from + size - 1))
    load_scopes({ f.number })
    local r = number_record(f, sub(found[i], from + size))
    if r and r.hold_at > 0 then r.hold_at, r.dirty = 0, true end -- the line began under another rate
  end
  if #args > 0 then
    call('ZADD', held, unpack(args))
    save_numbers()
    wake(ARGV[3])
  end
  return #found
elseif verb == 'up' or verb == 'down' or verb == 'forget' then
  -- provider, session [, ramp start, ramp doubling ms]: 'up' is a bound session that gets wakes
  local key, session = P .. 'sessions:' .. ARGV[3], ARGV[4]
  local p = provider(ARGV[3])
  local was = call('HGET', key, session) == '1'
  local up = verb == 'up'
  if verb == 'forget' then
    call('HDEL', key, session)
    call('DEL', P .. 'wake:' .. session)
  else
    call('HSET', key, session, up and '1' or '0')
  end
  local others, returns = fleet(ARGV[3]).up - ((up and 1) or 0), p.down_at > 0 and p.seen_at > 0
  if up then p.seen_at = now end
  if was and not up and others == 0 then p.down_at = now end
  if verb == 'down' then p.eta = tonumber(ARGV[5]) or 0 end
  if up and not was then
    local health = call('HGET', P .. 'H', 'session:' .. session)
    local rate = health and select(2, unpack_record('<dd', health)) or 0
    ramped(scope_named('session:' .. session), tonumber(ARGV[5]) or 1, tonumber(ARGV[6]) or 5000, rate)
    if others == 0 and returns then -- the whole provider was away: no burst was saved up
      local s = scope_named('provider:' .. ARGV[3])
      reopened(s, now)
      emptied(s)
    end
    p.down_at, p.owed_at, p.ans_at = 0, 0, now
  end
  p.dirty = true
  if up and not was then wake(ARGV[3]) end
elseif verb == 'slow' then -- session, factor, round trip ms: the carrier throttles
  slowed(scope_named('session:' .. ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), 0)
elseif verb == 'due' then -- complete (0/1), then pairs flow key, packed buckets of what waits in the due table
  if ARGV[3] == '1' then call('DEL', P .. 'due') end
  for i = 4, #ARGV, 2 do
    if ARGV[i + 1] == '' then call('HDEL', P .. 'due', ARGV[i]) else call('HSET', P .. 'due', ARGV[i], ARGV[i + 1]) end
  end
elseif verb == 'answered' then -- provider, then pairs class, segments: submit_sm_resp since the last report
  local p, total = provider(ARGV[3]), 0
  for i = 4, #ARGV, 2 do
    local segments = tonumber(ARGV[i + 1])
    total = total + segments
    local L = line(ARGV[3] .. '|' .. ARGV[i])
    if L.busy_at > 0 then
      L.acc = L.acc + segments
      sample_drain(L, 200)
    end
    L.r_acc, L.dirty = L.r_acc + segments, true
    local span = now - L.r_at
    if span >= 500 then
      local keep = exp(-span / DRAIN_MS)
      L.r, L.r_at, L.r_acc = L.r * keep + L.r_acc * 1000 / span * (1 - keep), now, 0
    end
  end
  p.r_acc, p.ans_at, p.dirty = p.r_acc + total, now, true
  if p.r_at == 0 then p.r_at = now end
  if now - p.r_at >= 500 then
    local span = now - p.r_at
    local keep, rate = exp(-span / 10000), p.r_acc * 1000 / span
    -- What the retry share lets out says nothing of what could go: it must not come to be the measure of itself.
    if rate < p.r and only_retries_wait(ARGV[3]) then rate = p.r end
    p.r, p.r_at, p.r_acc = p.r * keep + rate * (1 - keep), now, 0
  end
elseif verb == 'tombstone' then -- keep_ms, then ids
  local args, until_at = {}, string.format('%.0f', now + tonumber(ARGV[3]))
  for i = 4, #ARGV do
    args[#args + 1], args[#args + 2] = until_at, ARGV[i]
    if #args >= CHUNK or i == #ARGV then
      call('ZADD', P .. 'tomb', unpack(args))
      args = {}
    end
  end
  local old = call('ZRANGEBYSCORE', P .. 'tomb', '-inf', now, 'LIMIT', 0, CHUNK)
  if #old > 0 then call('ZREM', P .. 'tomb', unpack(old)) end
end
save()
return 1
