"""What is tried next after which failures, decided from data alone."""

from __future__ import annotations

from typing import Any

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.next_attempt import next_attempt

ASKED = Attempt("dynamo")
PLAIN = Attempt("dynamo", plain=True)
FORKED = Attempt("dynamo", branches=True)


def failed(attempt: Attempt = ASKED, kind: Any = "refused", **data: Any) -> Failure:
    return Failure(attempt, kind, "", **data)


def course(*failures: Failure, asked: Attempt = ASKED, exporters: Any = ("dynamo",)) -> Attempt | None:
    return next_attempt(asked, exporters, failures)


def test_the_first_attempt_is_the_one_asked_for():
    assert course() == ASKED


def test_a_stand_in_that_raised_is_left_out_and_then_a_branch_is_exported_whole():
    first = failed(patches=("a", "b"), at_fault=("a",))
    assert course(first) == ASKED.without(["a"])
    second = failed(ASKED.without(["a"]), patches=("b",), branch=True, on_data=True)
    assert course(first, second) == Attempt("dynamo", branches=True, exclude=("a",))
    third = failed(Attempt("dynamo", branches=True, exclude=("a",)), patches=("b",))
    assert course(first, second, third) == PLAIN


def test_a_model_with_code_for_exports_alone_is_exported_as_in_eager_last():
    told = Attempt("dynamo", as_in_eager=True)
    assert course(failed(kind="wrong", asks=True)) == told
    assert course(failed(patches=("a",), asks=True), failed(PLAIN, asks=True)) == told
    assert course(failed(kind="wrong")) is None


def test_plain_comes_before_branches_unless_torch_refused_a_branch_on_data():
    assert course(failed(patches=("a",), branch=True)) == PLAIN
    assert course(failed(patches=("a",), branch=True), failed(PLAIN, branch=True)) == FORKED
    assert course(failed(patches=("a",), branch=True, on_data=True)) == FORKED


def test_plain_is_left_out_where_it_would_fail_the_same_way():
    assert course(failed(kind="wrong")) is None
    assert course(failed(operator="aten::linalg_svd")) is None
    assert course(failed(branch=True, on_data=True), failed(FORKED)) is None
    assert course(failed(operator="aten::linalg_svd", patches=("a",))) == PLAIN


def test_branches_that_were_asked_for_are_left_out_again():
    assert course(failed(FORKED), asked=FORKED) == ASKED
    assert course(failed(FORKED), failed(ASKED), asked=FORKED) == PLAIN


def test_the_other_exporter_comes_last_and_starts_as_asked():
    both = ("dynamo", "trace")
    assert course(failed(kind="wrong"), exporters=both) == Attempt("trace")
    plain = Attempt("trace", plain=True)
    assert course(failed(kind="wrong"), failed(Attempt("trace"), patches=("a",)), exporters=both) == plain


def test_nothing_comes_after_the_callers_time_is_up():
    assert course(failed(kind="late"), exporters=("dynamo", "trace")) is None


def test_patches_are_left_out_one_after_the_other_but_not_without_end():
    failures, attempt = [], ASKED
    for name in "abcdef":
        failures.append(failed(attempt, patches=(name,), at_fault=(name,)))
        attempt = course(*failures)
        if attempt == PLAIN:
            break
    assert attempt == PLAIN and len(failures) == 5
