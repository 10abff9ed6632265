-- Says for each ask whether it may come in now, later, or not. ARGV: now, then per ask: probe (0/1), segments, budget_ms,
-- limit_ms, latest not_before (0: may not be deferred), place, number token, candidates, then the flow keys of the
-- candidates ('' = must not be taken). Returns per ask: accepted, candidate, wait_ms, age_ms, scope, cause,
-- retry_after_s, not_before (0: not deferred). Reads but for what it promises: pending counters, deferred work, and
-- places in the Retry-After line.
local RETRY_MAX_MS = 3600000
local SILENT_MS = 1000       -- when to ask a carrier again that gives no answer
local UNKNOWN_MS = 30000     -- when to ask again where nobody knows how long a pause lasts; LATER_MS: how far is deferred then
if state == 'lost' then return { '!lost' } end
if not tuning_raw then return { '!untuned' } end

-- The waiting line of (scope, tenant): places `given` so far, and `passed`, those that have had their time, at the rate of
-- the present, so it shortens as fast as things go now. The class, its carrier and that one's session are one line, since
-- which of them is named changes from one ask to the next; a number's limit has a line for each number. A place is kept per
-- idempotency key, in a hash per PLACES of them; the line is read and written once per call. Who comes at its time is
-- judged by the wait alone; who has no place, or comes early, stands behind those in line: else newcomers would take every
-- gap, and the others come in vain.
local PLACES = 20000
local tails = {}
local function tail_of(scope, f, number, rate)
  local kind = string.match(scope, '^%l+')
  if kind == 'class' or kind == 'provider' or kind == 'session' then
    scope = f.line
  elseif kind == 'number' then
    scope = scope .. '|' .. number
  end
  local key = P .. 'tail:' .. scope .. '|' .. f.tenant
  local q = tails[key]
  if not q then
    q = { key = key, given = 0, passed = 0, places = {}, rate = max(rate, 0.001) }
    local raw, at = call('GET', key), now
    if raw then q.given, q.passed, at = unpack_record('<ddd', raw) end
    q.passed = min(q.given, q.passed + q.rate * (now - at) / 1000)
    tails[key] = q
  end
  return q
end
local function place_of(q, place) -- its number, or nil
  if q.places[place] or q.given == 0 then return q.places[place] end
  local last = floor(q.given / PLACES)
  local page = q.key .. '|' .. last
  local own = tonumber(call('HGET', page, place) or nil)
  if not own and last > 0 and q.passed < last * PLACES then
    page = q.key .. '|' .. (last - 1)
    own = tonumber(call('HGET', page, place) or nil)
  end
  return own
end
-- How long the line before a request is, ms; 0 for one whose turn has come.
local function line_before(q, place)
  if q.given <= q.passed then return 0 end
  local own = place_of(q, place) or q.given + 1
  return max(0, own - q.passed) * 1000 / q.rate
end
local function place_in_line(q, place, base, probe)
  local own = place_of(q, place)
  if not own or own <= q.passed then -- none yet, or it has had its turn
    own = q.given + 1
    if not probe and q.given - q.passed < PLACES then -- a line that is full gives no more places
      q.given, q.places[place], q.dirty = own, own, true
    end
  end
  return min(base + (own - q.passed) * 1000 / q.rate, max(base, RETRY_MAX_MS))
end
local function save_tails()
  for key, q in pairs(tails) do
    if q.dirty then
      local keep, pages = ceil(60000 + min((q.given - q.passed) * 1000 / q.rate, RETRY_MAX_MS)), {}
      call('SET', key, pack('<ddd', q.given, q.passed, now), 'PX', keep)
      for place, own in pairs(q.places) do
        local page = key .. '|' .. floor(own / PLACES)
        pages[page] = pages[page] or {}
        table.insert(pages[page], place)
        table.insert(pages[page], own)
      end
      for page, args in pairs(pages) do
        for i = 1, #args, CHUNK do call('HSET', page, unpack(args, i, min(i + CHUNK - 1, #args))) end
        call('PEXPIRE', page, keep)
      end
    end
  end
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

-- Deferred: from its instant on the message counts as work due of its flow, so that the next one comes later. Buckets
-- grow with their distance, so that a flow has some tens of them at most.
local function defer(f, at, segments)
  local due, width = due_of(f.key), 1000
  while width * 16 < at - now do width = width * 2 end
  local edge, i = ceil(at / width) * width, 1
  while due[i] and due[i][1] < edge do i = i + 1 end
  if not (due[i] and due[i][1] == edge) then table.insert(due, i, { edge, 0, 0 }) end
  due[i][2], due[i][3] = due[i][2] + 1, due[i][3] + segments
  pending(f.key).deferred = true
end

