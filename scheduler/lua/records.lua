-- Shared by all scripts: clock, epoch, tuning and the packed records of lines, providers, scopes and tenants.
--
-- Every script is a function of a library of its own (FUNCTION LOAD): what stands outside of functions runs once per
-- server, and `begin` sets what belongs to one call. keys[1] is the cell's prefix `{cell}:`; every other key is computed
-- from it and so shares its slot. args[1] is the instant in ms, or '' for the server's TIME. Records are packed doubles:
-- one GET or HMGET and one struct.unpack are several times cheaper than hash fields (scheduling.md section 2a). All loaded
-- records are kept in tables for the length of the call and written once, by save(): check first, write last.
-- While a library is loaded there is no library of Lua's to be had, and no call: they are fetched by the first `begin`.
local call, floor, ceil, max, min, exp, sub, byte, gmatch, pack, unpack_record
local P, now, state, epoch, epoch_id, started, clock

local FOREVER = 1e15         -- an instant that never comes
local EPS = 1e-6             -- rounding of a bucket's fill, in segments
local CHUNK = 1000           -- arguments per variadic call: Lua's stack holds about 8000
-- How long an admitted message counts that was never enqueued (its commit failed, its process died), from the first of
-- them on: later ones must not keep it alive, or a door that once lost many refuses for as long as clients ask again.
local PENDING_MS = 5000
local DRAIN_MS = 2000        -- time constant of the measured drain
local TRIAL_MS = 30000       -- a silent carrier is tried again after this
local REFERENCE = 42         -- octets: id 16, slot 4, segments 1, flags 1, deadline 6, queued 6, number 8

-- Epoch: "<state> <id> <started> <run_id> <layout>"; a missing key is a lost index (FLUSHALL, restart, first start), and
-- so is one whose records were written by another version of these scripts.
local LAYOUT = 'v5'
local function read_epoch()
  epoch = call('GET', P .. 'epoch')
  state, epoch_id, started = 'lost', '', now
  if epoch then
    local word, id, from, layout = string.match(epoch, '^(%S+) (%S+) (%S+) %S+ (%S+)$')
    if layout == LAYOUT then state, epoch_id, started = word, id, tonumber(from) end
  end
  -- Fill of limits is counted on a clock of its own, ms since the epoch began: a charge of 0.2 ms added to a UTC instant
  -- would be rounded by 0.02 % each time, always the same way.
  clock = now - started
end
local function is_open(class)
  return state == 'ready' or (state == 'loading' and call('SISMEMBER', P .. 'open', class) == 1)
end

-- Tuning: version, retry share, default weight, then per class its name, weight, quantum, budget (ms), door share. A class's
-- place in the list is its place in packed records and never changes.
local TUNING, CLASS = '<ddd', '<sdddd'
local tuning_raw, known_raw, tuning, class_index
local function read_tuning() -- returns whether it is another one than at the call before
  tuning_raw = call('GET', P .. 'tuning')
  if tuning and tuning_raw == known_raw then return false end
  known_raw, class_index = tuning_raw, {}
  tuning = { version = -1, retry_share = 0.1, default_weight = 1, classes = {} }
  if not tuning_raw then return true end
  local at
  tuning.version, tuning.retry_share, tuning.default_weight, at = unpack_record(TUNING, tuning_raw)
  local i, size = 0, #tuning_raw
  while at <= size do
    local name, weight, quantum, budget, door, after = unpack_record(CLASS, tuning_raw, at)
    i, at = i + 1, after
    tuning.classes[i] = { name = name, weight = weight, quantum = quantum, budget = budget, door = door }
    class_index[name] = i
  end
  return true
end

-- Lines: one (provider, class). n queued messages, leased ones, seg queued segments, A active weight, at active
-- tenants, V start tag in service, cv class virtual time, idle 1 when a lease found nothing eligible, busy_at since
-- when eligible work waits, pass_at last lease, mu drain (segments/s), mu_at and acc of the running sample, pk and
-- pk_at recent peak of the effective A, pend admitted but not yet queued, pend_at the first of them, s_at the last sample
-- of mu, r answers of late whether backlogged or not (segments/s), r_at and r_acc of its running sample, vs ms that V
-- takes to grow by one while work waits, v_at and v0 of its running sample, late segments that late flows may have.
local LINE = '<ddddddddddddddddddddddddd'
local lines, lines_of
local FRESH_LINE
local function read_line(name, raw) -- one constructor: a table that grows field by field costs more than all the rest
  local n, leased, seg, A, at, V, cv, idle, busy_at, pass_at, mu, mu_at, acc, pk, pk_at, pend, pend_at, s_at, r, r_at,
    r_acc, vs, v_at, v0, late =
    unpack_record(LINE, raw or FRESH_LINE)
  if now - pend_at > PENDING_MS then pend, pend_at = 0, 0 end
  local L = { name = name, fresh = not raw, dirty = false, n = n, leased = leased, seg = seg, A = A, at = at, V = V,
    cv = cv, idle = idle, busy_at = busy_at, pass_at = pass_at, mu = mu, mu_at = mu_at, acc = acc, pk = pk,
    pk_at = pk_at, pend = pend, pend_at = pend_at, s_at = s_at, r = r, r_at = r_at, r_acc = r_acc, vs = vs, v_at = v_at,
    v0 = v0, late = late }
  lines[name] = L
  return L
