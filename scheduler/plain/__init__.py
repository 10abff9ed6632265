"""The scheduler's policy in plain Python data: what the scripts of `scheduler/lua` are held against.

Pure: an instant comes with each call, nothing waits, nothing is random. `scheduler.model.Model` has the verbs. Bounds
that keep a call of the scripts short (visits, flows in view, leases taken back) are part of the policy too.
"""
