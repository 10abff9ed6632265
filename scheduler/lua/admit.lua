-- Says for each ask whether it may come in, how long it would wait and what binds (design section 3, "Wait estimate").
-- ARGV: now, then per ask: probe (0/1), segments, budget_ms, limit_ms, place, number token, candidates, then the flow
-- keys of the candidates ('' = must not be taken). Returns per ask: accepted, candidate, wait_ms, age_ms, scope, cause,
-- retry_after_s. Reads but for what it promises: pending counters and places in the Retry-After line.
local DOWN_GRACE_MS = 2000   -- a provider without a session counts as paused after this
local SILENT_MS = 30000     -- idle sessions lease every second: silence for so long is a dead pump
local UNMEASURED = 200       -- segments/s where neither a measurement nor a limit says anything
local RETRY_MAX_MS = 3600000
if state == 'lost' then return { '!lost' } end
if not tuning_raw then return { '!untuned' } end

-- Weight of a class among those that wait now in a provider.
local function class_share(provider_name, ci)
  local mine, sum = tuning.classes[ci].weight, 0
  for i, c in ipairs(tuning.classes) do
    if i == ci or line(provider_name .. '|' .. c.name).n > 0 then sum = sum + c.weight end
  end
  return mine / sum
end
-- Weight of a class among those that wait under one scope.
local function scope_share(s, ci)
  s.shares = s.shares or {} -- as at the beginning of the call: exact enough for it, and asks come in hundreds
  if s.shares[ci] then return s.shares[ci] end
  local mine, sum = tuning.classes[ci].weight, 0
  for i, c in ipairs(tuning.classes) do
    if i == ci or tallied(s, i, 1) > 0 then sum = sum + c.weight end
  end
  s.shares[ci] = mine / sum
  return s.shares[ci]
end

-- What limits alone would let a provider drain, segments/s; nil where no limit says anything.
local configured = {}
local function configured_rate(name)
  if configured[name] ~= nil then return configured[name] end
  local rate = false
  local own = scopes['provider:' .. name]
  if own and own.T > 0 then rate = 1000 / own.Te end
  local sessions = call('HKEYS', P .. 'sessions:' .. name)
  local names, sum = {}, 0
  for i = 1, #sessions do names[i] = 'session:' .. sessions[i] end
  load_scopes(names)
  for i = 1, #names do
    local s = scopes[names[i]]
    sum = sum + ((s and s.T > 0) and 1000 / s.Te or FOREVER)
  end
  if #names > 0 and sum < FOREVER then rate = rate and min(rate, sum) or sum end
  configured[name] = rate
  return rate
end

-- Drain of a line, segments/s: measured while backlogged (zero counts too); relaxes to what limits say when idle.
local function measured_drain(f, L)
  local rate = configured_rate(f.provider)
  local fallback = rate and rate * class_share(f.provider, f.ci) or max(UNMEASURED, L.mu)
  if L.mu <= 0 and L.busy_at == 0 then return fallback end
  local mu = L.mu > 0 and L.mu or fallback
  if L.busy_at > 0 then
    local span = now - L.mu_at
    if span > 400 then
      local keep = exp(-span / DRAIN_MS)
      mu = mu * keep + L.acc * 1000 / span * (1 - keep)
    end
  else
    local keep = exp(-(now - max(L.pass_at, L.mu_at)) / 10000)
    mu = mu * keep + fallback * (1 - keep)
  end
  return max(rate and min(mu, rate) or mu, 0.001)
end

local function drain(f, L)
  L.drain = L.drain or measured_drain(f, L)
  return L.drain
end

-- Since when nobody serves a provider: paused after a grace; never before a session was up (start).
local function provider_down(p)
  if p.ever == 0 then return false end
  if p.ups == 0 then return now - p.down_at > DOWN_GRACE_MS end
  return p.seen_at > 0 and now - p.seen_at > SILENT_MS
end

local backlog = {}           -- per flow: what waits, and what earlier asks (of this call too) have been promised
local function pending(key)
  local b = backlog[key]
  if not b then
    b = { before = tonumber(call('GET', P .. 'w:' .. key) or nil) or 0, added = 0, queued = call('LLEN', P .. 'q:' .. key) }
    local head = b.queued > 0 and call('LINDEX', P .. 'q:' .. key, 0)
    if head then b.oldest_at = unpack_record('>I2', head, 29) * 4294967296 + unpack_record('>I4', head, 31) end
    backlog[key] = b
  end
  return b
end

