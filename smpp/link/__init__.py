"""The asyncio shell around the session: one Connection is one SMPP link, from either side."""
