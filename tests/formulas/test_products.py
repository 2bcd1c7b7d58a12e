"""Einsums of two tensors as one product: the equations that have one, and those that have none."""

from __future__ import annotations

import pytest
import torch

from onnxpatch.formulas.layer_nodes import product_of_einsum

SIZES = {"b": 2, "h": 3, "n": 4, "i": 4, "j": 5, "d": 6, "r": 7, "o": 5, "m": 3, "e": 2, "k": 6, "c": 3}


def operands(equation):
    before = equation.partition("->")[0].replace(" ", "")
    return [torch.randn([SIZES[letter] for letter in one]) for one in before.split(",")]


@pytest.mark.parametrize(
    "equation",
    [
        "b h i d, b h j d -> b h i j", "b h i j, b h j d -> b h i d", "b h n d, n r d -> b h n r",
        "r n d, b h n d -> b h n r", "b n h d, h d e -> b n h e", "o d, b d n m -> b o n m", "i, j -> i j", "d,d->",
        "b d, b d -> b", "b k, b k n -> b n", "b k n, b k -> b n", "b h i d, b j d -> b h i j",
        "h i j, b h j d -> b h i d", "ij,jk", "b i d, d -> b i", "d, b i d -> b i", "b h i d, h e d -> b i h e",
        "b n c, n -> n b c", "b i h d, b j h d -> b h i j", "i b h, j b h -> b i j h", "e d, i j d -> j i e",
        "b, h -> h b", "b h i j, b j h d -> b i h d",
    ],
)  # fmt: skip
def test_a_single_product_gives_what_torch_gives(equation):
    given = operands(equation)
    torch.testing.assert_close(product_of_einsum(equation, *given), torch.einsum(equation, *given))


@pytest.mark.parametrize(
    "equation", ["b i j, b j i -> b", "b i d, c j d -> b c i j", "i i, i j -> j", "...i, i -> ...", "b i, b -> b"]
)
def test_what_is_no_single_product_is_left(equation):
    shapes = [
        [SIZES.get(letter, 2) for letter in one if letter.isalpha()] for one in equation.split("->")[0].split(",")
    ]
    assert product_of_einsum(equation, *map(torch.randn, shapes)) is None


def test_an_axis_that_torch_repeats_is_left():
    assert product_of_einsum("b i, b i -> b i", torch.randn(2, 1), torch.randn(2, 3)) is None


def test_whole_numbers_and_empty_axes():
    """onnxruntime up to 1.23 ends the process at an Einsum over an empty axis."""
    for batch, dtype in ((2, torch.int64), (0, torch.int32)):
        given = [torch.randint(0, 9, (batch, 4, 6)).to(dtype) for _ in range(2)]
        made = product_of_einsum("b i d, b j d -> b i j", *given)
        assert made is not None and made.dtype == dtype
        torch.testing.assert_close(made, torch.einsum("b i d, b j d -> b i j", *given))


def test_types_without_a_product_in_every_onnxruntime_are_left():
    for dtype in (torch.float64, torch.float16, torch.uint8):
        assert product_of_einsum("i, i -> i", torch.ones(3, dtype=dtype), torch.ones(3, dtype=dtype)) is None
    assert product_of_einsum("i, i -> i", torch.ones(3), torch.arange(3)) is None
