-- Leases: `lease:<id>` = head (charged_at, provider, session) and groups (flow key, spacing, references); `leases` by
-- the instant each one lapses.
local function each_group(blob, visit)
  local charged_at, np, ns, at = unpack_record('>dI2I2', blob)
  local provider_name, session = sub(blob, at, at + np - 1), sub(blob, at + np, at + np + ns - 1)
  at = at + np + ns
  while at <= #blob do
    local nk, count, spacing, from = unpack_record('>I2I2d', blob, at)
    local key = sub(blob, from, from + nk - 1)
    visit(key, sub(blob, from + nk, from + nk + count * REFERENCE - 1), count)
    at = from + nk + count * REFERENCE
  end
  return charged_at, provider_name, session
end
local function split_references(body)
  local refs = {}
  for at = 1, #body, REFERENCE do refs[#refs + 1] = sub(body, at, at + REFERENCE - 1) end
  return refs
end
-- Puts a lease's references back at the head of their flows; once, since the lease is gone in the same call.
local function undo_lease(id)
  local blob = call('GET', P .. 'lease:' .. id)
  call('ZREM', P .. 'leases', id)
  if not blob then return nil end
  call('DEL', P .. 'lease:' .. id)
  local keys, bodies = {}, {}
  local charged_at, provider_name, session = each_group(blob, function(key, body, count)
    keys[#keys + 1], bodies[#bodies + 1] = key, body
    local L = line(parse(key).line)
    L.leased, L.dirty = max(0, L.leased - count), true
  end)
  for i = #keys, 1, -1 do put(parse(keys[i]), split_references(bodies[i]), true) end
  return charged_at, provider_name, session, keys, bodies
end
