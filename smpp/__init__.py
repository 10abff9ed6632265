"""SMPP 3.4 as a library: protocol, links, text, receipts, a carrier simulator. It imports nothing else of ours."""
