-- Leases a batch to a session. ARGV: now, provider, session, want (messages), want_segments, lease_ms, lease id, then
-- classes that must be left out.
-- Returns {lease blob, expired references, wait_ms, cause}; wait_ms -1: nothing waits.
-- Cost: about 105 us a call, 20 us a flow visited, 2 us a message (scheduling.md section 0), whatever the backlog.
local VISITS_MAX = 400       -- flow visits per call
local EXPIRED_MAX = 500      -- expired references per call
-- A flow whose tail would not go before its deadline at the share that the flow has now was promised more than that
-- (others came since): it is visited again at a small part of the price, as long as late flows have no more than this
-- share of the class's service. Looked at where the head has waited for this part of what the door lets in for. With a
-- door that closes at half of the budget the promises to the newcomers hold as well (scenario 13).
local LATE_PART, LATE_SHARE, LATE_PRICE = 0.5, 0.65, 0.001
local name, session = ARGV[2], ARGV[3]
local left, left_segments, lease_ms, lease_id = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local without = {}
for i = 8, #ARGV do without[ARGV[i]] = true end
if state == 'lost' then return { '!lost' } end
if not tuning_raw then return { '!untuned' } end
if state == 'loading' and call('EXISTS', P .. 'open') == 0 then return { '', '', -1, 'loading' } end -- being wiped

local provider_scope, session_scope = 'provider:' .. name, 'session:' .. session
local park, held = P .. 'park:' .. name, P .. 'held:' .. name
local p = provider(name)
if p.seen_at == 0 then p.down_at = 0 end -- the first sign of life
p.seen_at, p.dirty = now, true
load_scopes({ provider_scope, session_scope })

-- 1. Lapsed leases go back to the head of their flows (any provider's: whoever comes first).
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'leases', '-inf', now, 'LIMIT', 0, 4)) do undo_lease(id) end

-- 2. Messages that their number held go back to their flow.
local released = {}
local due = call('ZRANGEBYSCORE', held, '-inf', now, 'LIMIT', 0, 100)
for i = 1, #due do
  local size, from = unpack_record('>I2', due[i])
  local ref = sub(due[i], from + size)
  put(parse(sub(due[i], from, from + size - 1)), { ref }, true, true)
  released[ref] = true
end
if #due > 0 then call('ZREM', held, unpack(due)) end

-- 3. Parked flows that are ready come back, never behind the service that they missed.
due = call('ZRANGEBYSCORE', park, '-inf', now, 'LIMIT', 0, 200)
for i = 1, #due do
  local tag, from = unpack_record('>d', due[i])
  local f = parse(sub(due[i], from))
  call('ZADD', P .. 'act:' .. f.line, max(tag, line(f.line).V), f.key)
  turn_eligible(f)
end
if #due > 0 then call('ZREM', park, unpack(due)) end

local groups, expired = {}, {}
local cause, shared_ready, blocker
local tombs_exist = call('EXISTS', P .. 'tomb') == 1

local function spare(s, flow_key) return tokens(s) - kept(s, parse(flow_key)) end
local function ready_at(s, k, flow_key) return now + max(0, k - spare(s, flow_key)) * s.Te end
local function charge(s, segments, flow_key)
  if segments > 0 then
    met(s, max(0, s.tat - clock) / s.Te)
    s.tat, s.last_at, s.wait_at, s.dirty = max(s.tat, clock) + segments * s.Te, now, 0, true
    if s.owner ~= flow_key and s.rk < 1 then
      s.rk, s.owner = 0, ''
    elseif s.owner == flow_key and s.rk >= 1 then
      s.rk, s.ru = TAKEN, now + 2 * (s.rk + 2) * s.Te + 1000
    end
  end
end
local function hold(s, k, flow_key) -- this scope holds the flow: since when, and a reservation for a long message
  if s.wait_at == 0 then s.wait_at = now end
  if k > 1 and s.rk == 0 then s.rk, s.ru, s.owner = k, ready_at(s, k, flow_key) + 1000, flow_key end
  s.dirty = true
end

