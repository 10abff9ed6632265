"""SMPP 3.4 as a library: protocol, links, text, receipts and a carrier simulator. Imports nothing of the other packages."""
