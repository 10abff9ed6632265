"""One machine, all roles: what `sluicegate up` starts, watches and stops."""
