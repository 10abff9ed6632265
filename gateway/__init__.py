"""Sluicegate, the product: the door, the ledger, the pump to the carriers, and what operators meet."""