end
local function line(name)
  if lines[name] then return lines[name] end
  local raw = call('GET', P .. 'L:' .. name)
  if not raw then lines_of = {} end -- a list that was made before lacks it
  return read_line(name, raw)
end
-- All lines of a provider at once, in the order of the classes; false where there has never been one.
local function provider_lines(provider_name)
  local found = lines_of[provider_name]
  if found then return found end
  local keys = {}
  for i, c in ipairs(tuning.classes) do keys[i] = P .. 'L:' .. provider_name .. '|' .. c.name end
  local raws = #keys > 0 and call('MGET', unpack(keys)) or {}
  found = {}
  for i, c in ipairs(tuning.classes) do
    local name = provider_name .. '|' .. c.name
    found[i] = lines[name] or (raws[i] and read_line(name, raws[i])) or false
  end
  lines_of[provider_name] = found
  return found
end

-- Providers: RV start tag of the class served last, down_at since when no session is up (0: some are; of one that never
-- had any: since it is known), seen_at last lease of any session, pass_at last leased message, r rate of answers
-- (segments/s), r_at, r_acc, owed_at the first claim since the last answer (0: none), rtt mean round trip (ms), stock
-- claimed segments that are not written yet, eta when a session hopes to be back, ans_at the last answer.
local PROVIDER = '<dddddddddddd'
local providers
local FRESH_PROVIDER
local function provider(name)
  local p = providers[name]
  if not p then
    local RV, down_at, seen_at, pass_at, r, r_at, r_acc, owed_at, rtt, stock, eta, ans_at =
      unpack_record(PROVIDER, call('GET', P .. 'P:' .. name) or FRESH_PROVIDER)
    p = { name = name, dirty = false, RV = RV, down_at = down_at, seen_at = seen_at, pass_at = pass_at, r = r,
      r_at = r_at, r_acc = r_acc, owed_at = owed_at, rtt = rtt, stock = stock, eta = eta, ans_at = ans_at }
    providers[name] = p
  end
  return p
end

-- Scopes that have a limit, a pause or a fault: tat (on `clock`), T interval (ms per segment, 0 no limit), Te the
-- interval in force (0: none), burst, wait_at since when it holds something back, pause until (0 none), health h at
-- h_at that doubles every hg ms (0: grows by 0.05/s), rk segments reserved until ru for the flow `owner`, pend_at,
-- base the measured interval that stands for T where a session without a limit is slowed, probe the next instant at
-- which a broken provider or session lets one message through (0: its breaker is closed), since the pause or the
-- fault began, open_at when it last ended, last_at the last charge, low the least debt (segments) that a charge met
-- since low_at, low_was the same of the slot of time before; then per class B segments that wait, F active flows, N
-- segments admitted but not yet queued.
local SCOPE_HEAD = '<Bdddddddddddddddddddd'
local SCOPE_SIZE = 161       -- octets before the classes: their count and 20 doubles
local scopes, scope_formats, class_formats = nil, {}, {}
local function formats(count)
  local whole = scope_formats[count]
  if not whole then
    whole = SCOPE_HEAD .. string.rep('d', 3 * count)
    scope_formats[count], class_formats[count] = whole, '<' .. string.rep('d', 3 * count)
  end
  return whole, class_formats[count]
end
local function effective(s)
  local T = s.T > 0 and s.T or s.base
  if s.h <= 0 or T <= 0 then return s.T end
  local h
  if s.hg > 0 then h = s.h * 2 ^ ((now - s.h_at) / s.hg) else h = s.h + 0.05 * (now - s.h_at) / 1000 end
  if h >= 1 then
    s.h, s.base = 0, 0
    return s.T
  end
  return T / h
end
-- A pause or a fault is over: what it held is not held by the limit, and where there is none nothing is counted on.
local function reopened(s, at)
  s.open_at = at
  if s.T <= 0 and s.base <= 0 then
    s.wait_at, s.pend_at, s.c = 0, 0, {}
  elseif s.wait_at > 0 then
    s.wait_at = at
  end
