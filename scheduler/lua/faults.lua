-- Faults of sessions and providers: who is up, slowed, broken or paused. A broken one (its breaker is open) lets one
-- message through per `probe_after`; a good answer to it closes the breaker and the rate ramps up from a part of itself.
local BREAKER = '<dddddd'    -- share of errors, of answers, within ms, probe after ms, ramp start, ramp doubles every ms
local breakers, fleets
resets[#resets + 1] = function() breakers, fleets = {}, {} end
local function breaker_of(provider_name)
  local b = breakers[provider_name]
  if not b then
    local raw = call('HGET', P .. 'breakers', provider_name)
    local errors, of, within, after, start, every = 0.5, 20, 10000, 5000, 0.25, 5000
    if raw then errors, of, within, after, start, every = unpack_record(BREAKER, raw) end
    b = { errors = errors, of = of, within = within, after = after, start = start, every = every }
    breakers[provider_name] = b
  end
  return b
end

local function scope_named(name) -- the record of a scope, made where it has none
  load_scopes({ name })
  local s = scopes[name]
  if not s then
    s = new_scope(name)
    scopes[name] = s
  end
  return s
end

-- The sessions of a provider that asked for work: names, and which of them are up.
local function fleet(provider_name)
  local f = fleets[provider_name]
  if not f then
    local found, names = call('HGETALL', P .. 'sessions:' .. provider_name), {}
    f = { up = 0 }
    for i = 1, #found, 2 do
      local up = found[i + 1] == '1'
      f[#f + 1] = { name = found[i], up = up }
      names[#names + 1] = 'session:' .. found[i]
      if up then f.up = f.up + 1 end
    end
    load_scopes(names)
    for i = 1, #f do f[i].s = scopes[names[i]] end
    fleets[provider_name] = f
  end
  return f
end

-- Nothing that time saved up may leave at once.
local function emptied(s)
  if s.Te > 0 then s.tat = max(s.tat, clock + s.burst * s.Te) end
  written_off(s, now)
  s.dirty = true
end
-- A session without a limit is slowed relative to what was measured of it.
local function slowable(s, rate)
  if s.T <= 0 and s.base <= 0 and rate > 0 then
    s.base, s.burst = 1000 / rate, max(1, floor(rate / 10))
  end
end
local function ramped(s, start, every, rate)
  slowable(s, rate)
  if start < 1 then s.h, s.h_at, s.hg = start, now, every end
  settle(s)
  emptied(s)
end
-- Multiplicative decrease, at most once per round trip; grows back by 5 % of the whole a second.
local function slowed(s, factor, round_trip, rate)
  if s.hg <= 0 and s.h > 0 and now - s.h_at < round_trip then return end
  slowable(s, rate)
  local whole = s.T > 0 and s.T or s.base
  local share = (s.h > 0 and whole > 0 and s.Te > 0) and whole / s.Te or 1
  s.h, s.h_at, s.hg, s.dirty = max(0.05, min(1, share) * factor), now, 0, true
  settle(s)
end
