"""Delivery receipts in the forms that carriers send them."""

from smpp.receipts.identifiers import normal_id, receipt_key
from smpp.receipts.reader import Receipt, read

__all__ = ["Receipt", "normal_id", "read", "receipt_key"]