-- Near the limit those in line come first, in the line of every scope that is near it and not only of the one that binds
-- at the moment: else newcomers pass whenever that changes.
local function stand_behind(f, ask, place, v)
  local function stand(scope, rate, wait)
    if not v.ok or wait * 2 <= ask.limit then return end
    local line_wait = line_before(tail_of(scope, f, ask.number, rate), place)
    if wait + line_wait > ask.limit then
      v.ok, v.wait, v.lined, v.scope, v.mu = false, wait + line_wait, line_wait, scope, rate
    end
  end
  local o, most = prospect(f, ask.segments, ask.budget), v.wait
  stand(v.scope, v.mu, most)
  if most * 2 <= ask.limit then return end
  for i = 1, #o.names do stand(o.names[i], o.rates[i], o.slope[i] * v.ahead + o.base[i]) end
end

-- Refusals of the call: what is refused changes nothing but its line at the door, so that the next ask of the same kind
-- hears the same, until something is taken in. Not where the line itself is the reason: that one has grown.
local heard = {}
local function kind_of(at, candidates) -- all of an ask but its place
  return table.concat({ ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 6],
    unpack(ARGV, at + 8, at + 7 + candidates) }, '|')
end

-- The best candidate: the first that is fine, else the one that is open and shortest. nil where none may be taken.
local function best_of(at, candidates, ask, place)
  local best, best_at, flow, lined
  for i = 1, candidates do
    local key = ARGV[at + i]
    local f = key ~= '' and parse(key)
    if f and not is_open(f.class) then
      if not best then best, best_at, flow = { wait = 0, age = 0, scope = 'class:' .. f.class, storage = true }, i, f end
    elseif f then
      local v = judge(f, ask)
      stand_behind(f, ask, place, v)
      lined = lined or v.lined
      if not best or best.storage or v.ok or (best.hard and not v.hard) or (not v.hard and v.wait < best.wait) then
        best, best_at, flow = v, i, f
      end
      if v.ok then break end
    end
  end
  return best, best_at, flow, lined
end

local at = 2
while at <= #ARGV do -- every check before the first write
  local candidates = tonumber(ARGV[at + 7])
  for i = 1, candidates do
    local key = ARGV[at + 7 + i]
    if key ~= '' and not parse(key).ci then return { '!class' } end
  end
  at = at + 8 + candidates
end

local replies = {}
at = 2
while at <= #ARGV do
  local probe, candidates = ARGV[at] == '1', tonumber(ARGV[at + 7])
  local ask = { segments = tonumber(ARGV[at + 1]), budget = tonumber(ARGV[at + 2]), limit = tonumber(ARGV[at + 3]),
    number = ARGV[at + 6] }
  local latest, place = tonumber(ARGV[at + 4]), ARGV[at + 5]
  local kind = kind_of(at, candidates)
  local h, best, best_at, flow, lined = heard[kind], nil, nil, nil, nil
  if h then
    best, best_at, flow = h.best, h.best_at, h.flow
  else
    best, best_at, flow, lined = best_of(at + 7, candidates, ask, place)
    h = { best = best, best_at = best_at, flow = flow }
    if best and not best.ok and not lined then heard[kind] = h end
  end
  local wait, age, scope, cause, retry, not_before = 0, 0, '', '', 1, 0
  if not best then
    best, best_at, cause = {}, 0, 'paused'
  else
    wait, age, scope = ceil(min(best.wait, 35 * 86400000)), floor(best.age), best.scope
    if best.ok then
      if not probe then
        accept(flow, ask.segments)
        if next(heard) then heard = {} end
      end
    elseif best.storage then
      cause = 'storage'
    else
      local base = max(0, best.wait - ask.limit - (best.lined or 0))
      if best.paused and best.scope == best.paused then
        cause, base = 'paused', best.hard and UNKNOWN_MS or min(base, LATER_MS)
      elseif best.silent or best.wait <= ask.limit then
        cause, scope, base = 'age', best.age_scope, best.silent and SILENT_MS or 0
      else
        cause = 'wait'
      end
      if latest > 0 then
        not_before = ceil(now + (best.hard and LATER_MS or max(1000, best.wait - ask.limit, best.age - ask.limit)))
        if not_before > latest then not_before = 0 end
      end
      if not_before > 0 then
        if not probe then
          defer(flow, not_before, ask.segments)
          heard = {}
        end
      else
        h.line = h.line or tail_of(scope, flow, ask.number, best.mu)
        retry = max(1, ceil(place_in_line(h.line, place, base, probe) / 1000))
      end
    end
  end
  local n = #replies
  replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = best.ok and 1 or 0, best_at - 1, wait, age
  replies[n + 5], replies[n + 6], replies[n + 7], replies[n + 8] = scope, cause, best.ok and 0 or retry, not_before
  at = at + 8 + candidates
end
for key, b in pairs(backlog) do
  if b.dirty and b.before > 0 then
    call('SET', P .. 'w:' .. key, b.before + b.added, 'KEEPTTL')
  elseif b.dirty then
    call('SET', P .. 'w:' .. key, b.added, 'PX', PENDING_MS)
  end
  if b.deferred then
    local packed = {}
    for i = 1, #b.due do packed[i] = pack(DUE, b.due[i][1], b.due[i][2], b.due[i][3]) end
    call('HSET', P .. 'due', key, table.concat(packed))
  end
end
save_tails()
save()
return replies
