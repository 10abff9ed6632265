-- What egress and operators report and order. ARGV: now, verb, arguments. Needs no open class, but an epoch.
local verb = ARGV[2]
if state == 'lost' then return { '!lost' } end

local function scope_named(name)
  load_scopes({ name })
  local s = scopes[name]
  if not s then
    s = new_scope(name)
    scopes[name] = s
  end
  s.dirty = true
  return s
end

if verb == 'pause' then -- scope, until ('' = until resumed)
  scope_named(ARGV[3]).pause = tonumber(ARGV[4]) or FOREVER
elseif verb == 'resume' then -- scope
  local s = scope_named(ARGV[3])
  if s.pause > 0 then
    s.pause = 0
    s.tat = max(s.tat, now + s.burst * s.Te) -- empty: what a pause saved up must not leave at once
    if s.T <= 0 then -- a record only for the pause
      scopes[s.name] = nil
      call('HDEL', P .. 's', s.name)
    end
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
elseif verb == 'register' or verb == 'up' or verb == 'down' or verb == 'forget' then
  -- provider, session [, ramp start, ramp doubling ms]: 'register' asks for wakes, 'up' is a bound session
  local key, session = P .. 'sessions:' .. ARGV[3], ARGV[4]
  local p = provider(ARGV[3])
  local was = call('HGET', key, session) == '1'
  local up = verb == 'up' or (verb == 'register' and was)
  if verb == 'forget' then
    call('HDEL', key, session)
    call('DEL', P .. 'wake:' .. session)
  else
    call('HSET', key, session, up and '1' or '0')
  end
  if up and not was then p.ups = p.ups + 1 end
  if was and not up then p.ups = max(0, p.ups - 1) end
  if up then p.ever, p.seen_at = 1, now end
  if was and not up and p.ups == 0 then p.down_at = now end
  p.dirty = true
  local start = tonumber(ARGV[5] or '')
  if verb == 'up' and start and start < 1 then
    local s = scope_named('session:' .. session)
    s.h, s.h_at, s.hg = start, now, tonumber(ARGV[6])
    settle(s)
  end
  if up and not was then wake(ARGV[3]) end
elseif verb == 'slow' then -- session, factor, round trip ms: multiplicative decrease, at most once per round trip
  local s = scope_named('session:' .. ARGV[3])
  if s.hg > 0 or now - s.h_at >= tonumber(ARGV[5]) then
    local h = s.h > 0 and s.T > 0 and s.T / s.Te or 1
    s.h, s.h_at, s.hg = max(0.05, min(1, h) * tonumber(ARGV[4])), now, 0
    settle(s)
  end
elseif verb == 'answered' then -- provider, then pairs class, segments: submit_sm_resp since the last report
  local p, total = provider(ARGV[3]), 0
  for i = 4, #ARGV, 2 do
    local segments = tonumber(ARGV[i + 1])
    total = total + segments
    local L = line(ARGV[3] .. '|' .. ARGV[i])
    if L.busy_at > 0 then
      L.acc, L.dirty = L.acc + segments, true
      local span = now - L.mu_at
      if span >= 200 then
        local rate, keep = L.acc * 1000 / span, exp(-span / DRAIN_MS)
        L.mu = L.mu > 0 and L.mu * keep + rate * (1 - keep) or rate
        L.acc, L.mu_at = 0, now
      end
    end
  end
  p.r_acc, p.dirty = p.r_acc + total, true
  if p.r_at == 0 then p.r_at = now end
  if now - p.r_at >= 500 then
    local span = now - p.r_at
    local keep = exp(-span / 10000)
    p.r, p.r_at, p.r_acc = p.r * keep + p.r_acc * 1000 / span * (1 - keep), now, 0
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
