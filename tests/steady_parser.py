"""Keeps CPython's parser from being entered twice (CPython issue 106905, mended in 3.11.8 and 3.12.2).

Before those, a garbage collection inside `ast.parse` that runs a finalizer whose traceback is formatted, which parses
too, ends as "SystemError: AST constructor recursion depth mismatch". pytest parses at collection, for each failure and
for each warning out of a finalizer, so a whole run could die of it.
"""

from __future__ import annotations

import ast
import functools
import gc
import sys
import threading
from typing import Any

_alone = threading.RLock()


def steady_parser() -> None:
    """Makes `ast.parse` collect no garbage while it parses, on the versions that need it."""
    if sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12):
        return
    parse = ast.parse

    @functools.wraps(parse)
    def parse_alone(*args: Any, **kwargs: Any) -> Any:
        with _alone:
            collects = gc.isenabled()
            gc.disable()
            try:
                return parse(*args, **kwargs)
            finally:
                if collects:
                    gc.enable()

    ast.parse = parse_alone
