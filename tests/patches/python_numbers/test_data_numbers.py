"""What is asked of a number that data decides: answered as of a size, and compared on data with the other answer."""

import pytest
import torch

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports

ARGS = torch.randn(6, 4), torch.tensor([4, 2])
SHAPES = (({0: "b"}, None),)


def exported(function, **options):
    return onnxpatch.export(Computes(function).eval(), ARGS, dynamic_shapes=SHAPES, max_probes=6, **options)


def doubles_some(x, counts):
    count = counts[0].item()
    return x * 2 if count > 0 else x


def compares(x, counts):
    count = counts[0].item()
    return x * 2 if count > 3 else x


def test_data_with_the_other_answer_shows_a_wrong_one():
    with pytest.raises(onnxpatch.VerificationError, match="relative error"):
        exported(doubles_some, attempts="asked")


@pytest.mark.slow
def test_with_branches_both_sides_are_exported():
    assert exported(doubles_some, attempts="asked", branches=True).ok


def test_no_answer_is_assumed_where_a_number_is_compared_with():
    with pytest.raises(onnxpatch.ExportError, match="data-dependent"):
        exported(compares, attempts="asked")


def test_as_many_classes_as_the_data_needs():
    assert exported(lambda x, counts: torch.nn.functional.one_hot(counts.abs()) * x.sum(), attempts="asked").ok
