"""Conditions of real models, labelled by hand: those that an input can turn are all named, of the others few."""

from __future__ import annotations

from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

from benchmarks import case as families
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.untried import untried

LABELS = Path(__file__).with_name("labelled_conditionals.txt")
LIBRARIES = {
    "timm": ("timm", "1.0.31"), "diffusion": ("diffusers", "0.42.1"),
    "text_encoders": ("transformers", "5.23.0"), "text_decoders": ("transformers", "5.23.0"),
}  # fmt: skip
MOST_FALSE = 0.05
Side = tuple[str, str, str, str]


def labelled() -> dict[str, dict[Side, str]]:
    """By model: the label of each side."""
    found: dict[str, dict[Side, str]] = {}
    for line in LABELS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            here = found.setdefault(line[3:], {})
        elif not line.startswith("#"):
            label, file, function, question, side = line.split("\t")
            here[file, function, question, side] = label
    return found


def named(model: str) -> set[Side]:
    """The sides that are named after one call of a model."""
    case = families.build(*model.split(":"))
    assert case is not None
    inputs = Inputs(case.model, case.inputs[0])
    eager = Eager(case.model, inputs)
    answer = eager.ask(inputs.values())
    assert answer.outputs is not None, answer.error
    probe = Probe("", "", {}, [], answer.outputs, taken=answer.taken)
    return {
        (
            one.place.rpartition(":")[0].rpartition("-packages/")[2],
            one.place.rpartition(" in ")[2],
            one.question,
            one.side,
        )
        for one in untried(eager.sides, [probe])
    }


MODELS = list(labelled())


def judged(model: str) -> tuple[list[Side], list[Side], int]:
    """(sides that an input turns and that are not named, sides that none turns and that are, how many none turns)."""
    library, version = LIBRARIES[model.partition(":")[0]]
    if version != metadata.version(pytest.importorskip(library).__name__):
        pytest.skip(f"the labels are those of {library} {version}: other versions have other conditions")
    labels, found = labelled()[model], named(model)
    missed = [side for side, label in labels.items() if label == "turns" and side not in found]
    false = [side for side in found if labels.get(side) == "fixed"]
    return missed, false, list(labels.values()).count("fixed")


def test_what_an_input_can_turn_in_a_vision_transformer_is_named() -> None:
    assert judged("timm:vit")[:2] == ([], [])


@pytest.mark.slow  # builds four models of transformers and diffusers
def test_what_an_input_can_turn_is_named_and_little_else() -> None:
    found = [judged(model) for model in MODELS]
    assert [side for missed, _, _ in found for side in missed] == []
    false = [side for _, sides, _ in found for side in sides]
    assert len(false) <= MOST_FALSE * sum(fixed for _, _, fixed in found), false


def test_the_labels_are_a_hundred_and_more() -> None:
    counts = Counter(label for labels in labelled().values() for label in labels.values())
    assert counts["fixed"] >= 100 and counts["turns"] >= 12
