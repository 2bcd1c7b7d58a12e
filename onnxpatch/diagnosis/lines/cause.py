"""What broke a part: the kind of code, its line, an operator. Made from lines of a stack, or from the source alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.constructs import code_at, construct_at, in_function
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.messages.user_code import is_user_file


@dataclass(frozen=True)
class Cause:
    """What broke a part.

    construct: one of the kinds in `constructs.py`. code: the source line. operator: `aten::name` or `onnx::Name`.
    """

    construct: str = kinds.UNKNOWN
    file: str = ""
    line: int = 0
    code: str = ""
    operator: str = ""

    @property
    def source(self) -> str:
        """file:line; "" where no line is known."""
        return f"{self.file}:{self.line}" if self.file else ""


def cause_at(places: Iterable[Site], kind: str, known: bool = False) -> Cause:
    """The cause at the first of the lines; without a line where there is none.

    kind: used where the source there tells no other. known: the kind is certain, the source is not looked at.
    """
    for place in places:
        seen = None if known else construct_at(place.file, place.line)
        return Cause(seen.kind if seen else kind, place.file, place.line, code_at(place.file, place.line))
    return Cause(kind)


def cause_in_source(unit: Unit, kind: str, sizes: bool | None = None) -> Cause:
    """The most telling construct in the source of the unit's own method; a cause of `kind` without a line for none.

    sizes: True to prefer constructs about sizes, False to prefer the others.
    """
    found = in_function(getattr(type(unit.module), unit.method, None))
    about = {kinds.BRANCH_SIZE, kinds.NUMBER_SIZE, kinds.LOOP_SIZE, kinds.LOOP_ROWS}
    if sizes is not None:
        found = sorted(found, key=lambda c: (c.kind in about) is not sizes)
    # A method of torch's own has no line that the user could change.
    if not found or not is_user_file(found[0].file):
        return Cause(kind)
    return Cause(found[0].kind, found[0].file, found[0].line, found[0].code)


def own_line(places: Sequence[Site], unit: Unit) -> list[Site]:
    """The unit's own line of a traceback, outermost first: its innermost frame; the innermost of all if it has none."""
    own = [place for place in places if place.module is unit.module]
    return (own or list(places))[-1:]
