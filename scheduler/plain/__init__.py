"""The scheduler's policy in plain Python data: what the scripts of `scheduler/lua` are held against, and a simulator's engine.

Pure: an instant comes with each call, nothing waits, nothing is random. `scheduler.model.Model` has the verbs.
"""
