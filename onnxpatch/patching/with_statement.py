"""Tells a call in the head of a `with` statement from any other, by the caller's bytecode."""

from __future__ import annotations

import dis
import itertools
from types import FrameType

_ENTERED = ("SETUP_WITH", "BEFORE_WITH")  # Python 3.10; 3.11 to 3.13


def asked_by_with(caller: FrameType | None) -> bool:
    """Whether the call that `caller` makes is entered at once: `with f():`. False where the bytecode is not known."""
    if caller is None:
        return False
    later = (one.opname for one in dis.get_instructions(caller.f_code) if one.offset > caller.f_lasti)
    following = list(itertools.islice(later, 2))
    return following[:1] in ([name] for name in _ENTERED) or following == ["COPY", "LOAD_SPECIAL"]  # 3.14