end
-- What comes back of a charge that was never used is what it still is in the bucket: at most the least debt that a later
-- charge met, since without it the bucket would have been full by then and would have let the rest go (I18). That least
-- is known per slot of time; a lease is over before two of them.
local SLOT_MS = 3000
local function met(s, debt)
  if now - s.low_at >= SLOT_MS then
    s.low_was = now - s.low_at < 2 * SLOT_MS and s.low or FOREVER
    s.low, s.low_at = FOREVER, now
  end
  s.low = min(s.low, debt)
end
local function take_back(s, segments, charged_at)
  local back = segments
  if s.last_at > charged_at then
    if charged_at < s.low_at - SLOT_MS then return end
    back = min(back, s.low)
    if charged_at < s.low_at then
      back = min(back, s.low_was)
      s.low_was = s.low_was - back
    end
    s.low = s.low - back
  end
  s.tat, s.dirty = s.tat - back * s.Te, true
end
-- What was charged until then is no more in the bucket.
local function written_off(s, at) s.low, s.low_at, s.low_was, s.last_at = FOREVER, at, 0, at end
-- Debt is counted in segments: under another interval the same fill has another tat (invariant I19).
local function settle(s)
  if s.pause > 0 and s.pause <= now then
    s.tat = max(s.tat, s.pause - started + s.burst * s.Te) -- empty after a pause: no burst was saved up
    s.open_at, s.pause, s.dirty = s.pause, 0, true
    written_off(s, s.open_at)
    reopened(s, s.open_at)
  end
  local Te = effective(s)
  if Te ~= s.Te then
    if s.Te <= 0 then written_off(s, now) end -- nothing was charged
    if s.tat > clock and s.Te > 0 and Te > 0 then s.tat = clock + (s.tat - clock) * Te / s.Te end
    s.Te = Te
  end
end
local function new_scope(name)
  return { name = name, dirty = false, tat = 0, T = 0, Te = 0, burst = 1, wait_at = 0, pause = 0, h = 0,
    h_at = 0, hg = 0, rk = 0, ru = 0, pend_at = 0, base = 0, probe = 0, since = 0, open_at = 0, last_at = now, low = FOREVER,
    low_at = now, low_was = 0, c = {}, owner = '' }
end
local function read_scope(name, raw)
  local count, tat, T, Te, burst, wait_at, pause, h, h_at, hg, rk, ru, pend_at, base, probe, since, open_at, last_at,
    low, low_at, low_was =
    unpack_record(SCOPE_HEAD, raw)
  local size, c, owner = SCOPE_SIZE + 24 * count, {}, ''
  if count > 0 then
    local _, format = formats(count)
    c = { unpack_record(format, raw, SCOPE_SIZE + 1) }
    c[3 * count + 1] = nil -- struct.unpack adds the next position
    if pend_at > 0 and now - pend_at > PENDING_MS then
      for i = 3, #c, 3 do c[i] = 0 end
      pend_at = 0
    end
  end
  if rk > 0 then
    if ru < now then rk = 0 else owner = sub(raw, size + 1) end
  end
  local s = { name = name, dirty = false, tat = tat, T = T, Te = Te, burst = burst, wait_at = wait_at, pause = pause,
    h = h, h_at = h_at, hg = hg, rk = rk, ru = ru, pend_at = pend_at, base = base, probe = probe, since = since,
    open_at = open_at, last_at = last_at, low = low, low_at = low_at, low_was = low_was, c = c, owner = owner }
  if pause > 0 or h > 0 then settle(s) end
  return s