-- Wait and age of one flow for a message of so many segments.
local function judge(f, segments, budget, number)
  local L, p, t = line(f.line), provider(f.provider), tenant_record(f.line, f.tenant)
  local waiting = pending(f.key)
  local queued = waiting.queued
  local ahead = queued + waiting.before + waiting.added
  local each = L.n > 0 and max(1, L.seg / L.n) or 1
  local w = weight_of(f.tenant)
  local m = max(1, t.m)
  local A = max(L.A, t.m > 0 and L.A or L.A + w)
  local window = min(budget, 60000)
  if L.pk > A and now - L.pk_at < window then A = A + (L.pk - A) * (1 - (now - L.pk_at) / window) end
  local mu = drain(f, L)
  local others = L.n + L.pend
  local v = { wait = 0, scope = 'class:' .. f.class, mu = mu * w / max(A, w), age = 0, age_scope = 'class:' .. f.class }
  -- Own position x active weights / own weight, plus at most one round of the others (but not more than waits).
  v.wait = (ahead * m * A / w + min(max(0, m * A / w - 1), 2 * others)) * each * 1000 / mu
  local mean = L.at > 0 and L.A / L.at or w
  for _, s in ipairs(buckets(f)) do
    local wait, rate = 0, v.mu
    if s.pause > now then
      wait = s.pause - now
      v.paused = v.paused or s.name
    elseif s.T > 0 then
      local F, B = tallied(s, f.ci, 2), tallied(s, f.ci, 1) + tallied(s, f.ci, 3)
      local round = max(1, (queued > 0 and F - 1 or F) * mean / w + 1)
      local position = ahead * each * round + min(round - 1, 2 * B)
      local share = scope_share(s, f.ci)
      rate = 1000 / s.Te
      wait = max(0, max(s.tat - now, 0) + (position / share + min(segments, s.burst) - s.burst) * s.Te)
      if s.wait_at > 0 and tokens(s) + EPS < 1 and B > 0 and now - s.wait_at > v.age then
        v.age, v.age_scope = now - s.wait_at, s.name
      end
    end
    if wait > v.wait then v.wait, v.scope, v.mu = wait, s.name, rate end
  end
  if number ~= NO_NUMBER and f.number then
    load_scopes({ f.number })
    local r = number_record(f, string.rep('\0', 34) .. number)
    local ready = r and number_held(r, segments)
    if ready and ready - now > v.wait then v.wait, v.scope, v.mu = ready - now, f.number, 1000 / r.s.Te end
  end
  if provider_down(p) then v.paused, v.wait = v.paused or ('provider:' .. f.provider), max(v.wait, now - p.down_at) end
  if v.paused then v.scope = v.paused end
  -- Own flow's oldest; whose fault it is, is what binds its wait.
  if waiting.oldest_at and now - waiting.oldest_at > v.age then v.age, v.age_scope = now - waiting.oldest_at, v.scope end
  if L.busy_at > 0 then -- eligible work waits here and nothing passes
    local unserved, silent = now - max(L.pass_at, L.busy_at), now - max(p.pass_at, L.busy_at)
    if unserved > v.age then
      v.age, v.age_scope = unserved, silent >= unserved and 'provider:' .. f.provider or 'class:' .. f.class
    end
  end
  return v
end

-- A place in the waiting line of (scope, tenant): one per idempotency key; the line shortens at the drain rate.
local function place_in_line(scope, tenant, place, base, rate, probe)
  local line_key = P .. 'tail:' .. scope .. '|' .. tenant
  local place_key = line_key .. '|' .. place
  local kept = tonumber(call('GET', place_key) or nil)
  if kept and kept > now then return max(kept - now, base) end -- came early: its place stands
  local tail = tonumber(call('GET', line_key) or nil) or 0
  local due = min(max(tail, now + base) + 1000 / max(rate, 0.1), now + max(base, RETRY_MAX_MS))
  if not probe then
    local span = ceil(due - now)
    call('SET', line_key, string.format('%.3f', due), 'PX', span + 1000)
    call('SET', place_key, string.format('%.3f', due), 'PX', span + 60000)
  end
  return due - now
end

local function accept(f, segments)
  local b, L = pending(f.key), line(f.line)
  b.added, b.dirty = b.added + 1, true
  if L.pend == 0 then L.pend_at = now end
  L.pend, L.dirty = L.pend + 1, true
  for _, s in ipairs(buckets(f)) do
    tally(s, f.ci, 3, segments)
    if s.pend_at == 0 then s.pend_at = now end
  end
end

local replies, at = {}, 2
while at <= #ARGV do
  local probe, segments = ARGV[at] == '1', tonumber(ARGV[at + 1])
  local budget, limit = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local place, number, candidates = ARGV[at + 4], ARGV[at + 5], tonumber(ARGV[at + 6])
  local best, best_at, flow
  for i = 1, candidates do
    local key = ARGV[at + 6 + i]
    local f = key ~= '' and parse(key)
    if f and not f.ci then return { '!class' } end
    if f and not is_open(f.class) then
      if not best then
        best, best_at, flow = { wait = 0, age = 0, scope = 'class:' .. f.class, storage = true, mu = 1 }, i, f
      end
    elseif f then
      local v = judge(f, segments, budget, number)
      v.ok = not v.paused and v.wait <= limit and v.age <= limit
      if not best or v.ok or (best.paused and not v.paused) or (not v.paused and v.wait < best.wait) then
        best, best_at, flow = v, i, f
      end
      if v.ok then break end
    end
  end
  local wait, age, scope, cause, retry = 0, 0, '', '', 1
  if not best then
    best, best_at, cause = {}, 0, 'paused'
  else
    wait, age, scope = ceil(min(best.wait, 35 * 86400000)), floor(best.age), best.scope
    if best.ok then
      if not probe then accept(flow, segments) end
    elseif best.storage then
      cause = 'storage'
    else
      local base = max(0, best.wait - limit)
      if best.paused then
        cause, base = 'paused', base < 60000 and base or 5000
      elseif best.wait > limit then
        cause = 'wait'
      else
        cause, scope, base = 'age', best.age_scope, 0
      end
      retry = max(1, ceil(place_in_line(scope, flow.tenant, place, base, best.mu, probe) / 1000))
    end
  end
  local n = #replies
  replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = best.ok and 1 or 0, best_at - 1, wait, age
  replies[n + 5], replies[n + 6], replies[n + 7] = scope, cause, best.ok and 0 or retry
  at = at + 7 + candidates
end
for key, b in pairs(backlog) do
  if b.dirty and b.before > 0 then
    call('SET', P .. 'w:' .. key, b.before + b.added, 'KEEPTTL')
  elseif b.dirty then
    call('SET', P .. 'w:' .. key, b.added, 'PX', PENDING_MS)
  end
end
save()
return replies
