"""Who goes next and how long it would take, as a library on Redis or Valkey.

It knows flows, weights, limits and references; never texts, SMPP or SQL (design section 1).
`scheduler.core` is pure, `scheduler.store` is the asyncio shell over the Lua scripts of `scheduler/lua`.
"""
