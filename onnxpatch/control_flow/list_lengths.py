"""Finds out how long a Python list is that the user's code indexes with a number from data.

`self.scales[int(k)]` becomes one path for each entry of the list, but the list itself is never seen: Python only asks
the number for its index. So the forward runs with 0, 1, 2, ... until the list raises IndexError. These runs are
*probes*: they find the length and are thrown away.

    scales = [1.0, 2.0]     probe 0: no error, probe 1: no error, probe 2: IndexError  -> the length is 2
    x * scales[int(k)]      then two paths: k == 0 (or -2), and the rest
"""

from __future__ import annotations

from collections.abc import Callable

from onnxpatch.control_flow.pytrees import Name
from onnxpatch.control_flow.recording import Recording
from onnxpatch.decisions.ask import Site, here

_Place = tuple[int, Site]  # (id of the module, the line that indexes)


class ListLengths:
    """The lengths of the lists that one export indexes with numbers from data."""

    def __init__(self, capture: Recording) -> None:
        self._capture = capture
        self._lengths: dict[_Place, int] = {}
        self._next_index: dict[_Place, int] = {}
        self._probe: tuple[_Place, int] | None = None

    @property
    def probing(self) -> bool:
        """Whether the forward runs only to find a length."""
        return self._probe is not None

    def choose(self, key: Name, is_any: Callable[[list[int]], bool]) -> int:
        """The index that a number from data has on this path.

        key: the same for equal numbers, so that one number is decided once on a path. is_any: asks for the decision
        whether the number is one of several.
        """
        explorer = self._capture.explorers[-1]
        if key in explorer.chosen:
            return explorer.chosen[key]
        # The list itself is never seen, so that the module and the line stand for it.
        place = id(explorer.module), here()
        if place not in self._lengths:
            self._probe = place, self._next_index.get(place, 0)
            return self._probe[1]
        explorer.chosen[key] = choose_entry(self._lengths[place], is_any)
        return explorer.chosen[key]

    def settle_probe(self, error: Exception | None) -> bool:
        """After a run of the forward: whether it was a probe, so that the forward must run again."""
        if self._probe is None:
            return False
        (place, index), self._probe = self._probe, None
        if isinstance(error, IndexError):
            self._lengths[place] = index
        # Every entry becomes a path of its own.
        elif index >= self._capture.max_paths:
            raise self._capture.refusal(
                place[1],
                f"a list indexed with a number from data has more than {self._capture.max_paths} entries",
                remedy="keep its entries in one tensor and index that, or raise max_paths=",
            )
        else:
            self._next_index[place] = index + 1
        return True


def choose_entry(length: int, is_any: Callable[[list[int]], bool]) -> int:
    """The index that a number has on this path, in a list of `length` entries: a chain of decisions.

    Python reaches entry `i` by `i` and, counted from the end, by `i - length`. The last entry needs no decision.
    """
    for index in range(length - 1):
        if is_any([index, index - length]):
            return index
    # Of an empty list the entry 0 is asked for, so that Python raises its own IndexError.
    return max(0, length - 1)
