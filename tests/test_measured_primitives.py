"""A patch of a torch function is measured as its inputs grow, or a reason says why its work cannot explode."""

from __future__ import annotations

import onnxpatch
from benchmarks.primitive_cases import CASES, NOT_MEASURED


def of_torch() -> set[str]:
    """Names of the patches in `patches/torch_ops`, and of those that a case measures elsewhere."""
    return {patch.name for patch in onnxpatch.REGISTRY if ".torch_ops." in patch.stand_in.__module__}


def test_every_patch_of_a_torch_function_is_a_case_of_the_benchmark_or_has_a_reason():
    measured = {name for case in CASES for name in case.patches}
    missing = of_torch() - measured - NOT_MEASURED.keys()
    assert not missing, f"add a Primitive to benchmarks/primitive_cases.py, or a reason to NOT_MEASURED: {missing}"


def test_the_cases_and_reasons_name_patches_that_exist_and_none_has_both():
    measured = {name for case in CASES for name in case.patches}
    known = {patch.name for patch in onnxpatch.REGISTRY}
    assert measured | NOT_MEASURED.keys() <= known
    assert not measured & NOT_MEASURED.keys()
    assert all(len(reason) > 10 for reason in NOT_MEASURED.values())
