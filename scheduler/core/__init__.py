"""Pure records and arithmetic of the scheduler."""
