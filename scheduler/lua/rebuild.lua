-- The epoch and its rebuild. ARGV: now, verb, arguments. The key `epoch` is "<state> <id> <started> <run_id> <layout>"; while it
-- says loading, only opened classes are served; one rebuilder at a time holds `rebuilder`.
local verb = ARGV[2]
local function mine() return state == 'loading' and epoch_id == ARGV[3] end
-- A server whose clock was put back keeps nothing of use: each limit would owe, and each parked flow wait, for as long as
-- the step. A smaller one is over sooner than a rebuild.
local PUT_BACK_MS = 5000

if verb == 'state' then -- run id: a server that restarted with old data is lost too
  local seen = tonumber(call('GET', P .. 'seen') or nil) or now
  if state ~= 'lost' and (now < seen - PUT_BACK_MS or string.match(epoch, '(%S+) %S+$') ~= ARGV[3]) then
    call('DEL', P .. 'epoch', P .. 'rebuilder')
    state = 'lost'
  end
  call('SET', P .. 'seen', string.format('%.3f', state == 'lost' and now or max(now, seen)))
  if state == 'lost' then return 'lost' end
  if state == 'loading' and call('EXISTS', P .. 'rebuilder') == 0 then return 'lost' end
  return state
elseif verb == 'begin' then -- token, run id
  if not call('SET', P .. 'rebuilder', ARGV[3], 'NX', 'PX', 15000) then return 0 end
  local foreign = not epoch or string.match(epoch, '(%S+)$') ~= LAYOUT
  call('SET', P .. 'epoch',
    'loading ' .. ARGV[3] .. ' ' .. string.format('%.3f', now) .. ' ' .. ARGV[4] .. ' ' .. LAYOUT)
  call('DEL', P .. 'open', P .. 'leases')
  if foreign then -- records of another layout, or of nobody knows when: nothing of them can be read
    call('DEL', P .. 's', P .. 'H', P .. 'tuning')
    return 2
  end
  started = now
  local known = call('HKEYS', P .. 's')
  for i = 1, #known do -- limits and pauses stand; what was counted goes, and every bucket reads as empty
    load_scopes({ known[i] })
    local s = scopes[known[i]]
    s.c, s.rk, s.owner, s.wait_at, s.pend_at = {}, 0, '', 0, 0
    written_off(s, now)
    s.tat, s.dirty = max(s.tat - clock, s.burst * s.Te), true -- the clock begins anew
  end
  save()
  return 1
elseif verb == 'open' then -- token, class
  if not mine() then return { '!epoch' } end
  call('PEXPIRE', P .. 'rebuilder', 15000)
  call('SADD', P .. 'open', ARGV[4])
  return 1
elseif verb == 'finish' then -- token
  if not mine() then return { '!epoch' } end
  call('SET', P .. 'epoch', (string.gsub(epoch, '^loading', 'ready')))
  call('DEL', P .. 'rebuilder', P .. 'open')
  return 1
elseif verb == 'drop' then -- provider, class: one bounded step of emptying a line; returns 1 while something is left
  if state == 'lost' then return { '!lost' } end
  local line_name = ARGV[3] .. '|' .. ARGV[4]
  local act, park, held = P .. 'act:' .. line_name, P .. 'park:' .. ARGV[3], P .. 'held:' .. ARGV[3]
  local room = 2000
  local function drain_flow(f)
    local q = P .. 'q:' .. f.key
    local refs = call('LRANGE', q, 0, room - 1)
    local segments = 0
    for i = 1, #refs do segments = segments + byte(refs[i], 21) end
    room = room - #refs - 1
    account(f, -#refs, -segments)
    call('LTRIM', q, #refs, -1)
    if call('LLEN', q) > 0 then return false end
    count_active(f, -1)
    return true
  end
  local more = 0
  for _, key in ipairs(call('ZRANGE', act, 0, 500)) do
    if room <= 0 then more = 1 break end
    if drain_flow(parse(key)) then call('ZREM', act, key) else more = 1 end
  end
  local cursor = '0'
  repeat
    local page = call('ZSCAN', park, cursor, 'COUNT', 500)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local f = parse(sub(page[2][i], 9))
      if f.line == line_name then
        if room <= 0 then more = 1 break end
        if drain_flow(f) then call('ZREM', park, page[2][i]) else more = 1 end
      end
    end
  until cursor == '0' or room <= 0
  cursor = '0'
  repeat
    local page = call('ZSCAN', held, cursor, 'COUNT', 500)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local size, from = unpack_record('>I2', page[2][i])
      local f = parse(sub(page[2][i], from, from + size - 1))
      if f.line == line_name then
        if room <= 0 then more = 1 break end
        room = room - 1
        account(f, -1, -byte(page[2][i], from + size + 20))
        call('ZREM', held, page[2][i])
      end
    end
  until cursor == '0' or room <= 0
  if room <= 0 then more = 1 end
  save()
  return more
end
