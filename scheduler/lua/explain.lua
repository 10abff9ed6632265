-- Why one reference waits. ARGV: now, flow key, reference (42 octets). Returns {kind and name of the scope, tokens that
-- are missing (text, '' none), position (0: not queued), predicted start in ms from now (-1: nobody knows)}.
-- Looks at some tens of references at most, whatever waits: the list is in the order of queue times but for a few that
-- kept their place at its head.
local NEAR = 64              -- references looked at around a found instant, and at the head
if state == 'lost' then return { '!lost' } end
if not tuning_raw then return { '!untuned' } end
local f, ref = parse(ARGV[2]), ARGV[3]
if not f.ci then return { '!class' } end
local q, id = P .. 'q:' .. f.key, sub(ref, 1, 16)
local segments, queued_at = byte(ref, 21), head_at(ref)
local L, p = line(f.line), provider(f.provider)

local function among(from, to) -- the 0-based place of the message among these references, or nil
  local refs = call('LRANGE', q, max(0, from), max(0, to))
  for i = 1, #refs do
    if sub(refs[i], 1, 16) == id then return max(0, from) + i - 1 end
  end
end
local function place()
  local count = call('LLEN', q)
  if count == 0 then return nil end
  local found = among(0, NEAR - 1)
  if found or count <= NEAR then return found end
  local low, high = 0, count -- the first whose queue time is not before this one's
  while low < high do
    local middle = floor((low + high) / 2)
    if head_at(call('LINDEX', q, middle)) < queued_at then low = middle + 1 else high = middle end
  end
  for at = low, min(count, low + 8 * NEAR), NEAR do -- messages of one batch share their queue time
    found = among(at, at + NEAR - 1)
    if found then return found end
    local last = call('LINDEX', q, min(count - 1, at + NEAR - 1))
    if not last or head_at(last) > queued_at then break end
  end
  return among(low - NEAR, low - 1)
end

local held = call('ZSCORE', P .. 'held:' .. f.provider, pack('>I2', #f.key) .. f.key .. ref)
local position = not held and place()
local ask = { segments = segments, budget = tuning.classes[f.ci].budget, limit = FOREVER, number = NO_NUMBER,
  ahead = position or 0 }
if not is_open(f.class) then return { 'paused:index', '', 0, -1 } end
local v = judge(f, ask)

if held then -- its number holds it, alone
  load_scopes({ f.number })
  local r = number_record(f, ref)
  local missing = r and max(0, min(segments, r.s.burst) - (r.s.burst - max(0, r.tat - now) / r.s.Te)) or 0
  return { f.number, string.format('%.3f', missing), 0, floor(max(0, tonumber(held) - now)) }
end
for _, s in ipairs(buckets(f)) do
  if s.pause > now then
    return { 'paused:' .. s.name, '', position and position + 1 or 0, s.pause >= FOREVER and -1 or floor(s.pause - now + v.wait) }
  end
end
local start = v.hard and -1 or floor(v.wait)
local away, scope = outage(f.provider)
local sessions = fleet(f.provider)
local unbound = sessions.up == 0 and (#sessions > 0 or p.down_at > 0)
if away > 0 or unbound then -- at once: a person asks
  if unbound and (away == 0 or p.seen_at == 0) then start = -1 end -- nothing says when one will be bound
  local s = scopes[scope]
  local kind = s and s.pause > now and 'paused:' or 'session_down:'
  return { kind .. scope, '', position and position + 1 or 0, start }
end
-- The scope that lacks most now; the own sessions' limits count where no session has room.
local binding, missing, worst = nil, 0, -1
local function look(s)
  local k = min(segments, s.burst)
  local free = tokens(s) - kept(s, f)
  if k - free > EPS and (k - free) * s.Te > worst then binding, missing, worst = s, k - free, (k - free) * s.Te end
end
for _, s in ipairs(buckets(f)) do
  if s.Te > 0 then look(s) end
end
if not binding then
  local least
  for i = 1, #sessions do
    local s = sessions[i].s
    if sessions[i].up then
      if not (s and s.Te > 0 and s.burst - tokens(s) > 0 and tokens(s) + EPS < min(segments, s.burst)) then
        least = nil
        break
      elseif not least or tokens(s) > tokens(least) then
        least = s
      end
    end
  end
  if least then look(least) end
end
if binding then
  return { binding.name, string.format('%.3f', missing), position and position + 1 or 0, start }
end
-- Nothing is missing: others go first, or the window of the sessions is full.
local first = call('ZRANGE', P .. 'act:' .. f.line, 0, 0)[1]
if first == f.key and (position or 0) < tuning.classes[f.ci].quantum and now - max(L.pass_at, p.pass_at) > 100 then
  return { 'window:' .. (sessions.up == 1 and #sessions == 1 and sessions[1].name or f.provider), '',
    position and position + 1 or 0, start }
end
return { 'fairness:' .. f.class, '', position and position + 1 or 0, start }
