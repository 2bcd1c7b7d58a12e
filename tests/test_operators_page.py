"""The committed page of operators is made of the committed answers, and names what ONNX cannot express."""

from __future__ import annotations

from benchmarks.operators import table
from benchmarks.operators.__main__ import ANSWERS, read


def test_the_page_is_made_of_the_answers() -> None:
    text = ANSWERS.with_suffix(".md").read_text(encoding="utf-8")
    made = table.page(list(read(ANSWERS).values()))
    # The versions above it are those of who made it.
    assert made.partition("| | sample")[2] == text.partition("| | sample")[2], (
        "run: python -m benchmarks.operators --table"
    )


def test_each_function_that_is_refused_is_named_with_what_is_missing() -> None:
    asked = [one for one in read(ANSWERS).values() if one["kit"] == "kit" and one["exporter"] == "trace"]
    first = [one for one in asked if one["sample"] == "first" and not one["dtype"] and one["opset"] == 18]
    assert {one["entry"] for one in first if one["verdict"] == "refused"} == set(table.IMPOSSIBLE)
    assert len(table.IMPOSSIBLE) <= 40
    assert not [one["entry"] for one in first if one["verdict"] in ("wrong", "crash")]
