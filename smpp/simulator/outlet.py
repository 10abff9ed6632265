"""What waits for one ESME account: receipts and messages from handsets, sent over whatever receiver is bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from smpp.link.connection import Connection
from smpp.protocol.errors import PduInvalid
from smpp.protocol.pdu import DataSm, DeliverSm
from smpp.simulator.receipts import Receipt


@dataclass(slots=True)
class Inbound:
    """A message from a handset on its way to an ESME."""

    system_id: str
    pdu: DeliverSm
    tries: int = 0


Item = Receipt | Inbound


class Outlet:
    """One system_id's line. `write` turns an item into the PDU for this connection and records it."""

    def __init__(self, held_max: int, write: Callable[[Item, Connection], DeliverSm | DataSm]) -> None:
        self._held_max = held_max
        self._write = write
        self._waiting: deque[Item] = deque()
        self._receivers: deque[Connection] = deque()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing waits and nobody is bound to receive."""
        return not self._waiting and not self._receivers

    @property
    def has_receiver(self) -> bool:
        return bool(self._receivers)

    def add_receiver(self, connection: Connection) -> None:
        self._receivers.append(connection)
        self.pump()

    def remove_receiver(self, connection: Connection) -> None:
        if connection in self._receivers:
            self._receivers.remove(connection)

    def put(self, item: Item, *, front: bool = False) -> None:
        """Queues an item and sends what can be sent; beyond the bound it is dropped and counted."""
        if len(self._waiting) >= self._held_max:
            self.dropped += 1
        elif front:
            self._waiting.appendleft(item)
        else:
            self._waiting.append(item)
        self.pump()

    def pump(self) -> None:
        """Sends while some receiver has room, one after the other in turn."""
        idle = 0
        while self._waiting and idle < len(self._receivers):
            connection = self._receivers[0]
            self._receivers.rotate(-1)
            if not (connection.can_send and connection.window_free > 0 and connection.writable):
                idle += 1
                continue
            idle = 0
            item = self._waiting.popleft()
            try:
                connection.submit(self._write(item, connection), item)
            except PduInvalid:
                self.dropped += 1  # an address that deliver_sm cannot carry, for example
