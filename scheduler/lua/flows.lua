-- Flows: a LIST of references `q:<flow>`, in exactly one of three places while it counts as active: the ZSET
-- `act:<line>` by start tag, or the ZSET `park:<provider>` by the time it becomes ready. An empty flow stays in `act`
-- until it is visited: its tag is all the memory of past service that fairness needs. A parked flow is never empty,
-- so a flow that was empty before a push is in `act` or nowhere (scheduling.md section 5: check LLEN before parking,
-- or m_t drifts up).

-- Parsed keys are kept from call to call while the tuning stands; what a call finds out of a flow is its own.
local PARSED_MAX = 2000
local flows, flow_count, needs = {}, 0, nil
-- Parses a flow key `provider|class|band|tenant|scope|...` (escaped by scheduler.core.names).
local function parse(key)
  local f = flows[key]
  if f then return f end
  if flow_count >= PARSED_MAX then flows, flow_count = {}, 0 end
  local parts, n = {}, 0
  for part in gmatch(key, '[^|]+') do
    n = n + 1
    parts[n] = part
  end
  f = { key = key, provider = parts[1], class = parts[2], tenant = parts[4], line = parts[1] .. '|' .. parts[2], names = {} }
  f.ci = class_index[f.class]
  local own = 'provider:' .. f.provider
  for i = 5, n do
    local kind = string.match(parts[i], '^(%l+):')
    if kind == 'number' then
      f.number = parts[i]
    elseif kind == 'retry' then
      f.retry = parts[i]
    elseif kind == 'application' then
      f.application = parts[i]
    end
    if kind ~= 'session' and parts[i] ~= own then f.names[#f.names + 1] = parts[i] end
  end
  f.names[#f.names + 1] = own
  flows[key], flow_count = f, flow_count + 1
  return f
end

-- The retry share is a limit whose rate follows the rate of first attempts: total = first x (1 + share). Where those are
-- few it follows what a line of the provider was seen to drain while work waited for the carrier alone: where nothing
-- waits but retries, a share of what this very share lets out would shrink until nothing goes.
local function retry_scope(f)
  local p = provider(f.provider)
  local r = p.r
  if now - p.r_at > 2000 then r = r * exp(-(now - p.r_at) / 10000) end
  for _, L in ipairs(provider_lines(f.provider)) do
    if L then r = max(r, L.mu) end
  end
  local s = scopes[f.retry] or new_scope(f.retry)
  if s.T == 0 then s.tat = max(s.tat, 10 * 1000) end
  s.T, s.burst = 1000 / max(1, r * tuning.retry_share / (1 + tuning.retry_share)), 10
  settle(s)
  scopes[f.retry] = s
end

-- The limited scopes of a flow as records: what its messages must have room in.
local function buckets(f)
  local found = needs[f]
  if found then return found end
  load_scopes(f.names)
  if f.retry then retry_scope(f) end
  found = {}
  for i = 1, #f.names do
    local s = scopes[f.names[i]]
    if s and f.names[i] ~= f.number and (s.Te > 0 or s.pause > 0) then found[#found + 1] = s end
  end
  needs[f] = found
  return found
end

-- What of a scope's tokens the long message of another flow has reserved. A class that is behind the owner's in virtual
-- time is owed service and is not held back: else a backlog of long messages would starve codes. Within a class the
-- reservation holds, but nobody reserves again before another flow had a turn (TAKEN stands until then).
local TAKEN = 0.001
local function kept(s, f)
  if s.rk < 1 or s.owner == f.key then return 0 end
  local o = parse(s.owner)
  if o.provider == f.provider and line(f.line).cv < line(o.line).cv then return 0 end
  return s.rk
end

local function account(f, messages, segments)
  local L, t = line(f.line), tenant_record(f.line, f.tenant)
  L.n, L.seg, L.dirty = max(0, L.n + messages), max(0, L.seg + segments), true
  t.n, t.dirty = max(0, t.n + messages), true
  local s = buckets(f)
  for i = 1, #s do tally(s[i], f.ci, 1, segments) end
end

-- A flow begins or ends to count: m_t, A and the scopes' F.
local function count_active(f, step)
  local L, t = line(f.line), tenant_record(f.line, f.tenant)
  local w = weight_of(f.tenant)
  if t.m > 0 and t.w ~= w then -- the weight was changed while the tenant is active
    L.A = L.A + w - t.w
    t.w = w
  end
  local before = t.m
  t.m = max(0, before + step * (f.retry and 0.5 or 1)) -- retries have half the weight of first attempts
  if step > 0 and before == 0 then
    t.w, L.A, L.at = w, L.A + w, L.at + 1
  elseif step < 0 and before > 0 and t.m == 0 then
    L.A, L.at = max(0, L.A - t.w), max(0, L.at - 1)
  end
  L.dirty, t.dirty = true, true
  local s = buckets(f)
  for i = 1, #s do tally(s[i], f.ci, 2, step) end
end

-- Wakes the sessions of a provider: each list holds one wake at most, a session leases until nothing is left.
local woken
resets[#resets + 1] = function(changed)
  woken, needs = {}, {}
  if changed then flows, flow_count = {}, 0 end
end
local function wake(provider_name)
  if woken[provider_name] then return end
  woken[provider_name] = true
  local sessions = call('HKEYS', P .. 'sessions:' .. provider_name)
  for i = 1, #sessions do
    local list = P .. 'wake:' .. sessions[i]
    if call('LLEN', list) == 0 then
      call('RPUSH', list, '1')
      call('PEXPIRE', list, 60000)
    end
  end
end

-- A sample of the drain while work waited; `least` ms long.
local function sample_drain(L, least)
  local span = now - L.mu_at
  if span < least then return end
  local rate, keep = L.acc * 1000 / span, exp(-span / DRAIN_MS)
  L.mu = L.mu > 0 and L.mu * keep + rate * (1 - keep) or rate
  L.acc, L.mu_at, L.s_at, L.dirty = 0, now, now, true
end
-- How fast virtual time runs while work waits: what is backlogged drains at weight / (flows x vs), whoever else is
-- there, so the weight that really competes is mu x vs. Averaged over time, not over V: a surge shows at once.
local function sample_pace(L)
  local span = now - L.v_at
  if span < 200 or L.V <= L.v0 then return end
  local slow, keep = span / (L.V - L.v0), exp(-span / 1000)
  L.vs = L.vs > 0 and L.vs * keep + slow * (1 - keep) or slow
  L.v_at, L.v0, L.dirty = now, L.V, true
  local A = min(L.A, L.mu * L.vs / 1000)
  if A >= L.pk or now - L.pk_at > 60000 then L.pk, L.pk_at = A, now end
end

local function turn_eligible(f)
  local L = line(f.line)
  if L.idle == 1 then
    L.idle, L.busy_at, L.mu_at, L.acc, L.v_at, L.v0, L.dirty = 0, now, now, 0, now, L.V, true
    L.cv = max(L.cv, provider(f.provider).RV) -- else an idle class would take everything until it has caught up
    wake(f.provider)
  end
end

-- Puts references at the tail of a flow, or in their order at its head. `again`: they were counted before (held ones).
local function put(f, refs, front, again)
  local segments, key = 0, P .. 'q:' .. f.key
  local command, was, length = 'RPUSH', 0, 0
  for i = 1, #refs do segments = segments + byte(refs[i], 21) end
  if front then
    command = 'LPUSH'
    for i = 1, floor(#refs / 2) do refs[i], refs[#refs + 1 - i] = refs[#refs + 1 - i], refs[i] end
  end
  for i = 1, #refs, CHUNK do
    length = call(command, key, unpack(refs, i, min(i + CHUNK - 1, #refs)))
  end
  was = length - #refs
  if not again then account(f, #refs, segments) end
  if was == 0 then
    if call('ZADD', P .. 'act:' .. f.line, 'NX', line(f.line).V, f.key) == 1 then count_active(f, 1) end
    turn_eligible(f)
  end
  return segments
end
