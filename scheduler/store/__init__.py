"""The asyncio shell of the scheduler: packs arguments, runs the scripts, unpacks replies."""
