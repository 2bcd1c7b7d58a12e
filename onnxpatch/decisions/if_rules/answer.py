"""The rules for an `if` on sizes, in the order in which they are asked.

Python has to be answered with one bool. The syntax tree of the function that asks tells what the `if` does. Where one
side is right at every size, that side is taken. What cannot be told so gets no answer from here.
"""

from __future__ import annotations

from types import FrameType

from onnxpatch.decisions.if_rules.noop_crops import crops_back, keeps_what_is_short
from onnxpatch.decisions.if_rules.noop_padding import pads_by_amounts
from onnxpatch.decisions.if_rules.noop_resizes import resizes_always, sets_size_flag
from onnxpatch.decisions.if_rules.noop_returns import returns_unpadded
from onnxpatch.decisions.if_rules.padding_if import only_pads
from onnxpatch.decisions.if_rules.remade_tables import remakes_table
from onnxpatch.decisions.if_rules.selected_numbers import select_items, select_locals


def right_side(frame: FrameType, asked: object) -> bool | None:
    """The answer that is right at every size, for the `if` whose test `frame` is evaluating; None if none is known.

    asked: a SymBool, or a 0-d bool tensor under trace, made of sizes.
    """
    # Its body has been carried out for every size, so Python must not run it again; or it returns what the rest makes.
    if select_items(frame) or select_locals(frame) or remakes_table(frame):
        return False
    # Its body changes nothing where the test is false.
    if pads_by_amounts(frame) or keeps_what_is_short(frame) or crops_back(frame) or sets_size_flag(frame, asked):
        return True
    # The patch of `pad` pads by nothing where the test is false.
    if only_pads(frame):
        return True
    # Its body returns what the rest would return as well.
    return False if returns_unpadded(frame, asked) else resizes_always(frame, asked)