end
local function pack_scope(s)
  local count = floor(#s.c / 3)
  local packed = pack((formats(count)), count, s.tat, s.T, s.Te, s.burst, s.wait_at, s.pause, s.h, s.h_at,
    s.hg, s.rk, s.ru, s.pend_at, s.base, s.probe, s.since, s.open_at, s.last_at, s.low, s.low_at,
    s.low_was, unpack(s.c))
  return s.rk > 0 and packed .. s.owner or packed
end
-- Loads the scopes of a list that are not known yet; unlimited ones become false. A tenant that the policy does not
-- name has the limit that stands under the empty name `tenant:`.
local TENANT_DEFAULT = 'tenant:'
local function load_scopes(names)
  local ask
  for i = 1, #names do
    if scopes[names[i]] == nil then
      ask = ask or {}
      ask[#ask + 1] = names[i]
    end
  end
  if not ask then return end
  local raws = call('HMGET', P .. 's', unpack(ask))
  for i = 1, #ask do
    local name, s = ask[i], false
    if raws[i] then
      s = read_scope(name, raws[i])
    elseif sub(name, 1, 7) == TENANT_DEFAULT and name ~= TENANT_DEFAULT then
      load_scopes({ TENANT_DEFAULT })
      local default = scopes[TENANT_DEFAULT]
      if default then
        s = new_scope(name)
        s.T, s.Te, s.burst, s.tat = default.T, default.T, default.burst, default.burst * default.T
      end
    end
    scopes[name] = s
  end
end
-- Adds to field `which` (1 B, 2 F, 3 N) of class `ci`; never below 0, since a limit can be newer than the queue.
local function tally(s, ci, which, amount)
  local c = s.c
  for i = #c + 1, 3 * ci do c[i] = 0 end
  local i = 3 * (ci - 1) + which
  c[i] = max(0, c[i] + amount)
  s.dirty = true
end
local function tallied(s, ci, which) return s.c[3 * (ci - 1) + which] or 0 end
local function tokens(s) return s.burst - max(0, s.tat - clock) / s.Te end

-- Tenants inside a line: m active flows, w the weight that counts in A, n queued messages.
local tenants, weights
local function weight_of(tenant)
  local w = weights[tenant]
  if not w then
    w = tonumber(call('HGET', P .. 'weight', tenant) or nil) or tuning.default_weight
    weights[tenant] = w
  end
  return w
end
local function tenant_record(line_name, tenant)
  local of_line = tenants[line_name]
  if not of_line then
    of_line = {}
    tenants[line_name] = of_line
  end
  local t = of_line[tenant]
  if not t then
    local raw = call('HGET', P .. 'T:' .. line_name, tenant)
    t = { m = 0, w = 0, n = 0 }
    if raw then t.m, t.w, t.n = unpack_record('<ddd', raw) end
    of_line[tenant] = t
  end
  return t
end

-- What belongs to one call begins anew with it; each part adds what is its own.
local resets = {}
local function fetch_libraries()
  call, floor, ceil, max, min, exp = redis.call, math.floor, math.ceil, math.max, math.min, math.exp
  sub, byte, gmatch, pack, unpack_record = string.sub, string.byte, string.gmatch, struct.pack, struct.unpack
  FRESH_LINE = pack(LINE, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
  FRESH_PROVIDER = pack(PROVIDER, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
end
local function begin(keys, args)
  if not call then fetch_libraries() end
  P, now = keys[1], tonumber(args[1])
  if not now then
    local t = call('TIME')
    now = t[1] * 1000 + t[2] / 1000
  end
  read_epoch()
  local changed = read_tuning()
  lines, lines_of, providers, scopes, tenants, weights = {}, {}, {}, {}, {}, {}
  for i = 1, #resets do resets[i](changed) end
end

-- Everything that changed goes back here, once.
local function save()
  local fresh = {}
  for name, L in pairs(lines) do
    if L.dirty then
      call('SET', P .. 'L:' .. name, pack(LINE, L.n, L.leased, L.seg, L.A, L.at, L.V, L.cv, L.idle, L.busy_at, L.pass_at,
        L.mu, L.mu_at, L.acc, L.pk, L.pk_at, L.pend, L.pend_at, L.s_at, L.r, L.r_at, L.r_acc, L.vs, L.v_at, L.v0, L.late))
      if L.fresh then fresh[#fresh + 1] = name end
    end
  end
  if #fresh > 0 then call('SADD', P .. 'lines', unpack(fresh)) end
  for name, p in pairs(providers) do
    if p.dirty then
      call('SET', P .. 'P:' .. name,
        pack(PROVIDER, p.RV, p.down_at, p.seen_at, p.pass_at, p.r, p.r_at, p.r_acc, p.owed_at, p.rtt, p.stock, p.eta,
          p.ans_at))
    end
  end
  local args = {}
  for name, s in pairs(scopes) do
    if s and s.dirty then
      args[#args + 1], args[#args + 2] = name, pack_scope(s)
      if #args >= CHUNK then
        call('HSET', P .. 's', unpack(args))
        args = {}
      end
    end
  end
  if #args > 0 then call('HSET', P .. 's', unpack(args)) end
  for line_name, of_line in pairs(tenants) do
    local keep, gone = {}, {}
    for tenant, t in pairs(of_line) do
      if t.dirty then
        if t.m <= 0 and t.n <= 0 then
          gone[#gone + 1] = tenant
        else
          keep[#keep + 1], keep[#keep + 2] = tenant, pack('<ddd', t.m, t.w, t.n)
        end
        if #keep >= CHUNK then
          call('HSET', P .. 'T:' .. line_name, unpack(keep))
          keep = {}
        end
        if #gone >= CHUNK then
          call('HDEL', P .. 'T:' .. line_name, unpack(gone))
          gone = {}
        end
      end
    end
    if #keep > 0 then call('HSET', P .. 'T:' .. line_name, unpack(keep)) end
    if #gone > 0 then call('HDEL', P .. 'T:' .. line_name, unpack(gone)) end
  end
end
