-- One look at the index. ARGV: now, verb. 'counts': per line name, queued and leased. 'report': JSON of lines (depth,
-- leased, ages of heads, drain), tenants' queues, scopes, health of providers (session '') and sessions, and per class
-- how long the flow whose turn it is was not served; samples at most SAMPLE flows a line.
local SAMPLE = 200
local WALK = 10000           -- flows of a line looked at for what a pause without a limit holds
local verb = ARGV[2]
if state == 'lost' then return { '!lost' } end
local names = call('SMEMBERS', P .. 'lines')
if verb == 'counts' then
  local reply = {}
  for i = 1, #names do
    local L = line(names[i])
    reply[3 * i - 2], reply[3 * i - 1], reply[3 * i] = names[i], L.n, L.leased
  end
  return reply
end

local report = { lines = {}, tenants = {}, scopes = {}, links = {}, unserved = {} }
local carriers = {}
for _, name in ipairs(call('HKEYS', P .. 'breakers')) do carriers[name] = true end
for i = 1, #names do carriers[string.match(names[i], '^[^|]+')] = true end
local function holding(s) -- ms since its limit lets nothing through
  return (s and s.Te > 0 and s.wait_at > 0 and tokens(s) + EPS < 1) and max(1, floor(now - s.wait_at)) or 0
end
local function spoken(s, up, down_at) -- state, share of its own rate, since when, ms to the next probe, holding
  if s and s.pause > now then return 'paused', 1, now - s.since, 0, 0 end
  if s and s.probe > 0 then
    return s.probe > now and 'open' or 'half_open', 1, now - s.since, max(0, s.probe - now), 0
  end
  if not up then return 'down', 1, down_at > 0 and now - down_at or 0, 0, 0 end
  local whole = s and (s.T > 0 and s.T or s.base) or 0
  return 'up', (whole > 0 and s.Te > 0) and min(1, whole / s.Te) or 1, 0, 0, holding(s)
end
for name in pairs(carriers) do
  local p, sessions = provider(name), fleet(name)
  load_scopes({ 'provider:' .. name })
  report.links[#report.links + 1] = { name, '', spoken(scopes['provider:' .. name], sessions.up > 0, p.down_at) }
  for i = 1, #sessions do
    report.links[#report.links + 1] = { name, sessions[i].name, spoken(sessions[i].s, sessions[i].up, p.down_at) }
  end
end
local function head_age(key)
  local head = call('LINDEX', P .. 'q:' .. key, 0)
  return head and now - unpack_record('>I2', head, 29) * 4294967296 - unpack_record('>I4', head, 31)
end
for i = 1, #names do
  local L = line(names[i])
  local ages, provider_name = {}, string.match(names[i], '^[^|]+')
  for _, key in ipairs(call('ZRANGE', P .. 'act:' .. names[i], 0, SAMPLE - 1)) do
    ages[#ages + 1] = head_age(key) or nil
  end
  for _, member in ipairs(call('ZRANGE', P .. 'park:' .. provider_name, 0, SAMPLE - 1)) do
    local f = parse(sub(member, 9))
    if f.line == names[i] then ages[#ages + 1] = head_age(f.key) or nil end
  end
  table.sort(ages)
  local function quantile(q) return floor(max(0, ages[max(1, ceil(q * #ages))] or 0)) end
  report.lines[i] = { names[i], L.n, L.leased, quantile(1), quantile(0.5), quantile(0.95),
    call('ZCARD', P .. 'act:' .. names[i]), L.mu, L.busy_at > 0 and floor(now - max(L.pass_at, L.busy_at)) or 0 }
  -- Starvation: the flow with the smallest tag is the next one; while it stays the same flow with the same tag it was
  -- not served. Seen from look to look, so exact to the time between two reports.
  local first, watch = call('ZRANGE', P .. 'act:' .. names[i], 0, 0, 'WITHSCORES'), P .. 'first:' .. names[i]
  if #first == 2 and L.busy_at > 0 then
    local standing, since = first[2] .. ' ' .. first[1], max(L.busy_at, 0)
    local seen = call('GET', watch)
    local seen_at = seen and string.match(seen, '^(%S+) ')
    if seen and sub(seen, #seen_at + 2) == standing then
      since = max(since, tonumber(seen_at))
    else
      since = max(since, L.pass_at)
    end
    call('SET', watch, string.format('%.3f', since) .. ' ' .. standing, 'PX', 600000)
    report.unserved[#report.unserved + 1] = { string.match(names[i], '[^|]+$'), floor(now - since) }
  end
  local cursor, pages = '0', 0
  repeat
    local page = call('HSCAN', P .. 'T:' .. names[i], cursor, 'COUNT', 500)
    cursor, pages = page[1], pages + 1
    for j = 1, #page[2], 2 do
      local _, _, n = unpack_record('<ddd', page[2][j + 1])
      if n > 0 then report.tenants[#report.tenants + 1] = { page[2][j], n } end
    end
  until cursor == '0' or pages >= 40
end
-- What a paused scope without a limit holds is in no tally (it waited before it was paused): the flows are looked at.
local behind
local function behind_pause(name, ci)
  if not behind then
    behind = {}
    local function add(key)
      local f = parse(key)
      local L, count = line(f.line), call('LLEN', P .. 'q:' .. key)
      for _, scope_name in ipairs(f.names) do
        local of = behind[scope_name] or {}
        behind[scope_name] = of
        of[f.ci] = (of[f.ci] or 0) + count * (L.n > 0 and L.seg / L.n or 1)
      end
    end
    for i = 1, #names do
      for _, key in ipairs(call('ZRANGE', P .. 'act:' .. names[i], 0, WALK - 1)) do add(key) end
    end
    for carrier in pairs(carriers) do
      for _, member in ipairs(call('ZRANGE', P .. 'park:' .. carrier, 0, WALK - 1)) do add(sub(member, 9)) end
    end
  end
  return floor((behind[name] and behind[name][ci] or 0) + 0.5)
end
local cursor, pages = '0', 0
repeat
  local page = call('HSCAN', P .. 's', cursor, 'COUNT', 500)
  cursor, pages = page[1], pages + 1
  for j = 1, #page[2], 2 do
    local s = read_scope(page[2][j], page[2][j + 1])
    local waiting, by_class = 0, {}
    for ci, c in ipairs(tuning.classes) do
      local B = (s.pause > now and s.Te <= 0) and behind_pause(s.name, ci) or tallied(s, ci, 1)
      waiting = waiting + B
      if B > 0 then by_class[#by_class + 1] = { c.name, B } end
    end
    if waiting > 0 or s.pause > now then
      report.scopes[#report.scopes + 1] = { s.name, waiting, s.Te > 0 and tokens(s) or 0,
        s.wait_at > 0 and max(1, floor(now - s.wait_at)) or 0, s.pause > now, by_class, -- 0: it holds nothing
        s.pause > now and floor(now - s.since) or 0 }
    end
  end
until cursor == '0' or pages >= 40
return cjson.encode(report)
