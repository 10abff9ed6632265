-- How long a message would wait and what binds (design section 3, "Wait estimate"): the worst over all scopes that it
-- needs, each a straight line over the messages ahead of it in its own flow; then pauses, and deferred work that falls
-- due before its turn. Nothing here writes.
local DOWN_GRACE_MS = 2000   -- a provider without a session counts as away after this
local FIRST_GRACE_MS = 10000 -- and one that never had any, from when the index learned of it: at a start all is unbound
local BACK_MS = 5000         -- what coming back takes besides: connect, bind, ramp
local DEAD_MS = 30000        -- idle sessions lease every second: silence for so long is a dead pump
local SILENT_MIN_MS = 1000   -- no carrier is called silent before
local SILENT_SHARE = 0.2     -- nor before this part of the door limit
local UNMEASURED = 200       -- segments/s where neither a measurement nor a limit says anything
local WHOLE_SHARE = 1.2       -- part of the door limit that the work of all may take: else a surge breaks promises
local PEAK_MS = 60000        -- how long a surge of active weight is remembered at least
local DUE = '>dI4I4'         -- work of a flow in the due table: instant, messages, segments; 16 octets a bucket

-- What a line was answered of late, segments/s; fades while nothing more is.
local function answered_rate(L) return L.r * exp(-max(0, now - L.r_at - 1000) / DRAIN_MS) end
-- The part of `rate` that a class has: the rest beside what the others can take at present (their pace of late and
-- what waits of them, `waits(class index)`, over a few seconds), and at least its own weight among them.
local function part_of(provider_name, ci, rate, waits)
  local own, found, others = tuning.classes[ci].weight, provider_lines(provider_name), {}
  local sum, taken = own, 0
  for i, c in ipairs(tuning.classes) do
    local L = i ~= ci and found[i]
    if L and (L.dirty or not L.fresh) then -- a line that was only looked at in this call is none
      local can = answered_rate(L) + waits(i, L) / 5
      if can > 0 then
        others[#others + 1], others[#others + 2] = c.weight, can
        sum = sum + c.weight
      end
    end
  end
  for i = 1, #others, 2 do taken = taken + min(rate * others[i] / sum, others[i + 1]) end
  return max(own / sum, 1 - taken / rate)
end
local function segments_of(_, L) return L.seg end
local function class_share(provider_name, ci, rate) return part_of(provider_name, ci, rate, segments_of) end
local function scope_share(f, s, ci)
  s.shares = s.shares or {} -- as at the beginning of the call: exact enough for it, and asks come in hundreds
  local share = s.shares[f.line]
  if not share then
    share = part_of(f.provider, ci, 1000 / s.Te, function(i) return tallied(s, i, 1) end)
    s.shares[f.line] = share
  end
  return share
end

-- What limits and health let a provider drain, segments/s; false where no limit says anything. Sessions that are
-- down, paused or broken carry nothing; where none is up yet all count, since they will be.
local configured, bounds, outages, backlog, some_due
resets[#resets + 1] = function()
  configured, bounds, outages, backlog, some_due = {}, {}, {}, {}, call('EXISTS', P .. 'due') == 1
end
local function configured_rate(name)
  if configured[name] ~= nil then return configured[name] end
  local rate = false
  load_scopes({ 'provider:' .. name })
  local own = scopes['provider:' .. name]
  if own and own.Te > 0 then rate = 1000 / own.Te end
  local sessions, sum, some = fleet(name), 0, false
  for i = 1, #sessions do
    local one = sessions[i]
    if one.up or sessions.up == 0 then
      local s = one.s
      if not (s and (s.pause > now or s.probe > 0)) then
        sum, some = sum + ((s and s.Te > 0) and 1000 / s.Te or FOREVER), true
      end
    end
  end
  if some and sum < FOREVER and (not rate or sum < rate) then -- the sessions' limits bind: a single one is named
    rate, bounds[name] = sum, 'provider:' .. name
    if #sessions == 1 then bounds[name] = 'session:' .. sessions[1].name end
  end
  configured[name] = rate
  return rate
end

-- Drain of a line, segments/s: measured while backlogged (zero counts too); relaxes to what limits say when idle.
local function measured_drain(f, L)
  local rate = configured_rate(f.provider)
  local fallback = rate and rate * class_share(f.provider, f.ci, rate) or max(UNMEASURED, L.mu)
  if L.mu <= 0 and L.busy_at == 0 then return fallback end
  local mu = L.mu > 0 and L.mu or fallback
  if L.busy_at > 0 then
    local span = now - L.mu_at
    if span > 400 then
      local keep = exp(-span / DRAIN_MS)
      mu = mu * keep + L.acc * 1000 / span * (1 - keep)
      if L.mu <= 0 then mu = min(mu, (L.acc + 1) * 1000 / span) end -- never measured: what one answer more would say
    end
  else
    local idle = now - L.s_at
    local keep = exp(-idle / 10000)
    local relaxed = mu * keep + fallback * (1 - keep)
    mu = rate and relaxed or min(relaxed, mu * 2 ^ min(50, idle / 10000)) -- without a limit only trying shows more
  end
  mu = max(mu, answered_rate(L)) -- what was just answered can be done
  return max(rate and min(mu, rate) or mu, 0.001)
end
local function drain(f, L)
  L.drain = L.drain or measured_drain(f, L)
  return L.drain
end

-- What the provider would do if it served at all: never decayed by silence.
local function known_rate(f, L, p)
  local rate = configured_rate(f.provider)
  return rate or (L.mu > 0 and L.mu) or (p.r > 0 and p.r) or UNMEASURED
end

-- How long a scope by hand or by fault stays closed: ms, and whether nobody knows its end.
local function closed_for(s, after)
  if not s then return 0, false end
  if s.pause > now then return s.pause - now, s.pause >= FOREVER end
  if s.probe > 0 then return max(0, s.probe - now) + max(after, now - s.since), false end -- as long again as it lasted
  return 0, false
end
-- The provider's standing: how long until it serves again (0: it does), the scope at fault, whether nobody knows.
local function outage(name)
  local o = outages[name]
  if o then return o.wait, o.scope, o.hard end
  local p, sessions, after = provider(name), fleet(name), 5000
  o = { wait = 0, scope = 'provider:' .. name, hard = false }
  outages[name] = o
  load_scopes({ o.scope })
  local own = scopes[o.scope]
  if own and own.probe > 0 then after = breaker_of(name).after end
  o.wait, o.hard = closed_for(own, after)
  if o.wait > 0 then return o.wait, o.scope, o.hard end
  if sessions.up == 0 then
    if p.down_at > 0 and now - p.down_at > (p.seen_at > 0 and DOWN_GRACE_MS or FIRST_GRACE_MS) then
      o.wait = max(p.eta - now, now - p.down_at) + BACK_MS
    end
  elseif p.seen_at > 0 and now - p.seen_at > DEAD_MS then
    o.wait = now - p.seen_at
  else
    local wait, hard, scope = FOREVER, true, nil
    for i = 1, #sessions do
      local one = sessions[i]
      if one.up then
        local w, h = closed_for(one.s, after)
        if w == 0 then return 0, o.scope, false end
        if w < wait or not scope then wait, hard, scope = w, h, 'session:' .. one.name end
      end
    end
    o.wait, o.hard = wait, hard
    if sessions.up == 1 then o.scope = scope end
  end
  return o.wait, o.scope, o.hard
end

-- Since when a provider that has work gives no sign of life, as a span that is 0 while all is well: no answer to what
-- was claimed, or nobody takes what could go; longer than the round trip and its own pace suggest.
local function silent_for(f, L, p)
  local span, pace = 0, 0
  if p.ans_at > 0 and p.owed_at > p.ans_at and now - p.owed_at < TRIAL_MS then span = now - p.owed_at end
  if L.busy_at > 0 then
    local untouched = now - max(p.pass_at, p.ans_at, L.busy_at)
    if untouched > span then span, pace = untouched, 3000 / known_rate(f, L, p) end
  end
  if span < SILENT_MIN_MS then return 0 end
  local usual = p.rtt > 0 and 5 * p.rtt or 2000
  if p.r > 0 then usual = min(usual, 5000 / p.r) end
  return span > max(usual, pace) and span or 0
end

-- Per flow: what waits, and what earlier asks (of this call too) have been promised
local function head_at(head) return unpack_record('>I2', head, 29) * 4294967296 + unpack_record('>I4', head, 31) end
local function pending(key)
  local b = backlog[key]
  if not b then
    b = { before = tonumber(call('GET', P .. 'w:' .. key) or nil) or 0, added = 0, queued = call('LLEN', P .. 'q:' .. key) }
    local head = b.queued > 0 and call('LINDEX', P .. 'q:' .. key, 0)
    if head then b.oldest_at = head_at(head) end
    backlog[key] = b
  end
  return b
end
local function due_of(key) -- buckets {instant, messages, segments} in order of time; those that are due are in the queue
  local b = pending(key)
  if b.due then return b.due end
  b.due = {}
  local raw = some_due and call('HGET', P .. 'due', key)
  if raw then
    for at = 1, #raw, 16 do
      local due_at, messages, segments = unpack_record(DUE, raw, at)
      if due_at > now then b.due[#b.due + 1] = { due_at, messages, segments } end
    end
  end
  return b.due
end

-- What of a flow's wait does not depend on the one message, for the length of a call: asks come in hundreds, of few
-- flows. Lines over what is ahead: own position x competing weight / own weight, plus half a round of the others (but not
-- more than waits), and what is claimed and not yet written; one line per limit besides.
local prospects
resets[#resets + 1] = function() prospects = {} end
local function prospect(f, segments, budget)
  local o = prospects[f]
  if o and o.segments == segments and o.budget == budget then return o end
  local L, p, t = line(f.line), provider(f.provider), tenant_record(f.line, f.tenant)
  local each, w, m = L.n > 0 and max(1, L.seg / L.n) or 1, weight_of(f.tenant), max(1, t.m)
  local away, away_scope, away_hard = outage(f.provider)
  local silent = away == 0 and silent_for(f, L, p) or 0
  -- While nothing moves the measured drain says nothing of how it will move again.
  local known = known_rate(f, L, p)
  local mu = (away > 0 or silent > 0) and known * class_share(f.provider, f.ci, known) or drain(f, L)
  -- The weight that competes: as virtual time runs, and as it ran in the last surge; before any measurement all that is
  -- active.
  local A = t.m > 0 and L.A + w - t.w or L.A + w
  local window = max(budget, PEAK_MS)
  if L.vs > 0 then A = max(w, min(A, mu * L.vs / 1000 + (t.m > 0 and 0 or w))) end
  if L.pk > A and now - L.pk_at < window then A = A + (L.pk - A) * (1 - (now - L.pk_at) / window) end
  local share = w / max(A, w)
  local slope = { m * A / w * each * 1000 / mu }
  local base = { min(max(0, m * A / w - 1) / 2, L.n + L.pend) * each * 1000 / mu }
  local names, rates = { 'class:' .. f.class }, { mu * share }
  if p.stock > 0 then base[1] = base[1] + p.stock * 1000 / max(known, mu) end
  local needed = buckets(f)
  local application = f.application and scopes[f.application]
  o = { segments = segments, budget = budget, each = each, away = away, away_scope = away_scope, away_hard = away_hard,
    silent = silent, known = known, mu = mu, share = share, slope = slope, base = base, names = names, rates = rates,
    queued = pending(f.key).queued, age = 0, age_scope = names[1], pause = 0, own_pause = false,
    from = application and application.open_at or 0 }
  local mean = L.at > 0 and L.A / L.at or w
  for _, s in ipairs(needed) do
    if s.pause > now then
      if s.name == f.application then -- the tenant's own wish: no reason to refuse its messages
        o.own_pause = true
      elseif s.pause - now > o.pause then
        o.pause, o.paused, o.hard = s.pause - now, s.name, s.pause >= FOREVER
      end
    end
    if s.Te > 0 then
      local F, B = tallied(s, f.ci, 2), tallied(s, f.ci, 1) + tallied(s, f.ci, 3)
      local round = max(1, (o.queued > 0 and F - 1 or F) * mean / w + 1)
      local scope_part, n = scope_share(f, s, f.ci), #slope + 1
      slope[n] = each * round / scope_part * s.Te
      base[n] = max(s.tat - clock, 0)
        + (min((round - 1) / 2, B) / scope_part + kept(s, f) + min(segments, s.burst) - s.burst) * s.Te
      local own = s.name == f.application or sub(s.name, 1, 7) == 'tenant:' -- its flows stand in one line at the door
      names[n], rates[n] = s.name, 1000 / s.Te * scope_part / (own and 1 or round)
      if s.wait_at > 0 and s.pause <= now and tokens(s) + EPS < 1 and B > 0 and now - s.wait_at > o.age then
        o.age, o.age_scope = now - s.wait_at, s.name
      end
    end
  end
  prospects[f] = o
  return o
end
local function worst(o, ahead) -- the longest of the lines, and which
  local slope, base, wait, at = o.slope, o.base, 0, 1
  for i = 1, #slope do
    local one = slope[i] * ahead + base[i]
    if one > wait or (at == 1 and one * 1.05 >= wait and one > 0) then -- of two that say the same the limit is named
      wait, at = max(wait, one), i
    end
  end
  return wait, at
end

-- Wait and age of one flow for a message of so many segments. `ask`: segments, budget, limit, number, and for a message
-- that is queued already `ahead`, the messages before it in its flow.
local function judge(f, ask)
  local o, L, waiting = prospect(f, ask.segments, ask.budget), line(f.line), pending(f.key)
  local ahead = ask.ahead or waiting.queued + waiting.before + waiting.added
  local v = { age = o.age, age_scope = o.age_scope, share = o.share, pause = o.pause, paused = o.paused, hard = o.hard }
  local at
  v.wait, at = worst(o, ahead)
  if not ask.ahead then
    local due = due_of(f.key)
    for i = 1, #due do -- what falls due before its turn will stand before it
      if due[i][1] > now + v.wait then break end
      ahead = ahead + due[i][2]
      v.wait, at = worst(o, ahead)
    end
  end
  v.ahead, v.scope, v.mu = ahead, o.names[at], o.rates[at]
  if not ask.ahead then
    local class = tuning.classes[f.ci]
    local most, whole = WHOLE_SHARE * class.door * class.budget, (L.seg + L.pend * o.each) * 1000 / o.mu
    if whole > most and ask.limit + whole - most > v.wait then
      v.wait, v.scope, v.mu = ask.limit + whole - most, o.names[1], o.rates[1]
    end
  end
  if at == 1 and bounds[f.provider] then -- as fast as the sessions may
    if o.mu * 1.25 >= o.known * class_share(f.provider, f.ci, o.known) then v.scope = bounds[f.provider] end
  end
  if ask.number ~= NO_NUMBER and f.number then
    load_scopes({ f.number })
    local r = number_record(f, string.rep('\0', 34) .. ask.number)
    local ready = r and number_held(r, ask.segments)
    if ready and ready - now > v.wait then v.wait, v.scope, v.mu = ready - now, f.number, 1000 / r.s.Te end
  end
  local silent = o.silent
  if o.away > v.pause then v.pause, v.paused, v.hard = o.away, o.away_scope, o.away_hard end
  if v.paused or silent > 0 then
    v.wait = v.wait + max(v.pause, silent) -- silent as long again as it was
    if v.paused and (v.pause * 2 >= v.wait or v.hard) then v.scope = v.paused end
  end
  -- Own flow's oldest; whose fault it is, is what binds its wait. A pause by the tenant itself does not count.
  local oldest = waiting.oldest_at and now - max(waiting.oldest_at, o.from) or 0
  if not o.own_pause and oldest > v.age then v.age, v.age_scope = oldest, v.scope end
  if L.busy_at > 0 and now - max(L.pass_at, L.busy_at) > v.age then -- eligible work waits here and nothing of it passes
    v.age, v.age_scope = now - max(L.pass_at, L.busy_at), 'class:' .. f.class
  end
  if silent > 0 then -- whatever waits here waits for the carrier, also what waited a little before it fell silent
    v.age, v.age_scope = max(v.age, silent), 'provider:' .. f.provider
    v.silent = silent > SILENT_SHARE * ask.limit
  end
  if silent > 0 or v.paused then v.mu = o.known * v.share end -- how fast a line at the door shortens
  v.ok = not v.hard and not v.silent and v.wait <= ask.limit and v.age <= ask.limit
  return v
end
