-- Limits per recipient number: one bucket per (scope, token) in a key that ends by itself. A missing one reads as
-- full, except for what it would need to fill since the epoch began (a restart forgets them).
local NO_NUMBER = '\0\0\0\0\0\0\0\0'
local LONGEST = 255          -- segments of a message at most
local numbers
resets[#resets + 1] = function() numbers = {} end
local function number_record(f, ref)
  if not f.number then return nil end
  local s = scopes[f.number]
  local token = sub(ref, 35, 42)
  if not s or s.T <= 0 or token == NO_NUMBER then return nil end
  local key = P .. 'n:' .. f.number .. ':' .. token
  local r = numbers[key]
  if not r then
    local raw = call('GET', key)
    r = { s = s, key = key }
    if raw then
      r.tat, r.last_at, r.hold_at = unpack_record('<ddd', raw)
      r.tat = min(r.tat, now + (s.burst + LONGEST) * s.Te) -- more was owed under another rate
    else
      r.tat, r.last_at, r.hold_at = started + s.burst * s.Te, 0, 0
    end
    numbers[key] = r
  end
  return r
end
-- nil when the number has room, else when it will have: a waiting line, so that held messages do not meet again.
local function number_held(r, segments, held_before)
  local s = r.s
  local missing = min(segments, s.burst) - (s.burst - max(0, r.tat - now) / s.Te)
  if missing <= EPS then return nil end
  local ready = now + missing * s.Te
  if held_before then return ready end
  return max(ready, r.hold_at > now and r.hold_at + segments * s.Te or ready)
end
local function charge_number(r, segments)
  r.tat, r.last_at, r.dirty = max(r.tat, now) + segments * r.s.Te, now, true
end
local function save_numbers()
  for key, r in pairs(numbers) do
    if r.dirty then
      call('SET', key, pack('<ddd', r.tat, r.last_at, r.hold_at), 'PX', ceil(max(r.tat, r.hold_at, now) - now + 60000))
    end
  end
end
