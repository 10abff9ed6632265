"""Who is turned away first when a process has more requests at work than it can answer soon (contract section 2).

Pure. The class is what the body names: it is looked for as text, since a crowd is no time to parse. Who names a class
that is not theirs gains a look by the door, which refuses them.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

# Up to which share of the places a class is still let in; a send that names none counts as transactional.
SHARES: Final = MappingProxyType({"non_priority": 0.5, "marketing": 0.7, "transactional": 0.9, "otp": 1.0})
OTHERS_SHARE: Final = 0.7  # batches, lists, reports: their clients have time
FREE_SHARE: Final = 0.5
_CLASS: Final = re.compile(rb'"class"\s{0,8}:\s{0,8}"(otp|transactional|marketing|non_priority)"')


def class_named(method: str, path: str, body: bytes) -> str | None:
    """The class of a single send, None for every other request."""
    if method != "POST" or path != "/v1/messages":
        return None
    found = _CLASS.search(body)
    return "transactional" if found is None else found[1].decode("ascii")


def share(class_name: str | None) -> float:
    """Share of the places, 0 to 1, up to which a request is let in."""
    return OTHERS_SHARE if class_name is None else SHARES[class_name]
