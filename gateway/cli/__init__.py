"""The command line `sluicegate` (contract section 1).

Each verb imports what it needs when it runs, so that --help is quick.
"""
