-- What a session's carrier answered, and what follows from it. ARGV: now, provider, session, good, errors, throttled,
-- round trip ms, rate per s, waiting, unanswered ms, then tokens of numbers whose queue was full.
-- Returns {share of the session's rate in ppm, breaker 0 closed 1 open 2 half open, next probe ms, rate per s * 1000}.
local SLOTS = 10             -- parts of the breaker's time; what is older than all of them is forgotten
local QUEUES_FULL = 3        -- numbers with a full queue within QUEUES_MS: the carrier's, not the handset's
local QUEUES_MS = 10000
local ROUND_TRIP_MIN = 50
local THROTTLED = 0.7
if state == 'lost' then return { '!lost' } end
local name, session = ARGV[2], ARGV[3]
local good, errors, throttled = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local round_trip, rate = tonumber(ARGV[7]), tonumber(ARGV[8])
local waiting, unanswered = tonumber(ARGV[9]), tonumber(ARGV[10])
local rules, p = breaker_of(name), provider(name)
local s, whole = scope_named('session:' .. session), scope_named('provider:' .. name)

-- Health counts: slot of the newest part, then per part good and bad answers, and the measured rate.
local HEALTH = '<dd' .. string.rep('d', 2 * SLOTS)
local function counted(scope)
  local width = rules.within / SLOTS
  local slot = floor(now / width)
  local raw = call('HGET', P .. 'H', scope.name)
  local h = raw and { unpack_record(HEALTH, raw) } or {}
  for i = #h + 1, 2 + 2 * SLOTS do h[i] = 0 end
  h[3 + 2 * SLOTS] = nil
  for i = max(h[1] + 1, slot - SLOTS + 1), slot do
    local at = 3 + 2 * (i % SLOTS)
    h[at], h[at + 1] = 0, 0
  end
  h[1] = slot
  local at = 3 + 2 * (slot % SLOTS)
  h[at], h[at + 1] = h[at] + good, h[at + 1] + errors
  if rate > 0 then h[2] = rate end
  local bad, all = 0, 0
  for i = 3, 2 + 2 * SLOTS, 2 do bad, all = bad + h[i + 1], all + h[i] + h[i + 1] end
  return h, bad, all
end
-- What a scope did before it broke; a provider did what its sessions did together.
local function usual_rate(scope, own)
  local sum = 0
  if scope == whole then
    for _, one in ipairs(fleet(name)) do
      local raw = call('HGET', P .. 'H', 'session:' .. one.name)
      if raw then sum = sum + select(2, unpack_record('<dd', raw)) end
    end
  end
  return max(own, sum)
end
local function judged(scope)
  local h, bad, all = counted(scope)
  if scope.probe > 0 then
    local probed = scope.probe > scope.since + rules.after + 1 -- at least one message was let through
    if good > 0 and errors == 0 and probed then
      scope.probe = 0
      reopened(scope, now)
      ramped(scope, rules.start, rules.every, usual_rate(scope, h[2]))
      wake(name)
    elseif errors > 0 and probed then
      scope.probe = now + rules.after
    end
    for i = 3, 2 + 2 * SLOTS do h[i] = 0 end
  elseif all >= rules.of and bad >= rules.errors * all and bad > 0 then
    scope.probe, scope.since = now + rules.after, now
    for i = 3, 2 + 2 * SLOTS do h[i] = 0 end
  end
  scope.dirty = true
  call('HSET', P .. 'H', scope.name, pack(HEALTH, unpack(h)))
end
if good + errors > 0 or rate > 0 then
  judged(s)
  judged(whole)
end

if round_trip > 0 then p.rtt = p.rtt > 0 and 0.8 * p.rtt + 0.2 * round_trip or round_trip end
if good + throttled > 0 or #ARGV > 10 then p.ans_at = now end
if unanswered > 0 and p.owed_at <= p.ans_at and now - unanswered > p.ans_at then p.owed_at = now - unanswered end
p.stock, p.dirty = waiting, true

local full = 0
if #ARGV > 10 then
  local key, args = P .. 'full:' .. session, {}
  for i = 11, min(#ARGV, 110) do args[#args + 1], args[#args + 2] = now, ARGV[i] end
  call('ZADD', key, unpack(args))
  call('ZREMRANGEBYSCORE', key, '-inf', '(' .. string.format('%.17g', now - QUEUES_MS))
  call('PEXPIRE', key, QUEUES_MS)
  full = call('ZCARD', key)
end
if throttled > 0 or full >= QUEUES_FULL then slowed(s, THROTTLED, max(ROUND_TRIP_MIN, round_trip), rate > 0 and rate or p.r) end
s.dirty = true
settle(s)
save()
local own = s.T > 0 and s.T or s.base
local probe = max(s.probe, whole.probe)
local open = probe > 0 and (probe > now and (probe > max(s.since, whole.since) + rules.after + 1 and 2 or 1) or 2) or 0
return { floor((own > 0 and s.Te > 0 and min(1, own / s.Te) or 1) * 1000000), open, ceil(probe),
  s.Te > 0 and floor(1000000 / s.Te) or 0 }
