"""What broke a part: a kind of construct, its line, an operator; and how one is made from a line of source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.constructs import at_line, code_at, in_function
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.messages.user_code import is_user_file


@dataclass(frozen=True)
class Cause:
    """What broke it: a kind of construct, its line, an operator."""

    construct: str = kinds.UNKNOWN
    file: str = ""
    line: int = 0
    code: str = ""
    operator: str = ""

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


def at(places: Iterable[Place], otherwise: str, first: bool = False) -> Cause:
    """The first of the lines, with the kind of construct that stands there; first: the kind is known already."""
    for place in places:
        seen = None if first else at_line(place.file, place.line)
        kind = seen.kind if seen else otherwise
        return Cause(kind, place.file, place.line, code_at(place.file, place.line))
    return Cause(otherwise)


def scanned(unit: Unit, otherwise: str, sizes: bool | None = None) -> Cause:
    """Read off the source alone: the first suspicious construct of the unit's own method."""
    found = in_function(getattr(type(unit.module), unit.method, None))
    about = {kinds.BRANCH_SIZE, kinds.NUMBER_SIZE, kinds.LOOP_SIZE, kinds.LOOP_ROWS}
    if sizes is not None:
        found = sorted(found, key=lambda c: (c.kind in about) is not sizes)
    if not found or not is_user_file(found[0].file):
        return Cause(otherwise)
    return Cause(found[0].kind, found[0].file, found[0].line, found[0].code)


def own(places: Sequence[Place], unit: Unit) -> list[Place]:
    """The unit's own line of a traceback: the last of its frames; a helper's below it only where it has none."""
    mine = [i for i, place in enumerate(places) if place.module is unit.module]
    if mine:
        return [places[mine[-1]]]
    return list(places[-1:])