local shared, probes = {}, {}
for _, scope_name in ipairs({ provider_scope, session_scope }) do
  local s = scopes[scope_name]
  if s then
    if s.pause > now then cause, shared_ready = scope_name, s.pause end
    if s.probe > now then
      cause, shared_ready = scope_name, s.probe
    elseif s.probe > 0 then -- half open: one message goes and shows whether the carrier works again
      left, probes[#probes + 1] = min(left, 1), s
    end
    if s.Te > 0 then shared[#shared + 1] = s end
  end
end

-- All limited scopes of a flow for this session, and the interval of the slowest one.
local limits, slowest = {}, {}
local function limits_of(f)
  if limits[f] then return limits[f] end
  local all, slow = {}, 0
  for _, s in ipairs(buckets(f)) do
    if s.Te > 0 and s.name ~= provider_scope then all[#all + 1] = s end
  end
  for i = 1, #shared do all[#all + 1] = shared[i] end
  for i = 1, #all do slow = max(slow, all[i].Te) end
  limits[f], slowest[f] = all, slow
  return all
end

-- The class's flows in order of start tag; tags that changed are written before the next look and at the end.
local function flush(C)
  local args, gone = {}, C.gone
  for key, tag in pairs(C.tag) do args[#args + 1], args[#args + 2] = tag, key end
  for i = 1, #args, CHUNK do call('ZADD', C.act, 'XX', unpack(args, i, min(i + CHUNK - 1, #args))) end
  if #gone > 0 then call('ZREM', C.act, unpack(gone)) end
  C.tag, C.gone = {}, {}
end
local function fetch(C)
  flush(C)
  local k = min(64, ceil(left / C.quantum) + 3)
  local found = call('ZRANGE', C.act, 0, k - 1, 'WITHSCORES')
  C.keys, C.tags, C.at = {}, {}, 1
  for i = 1, #found, 2 do C.keys[#C.keys + 1], C.tags[#C.tags + 1] = found[i], tonumber(found[i + 1]) end
  C.complete = #C.keys < k
end
local function leave(C, f) -- out of `act`
  C.tag[f.key] = nil
  C.gone[#C.gone + 1] = f.key
end
local function reinsert(C, f, tag)
  local keys, tags = C.keys, C.tags
  C.tag[f.key] = tag
  if not C.complete and tag > (tags[#tags] or tag) then return end -- others may stand between: seen at the next fetch
  local i = #keys + 1
  while i > C.at and tags[i - 1] > tag do i = i - 1 end
  table.insert(keys, i, f.key)
  table.insert(tags, i, tag)
end

-- A flow that scope `s` holds until `ready`, for `k` segments: parked, or the end of the call where `s` is shared by all
-- that this session could send. Never called for an empty flow (scheduling.md section 5).
local function set_aside(C, f, tag, s, ready, k)
  hold(s, k, f.key)
  if s.name == provider_scope or s.name == session_scope then
    cause, shared_ready = s.name, ready
    C.tag[f.key] = tag
    return 'stop'
  end
  blocker = s.name
  leave(C, f)
  call('ZADD', park, ready, pack('>d', tag) .. f.key)
  return 'parked'
end
local function retire(C, f) -- an empty flow no longer counts
  leave(C, f)
  count_active(f, -1)
  return 0, 'empty'
end

-- The room that a flow has now (whole segments), the scope that binds and when it lets the next one through.
local function room_of(f, all)
  for _, s in ipairs(buckets(f)) do
    if s.pause > now then return 0, s, s.pause end
  end
  local room, binding = FOREVER, nil
  for i = 1, #all do
    local free = floor(spare(all[i], f.key) + EPS)
    if free < room then room, binding = free, all[i] end
  end
  return room, binding, room < 1 and ready_at(binding, 1, f.key) or now
end

-- Takes from the references of one visit what may go. Returns {used, taken references, segments, gone (expired or
-- canceled) and its segments, and what ended it: tight scope with the segments it needs, or `full`}.
local function choose(f, refs, room, binding, all)
  local v = { used = 0, refs = {}, segments = 0, gone = 0, gone_segments = 0 }
  local tombs
  if tombs_exist then
    local ids = {}
    for i = 1, #refs do ids[i] = sub(refs[i], 1, 16) end
    tombs = call('ZMSCORE', P .. 'tomb', unpack(ids))
    for i = 1, #refs do ids[i] = sub(refs[i], 1, 20) end
    local slots = call('ZMSCORE', P .. 'tomb', unpack(ids))
    for i = 1, #refs do tombs[i] = tombs[i] or slots[i] end
  end
  for i = 1, #refs do
    local ref = refs[i]
    local segments = byte(ref, 21)
    local deadline = unpack_record('>I2', ref, 23) * 4294967296 + unpack_record('>I4', ref, 25)
    if deadline <= now or (tombs and tombs[i]) then -- takes no token
      if deadline <= now then
        if #expired >= EXPIRED_MAX then
          v.full = true
          return v
        end
        expired[#expired + 1] = ref
      end
      if tombs and tombs[i] then call('ZREM', P .. 'tomb', sub(ref, 1, 16), sub(ref, 1, 20)) end
      v.gone, v.gone_segments = v.gone + 1, v.gone_segments + segments
    else
      if left_segments - v.segments < segments and (v.segments > 0 or #groups > 0) then
        v.full = true
        return v
      end
      if segments == 1 then
        if room - v.segments < 1 then v.tight, v.need = binding, 1 end
      else -- room for min(n, burst) in every scope, charged n: nothing that a policy allows waits for ever
        for j = 1, #all do
          local need = min(segments, all[j].burst)
          if spare(all[j], f.key) - v.segments + EPS < need then v.tight, v.need = all[j], need end
        end
      end
      if v.tight then return v end
      local r = number_record(f, ref)
      local later = r and number_held(r, segments, released[ref])
      if later then -- moves alone; at its deadline it comes back to be told expired
        if later < deadline then r.hold_at, r.dirty = max(r.hold_at, later), true end
        call('ZADD', held, min(later, deadline), pack('>I2', #f.key) .. f.key .. ref)
      else
        if r then charge_number(r, segments) end
        v.refs[#v.refs + 1] = ref
        v.segments = v.segments + segments
      end
    end
    v.used = i
  end
  return v
end

-- Whether a flow was promised more than its share gives now.
local function is_late(C, f, q, v)
  local head = v.refs[1]
  local deadline = unpack_record('>I2', head, 23) * 4294967296 + unpack_record('>I4', head, 25)
  local queued = unpack_record('>I2', head, 29) * 4294967296 + unpack_record('>I4', head, 31)
  if now - queued <= C.late * (deadline - queued) then return false end
  local tail = C.L.mu > 0 and call('LINDEX', q, -1)
  if not tail then return true end
  local left_ms = unpack_record('>I2', tail, 23) * 4294967296 + unpack_record('>I4', tail, 25) - now
  local behind = call('LLEN', q) * v.segments / #v.refs
  return behind * tenant_record(f.line, f.tenant).m * C.L.A / weight_of(f.tenant) * 1000 / C.L.mu > left_ms
end

-- What a visit costs the flow in virtual time: a tenant's weight is divided among its active flows, and of that retries
-- have half of what first attempts have; little for a late flow while there is credit for it.
local function price_of(C, f, q, v)
  local price = v.segments * tenant_record(f.line, f.tenant).m * (f.retry and 2 or 1) / weight_of(f.tenant)
  if C.L.late >= v.segments and is_late(C, f, q, v) then
    C.L.late = C.L.late - v.segments
    return price * LATE_PRICE
  end
  local most = max(C.L.mu, 2 * C.L.at * C.quantum, 32) -- a second of service, or a round of the others
  C.L.late = min(max(C.L.late, most), C.L.late + v.segments * LATE_SHARE / (1 - LATE_SHARE))
  return price
end

-- One visit of a flow, for at most `asked` messages. Returns segments taken and 'empty' | 'parked' | 'more' | 'stop'.
local function visit(C, f, tag, asked)
  local all, q = limits_of(f), P .. 'q:' .. f.key
  local room, binding, ready = room_of(f, all)
  if room < 1 then
    if call('LLEN', q) == 0 then return retire(C, f) end
    return 0, set_aside(C, f, tag, binding, ready, 1)
  end
  local refs = call('LRANGE', q, 0, asked - 1)
  if #refs == 0 then return retire(C, f) end
  local v = choose(f, refs, room, binding, all)
  if v.used > 0 then call('LTRIM', q, v.used, -1) end
  for j = 1, #all do charge(all[j], v.segments, f.key) end
  local served = #v.refs
  if served + v.gone > 0 then account(f, -(served + v.gone), -(v.segments + v.gone_segments)) end
  if served > 0 then
    left, left_segments = left - served, left_segments - v.segments
    groups[#groups + 1] = pack('>I2I2d', #f.key, served, slowest[f]) .. f.key .. table.concat(v.refs)
    C.L.leased, C.L.pass_at = C.L.leased + served, now
    local before = tag
    tag = tag + price_of(C, f, q, v)
    -- More than a quantum goes only to a flow that is alone. Virtual time went on meanwhile: else whoever comes next
    -- would be served all of that visit over before this flow has another turn.
    if served > C.quantum then C.L.V = max(C.L.V, tag - (tag - before) * C.quantum / served) end
  end
  if v.tight then return v.segments, set_aside(C, f, tag, v.tight, ready_at(v.tight, v.need, f.key), v.need) end
  C.tag[f.key] = tag
  if v.full then return v.segments, 'stop' end
  if #refs < asked then return v.segments, 'empty' end -- stays in `act`, with its tag, until visited
  reinsert(C, f, tag)
  return v.segments, 'more'
end

-- 4. Classes by weighted virtual time; one that was idle is lifted to the class served last when it returns.
local classes = {}
local function standing()
  local found = provider_lines(name)
  for i, c in ipairs(tuning.classes) do
    local L = found[i]
    if L and not without[c.name] and is_open(c.name) then
      local C = { L = L, act = P .. 'act:' .. L.name, weight = c.weight, quantum = max(1, c.quantum),
        late = c.door * LATE_PART }
      C.tag, C.gone = {}, {}
      fetch(C)
      C.done = #C.keys == 0
      classes[#classes + 1] = C
    end
  end
end

local visits, served_at = 0, p.RV
local function serve()
  while left > 0 and left_segments > 0 and visits < VISITS_MAX do
    local C, rivals = nil, 0
    for i = 1, #classes do
      local other = classes[i]
      if not other.done then
        rivals = rivals + 1
        if not C or other.L.cv < C.L.cv then C = other end
      end
    end
    if not C then return end
    if C.at > #C.keys and not C.complete then fetch(C) end
    if C.at > #C.keys then
      C.done = true
    else
      local f, tag = parse(C.keys[C.at]), C.tags[C.at]
      C.at = C.at + 1
      visits = visits + 1
      C.L.V, C.L.dirty = max(C.L.V, tag), true
      -- Without a rival there is nobody to be fair to: one visit takes all.
      local alone = rivals == 1 and C.complete and C.at > #C.keys
      local taken, outcome = visit(C, f, tag, alone and left or min(C.quantum, left))
      if taken > 0 then
        served_at = max(served_at, C.L.cv)
        C.L.cv = C.L.cv + taken / C.weight
      end
      if outcome == 'stop' then return end
    end
  end
end

if not cause then
  standing()
  serve()
  p.RV = served_at
end

-- 5. A class without an eligible flow is idle: its drain sample ends here (only backlogged samples count).
for _, C in ipairs(classes) do
  flush(C)
  if C.L.busy_at > 0 then sample_pace(C.L) end
  if C.done and C.L.idle == 0 then
    if C.L.acc > 0 then sample_drain(C.L, 200) end
    C.L.idle, C.L.busy_at, C.L.acc, C.L.mu_at, C.L.dirty = 1, 0, 0, now, true
  end
end

local blob = ''
if #groups > 0 then
  p.pass_at = now
  for i = 1, #probes do probes[i].probe, probes[i].dirty = now + breaker_of(name).after, true end
  blob = pack('>dI2I2', now, #name, #session) .. name .. session .. table.concat(groups)
  call('SET', P .. 'lease:' .. lease_id, blob)
  call('ZADD', P .. 'leases', now + lease_ms, lease_id)
end
local wait = -1
if #groups == 0 then
  local nearest = shared_ready or FOREVER
  for _, key in ipairs({ park, held, P .. 'leases' }) do
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if #first > 0 then nearest = min(nearest, tonumber(first[2])) end
  end
  if visits >= VISITS_MAX or #expired > 0 then nearest = now end
  if nearest < FOREVER then wait = max(1, ceil(nearest - now)) end
end
save()
save_numbers()
return { blob, table.concat(expired), wait, cause or blocker or '' }
