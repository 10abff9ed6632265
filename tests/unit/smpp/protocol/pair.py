"""Two sessions joined by a wire that is only a list: each side checks the other, the clock is a number."""

from __future__ import annotations

from smpp.protocol.codec import decode
from smpp.protocol.events import Event, Requested
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import Bind, BindReceiver, BindTransceiver, BindTransmitter, Pdu
from smpp.protocol.session import Session
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import Side
from smpp.protocol.timers import TimerSettings

TIMERS = TimerSettings(
    session_init_s=10, enquire_link_s=15, response_s=10, inactivity_s=60, pdu_read_s=10, unbind_grace_s=2
)
BINDS: dict[str, type[Bind]] = {
    "transceiver": BindTransceiver,
    "transmitter": BindTransmitter,
    "receiver": BindReceiver,
}


def pdus_of(octets: bytes) -> list[Pdu]:
    """What a peer would read."""
    return [decode(one) for one in Framer().feed(octets)]


class Pair:
    """An ESME and an MC; `flow` carries the octets of both until nobody has anything to say."""

    def __init__(self, window: int = 10, peer_requests_max: int = 5_000) -> None:
        self.now_mono = 1_000.0
        settings = SessionSettings(window=window, peer_requests_max=peer_requests_max, timers=TIMERS)
        self.esme = Session(Side.ESME, settings, self.now_mono)
        self.mc = Session(Side.MC, settings, self.now_mono)
        self.esme_events: list[Event] = []
        self.mc_events: list[Event] = []

    def flow(self) -> None:
        while self.esme.queued_octets or self.mc.queued_octets:
            self.mc_events += self.mc.receive(self.esme.take(self.now_mono), self.now_mono)
            self.esme_events += self.esme.receive(self.mc.take(self.now_mono), self.now_mono)

    def bind(self, kind: str = "transceiver") -> None:
        """A bind that succeeds; its events are cleared."""
        self.esme.bind(BINDS[kind](system_id="acme", password="pw"), "bind")
        self.flow()
        request = self.requests(self.mc_events)[0]
        self.mc.answer(request)
        self.flow()
        self.esme_events.clear()
        self.mc_events.clear()

    def wait(self, seconds: float) -> None:
        """Moves the clock and lets both sides' timers act, without carrying what they write."""
        self.now_mono += seconds
        self.esme_events += self.esme.tick(self.now_mono)
        self.mc_events += self.mc.tick(self.now_mono)

    @staticmethod
    def requests(events: list[Event]) -> list[Pdu]:
        return [event.pdu for event in events if isinstance(event, Requested)]
