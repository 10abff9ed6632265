-- Ends a lease. ARGV: now, lease id, mode ('ack' | 'restore'), then pairs (flow key, references) whose tokens come
-- back because they never left. 'restore' puts the whole lease back at the head of its flows, tokens included.
-- Returns 1, or 0 when the lease had lapsed (the reaper has its references then, and nothing more is to be done).
local id = ARGV[2]
if state == 'lost' then return { '!lost' } end
local blob = call('GET', P .. 'lease:' .. id)
if not blob then return 0 end

-- A number is asked for too rarely to know its debts: its charge comes back where nothing was charged since.
local function refund(key, body, charged_at, session)
  local f, segments = parse(key), 0
  load_scopes({ session })
  for at = 1, #body, REFERENCE do
    local ref = sub(body, at, at + REFERENCE - 1)
    segments = segments + byte(ref, 21)
    buckets(f)
    local r = number_record(f, ref)
    if r and r.last_at <= charged_at then r.tat, r.dirty = max(charged_at, r.tat - byte(ref, 21) * r.s.Te), true end
  end
  local function back(s)
    if s and s.Te > 0 then take_back(s, segments, charged_at) end
  end
  local s = buckets(f)
  for i = 1, #s do back(s[i]) end
  back(scopes[session])
end

if ARGV[3] == 'restore' then
  local charged_at, _, session, keys, bodies = undo_lease(id)
  for i = 1, #keys do refund(keys[i], bodies[i], charged_at, 'session:' .. session) end
else
  local claimed = 0
  local charged_at, name, session = each_group(blob, function(key, _, count)
    claimed = claimed + count
    local L = line(string.match(key, '^[^|]+|[^|]+')) -- all that is wanted of the flow
    L.leased, L.dirty = max(0, L.leased - count), true
  end)
  for i = 4, #ARGV, 2 do
    refund(ARGV[i], ARGV[i + 1], charged_at, 'session:' .. session)
    claimed = claimed - #ARGV[i + 1] / REFERENCE
  end
  local p = provider(name)
  if claimed > 0 and (p.owed_at <= p.ans_at or now - p.owed_at > TRIAL_MS) then -- from now on an answer is owed
    p.owed_at, p.dirty = now, true
  end
  call('DEL', P .. 'lease:' .. id)
  call('ZREM', P .. 'leases', id)
end
save()
save_numbers()
return 1
