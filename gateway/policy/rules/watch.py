"""When a policy file that changed on disk is worth reading: not while it is being written, and once per change."""

from __future__ import annotations

from typing import Final, NamedTuple

SETTLE_S: Final = 0.2
# Without the line end of its last line a file is most likely half written: a slow copy may pause for longer.
UNFINISHED_S: Final = 2.0


class Sight(NamedTuple):
    """What a look at the file shows. Rights that change show in `changed_at`, a new file in `inode`."""

    changed_at: int
    written_at: int
    size: int
    device: int
    inode: int


class Watch:
    """What was seen of a file and what was done about it; times are seconds of a monotonic clock."""

    def __init__(self, sight: Sight | None, digest: bytes | None) -> None:
        self._done = sight
        self._digest = digest
        self._pending: Sight | None = None
        self._since_s: float | None = None
        self._told: tuple[Sight | None, str] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a change has been seen and not been dealt with."""
        return self._since_s is not None

    def is_due(self, sight: Sight | None, is_whole: bool, now_s: float) -> bool:
        """Whether the file is to be read now; `is_whole` where it ends with a line end. A file that is gone is None."""
        if sight == self._done:
            self._since_s = None
            return False
        if self._since_s is None or sight != self._pending:
            self._pending, self._since_s = sight, now_s
            return False
        return now_s - self._since_s >= (SETTLE_S if is_whole else UNFINISHED_S)

    def is_news(self, digest: bytes) -> bool:
        """Whether what was read is other than what was entered before; if not, the change is dealt with."""
        if digest != self._digest:
            return True
        self._settle()
        return False

    def entered(self, digest: bytes) -> None:
        """The content is in force."""
        self._digest = digest
        self._settle()

    def refused(self) -> None:
        """The content was judged and refused. The same again is judged again when the file is touched."""
        self._digest = None
        self._settle()

    def is_untold(self, why: str) -> bool:
        """Of a file that cannot be read, and is looked at again: whether this is still to be said."""
        news = (self._pending, why)
        was, self._told = self._told, news
        self._since_s = None
        return was != news

    def _settle(self) -> None:
        self._done, self._since_s, self._told = self._pending, None, None
