"""The asyncio shell around the session: one Connection is one SMPP link, from either side."""

from smpp.link.connection import Connection
from smpp.link.endpoints import connect, serve
from smpp.link.settings import BindRefused, LinkHandler, LinkLost, LinkSettings

__all__ = ["BindRefused", "Connection", "LinkHandler", "LinkLost", "LinkSettings", "connect", "serve"]
