-- Takes a policy version. ARGV: now, JSON {version, retry_share, default_weight, classes, weights, limits,
-- providers}, forced (0/1).
-- Returns 0 where this version or a newer one is in force and nothing is forced; else 1, or 2 where a limit per number was
-- loosened. Token fill is kept: what was spent stays spent under the new rate. What waits for a limit waits until an
-- instant that the old rate gave: the caller has it looked at again (`unpark`, `unhold` of steer.lua).
local wanted = cjson.decode(ARGV[2])
if tuning_raw and tuning.version >= wanted.version and ARGV[3] ~= '1' then return 0 end

-- Class indexes are places in packed records: once given they stay.
local classes, at = {}, {}
for i, c in ipairs(tuning.classes) do
  classes[i] = c
  at[c.name] = i
end
for _, c in ipairs(wanted.classes) do
  local i = at[c.name] or #classes + 1
  classes[i], at[c.name] = c, i
end

call('DEL', P .. 'weight')
local args = {}
for i = 1, #wanted.weights, 2 do
  args[#args + 1], args[#args + 2] = wanted.weights[i], wanted.weights[i + 1]
  if #args >= CHUNK or i + 1 >= #wanted.weights then
    call('HSET', P .. 'weight', unpack(args))
    args = {}
  end
end

local taken = 1
local function limit(name, rate, burst)
  local s, T = scopes[name], 1000 / rate
  if s and s.T > 0 and (T < s.T or burst > s.burst) and sub(name, 1, 7) == 'number:' then taken = 2 end
  if not s then
    s = new_scope(name)
    s.tat = burst * T -- unknown reads as empty at the start of the epoch
    scopes[name] = s
  elseif s.Te <= 0 then
    s.tat = max(s.tat, burst * T)
    written_off(s, now)
  else -- tokens left = burst - debt; they are kept, but never above the new burst
    local owed = max(0, s.tat - clock) / s.Te
    local left = min(burst, s.burst - owed)
    met(s, max(0, owed + min(0, burst - s.burst))) -- the smaller burst is full sooner
    s.T, s.base = T, 0
    s.tat = clock + (burst - left) * effective(s)
  end
  s.T, s.burst, s.base, s.dirty = T, burst, 0, true
  s.Te = effective(s)
end
local names, limited = {}, {}
for i, l in ipairs(wanted.limits) do names[i], limited[l[1]] = l[1], l end
local default = limited[TENANT_DEFAULT]
scopes[TENANT_DEFAULT] = false -- while limits change nobody gets the old default
for i = 1, #names, CHUNK do load_scopes({ unpack(names, i, min(i + CHUNK - 1, #names)) }) end
for _, l in ipairs(wanted.limits) do limit(l[1], l[2], l[3]) end
-- A limit that the policy no longer has lets everything through; a pause on it stands.
local known = call('HKEYS', P .. 's')
for i = 1, #known do
  local kind = string.match(known[i], '^(%l+):')
  if known[i] == TENANT_DEFAULT and not default then
    call('HDEL', P .. 's', known[i])
  elseif not limited[known[i]] and kind ~= 'retry' then
    load_scopes({ known[i] })
    local s = scopes[known[i]]
    if kind == 'number' then taken = 2 end
    if kind == 'tenant' and default then
      limit(known[i], default[2], default[3]) -- a tenant that the policy does not name
    elseif s and s.pause <= now and s.probe <= 0 and s.h <= 0 then
      scopes[known[i]] = nil
      call('HDEL', P .. 's', known[i])
    elseif s then
      s.T, s.dirty = 0, true
      s.Te = effective(s)
    end
  end
end
call('DEL', P .. 'breakers')
for i = 1, #wanted.providers do
  local b = wanted.providers[i]
  call('HSET', P .. 'breakers', b[1], pack('<dddddd', b[2], b[3], b[4], b[5], b[6], b[7]))
  local p = provider(b[1])
  if p.seen_at == 0 and p.down_at == 0 then p.down_at, p.dirty = now, true end -- down until a session is bound
end
local packed = { pack(TUNING, wanted.version, wanted.retry_share, wanted.default_weight) }
for _, c in ipairs(classes) do packed[#packed + 1] = pack(CLASS, c.name, c.weight, c.quantum, c.budget, c.door) end
call('SET', P .. 'tuning', table.concat(packed))
save()
return taken
