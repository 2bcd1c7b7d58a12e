"""torch.multinomial draws by probabilities; draws behind a seed are constants; dropout that drops nothing."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, op, running_model
from onnxpatch.formulas.symbolic import known_size, unrecorded


def _drawn(x: Tensor) -> tuple[Tensor, ...]:
    """Draws with one possible outcome, so that they can be compared, and whether no draw comes up twice."""
    certain = (x == x.amax(-1, keepdim=True)).to(x.dtype)
    drawn = torch.multinomial(x.abs() + 0.1, 6).sort(-1).values
    shuffled = torch.multinomial(torch.ones(x.shape[0]), x.shape[0]).sort().values  # each of them once
    return (
        torch.multinomial(certain, 1),
        certain.multinomial(4, replacement=True),
        drawn[:, 1:] > drawn[:, :-1],
        shuffled,
    )


@op(
    "multinomial",
    why="replacement=False when num_samples > 1 is not supported for multinomial; under dynamo Multinomial draws "
    "the same class twice then, silently",
    reason="flags differ|replacement=False|Multinomial",
    link="https://onnx.ai/onnx/operators/onnx__Multinomial.html",
    tries=lambda batch, classes: torch.randn(batch, classes),
    sizes=((2, 8), (5, 6), (1, 40)),
    case=_drawn,
    unchanged=lambda x: x.softmax(-1),
)
def multinomial(input: Tensor, num_samples: Any, replacement: bool = False, *, generator: object = None) -> Tensor:
    """Draws classes by their probabilities p: those with the largest p / e, with e exponentially distributed.

    input: (classes,) or (batch, classes), not negative. Returns int64 (..., num_samples).
    """
    fixed = isinstance(num_samples, int)
    plain = exporting() == "trace" and fixed and (replacement or num_samples == 1)  # right without a patch
    if plain or generator is not None or not input.is_floating_point():
        return NotImplemented
    weights = input.float()
    if fixed and num_samples == 1:
        return _raced(weights).argmax(-1, keepdim=True)
    if replacement:
        weights = weights.unsqueeze(-2).expand(*input.shape[:-1], num_samples, input.shape[-1])
        return _raced(weights).argmax(-1)
    return _raced(weights).topk(num_samples, -1).indices


def _raced(weights: Tensor) -> Tensor:
    # Never 0 nor 1, of which the logarithm is none, or 0.
    uniform = torch.rand_like(weights) * (1 - 2e-6) + 1e-6
    return weights / -uniform.log()


def _seeded(x: Tensor) -> tuple[Tensor, ...]:
    """Rotations that are the same in every call, as those by which Reformer hashes."""
    torch.manual_seed(7)
    turned = x @ torch.randn(x.shape[-1], 3) + torch.rand((3,), dtype=x.dtype)
    return turned, x[:, torch.randperm(4)] * torch.randint(2, 9, (4,))


# By the model that runs: the state of torch's generator behind the seed, or behind what was drawn since.
_states: weakref.WeakKeyDictionary[Any, Tensor] = weakref.WeakKeyDictionary()

_constant_draws = functools.partial(
    op,
    why="torch.manual_seed(n) in forward: what is drawn behind it is the same in every call, and other in the file",
    reason="randperm|relative error",
    tries=lambda b, n: torch.randn(b, 4).repeat(n, 1),
    sizes=((2, 3), (3, 1), (1, 4)),
    case=_seeded,
    unchanged=lambda x: x * 2,
)


@_constant_draws("torch.manual_seed", name="seed-in-forward", beside=("seeded-draws",))
def seed_in_forward(original: Callable[..., object], seed: Any) -> object:
    """Notes where the generator is: what is drawn from there on is known."""
    made = original(seed)
    _states[running_model()] = unrecorded(torch.get_rng_state)
    return made


@_constant_draws("torch.rand", "torch.randn", "torch.randint", "torch.randperm", name="seeded-draws",
                 beside=("seed-in-forward",))  # fmt: skip
def seeded_draws(original: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Draws now, where only a seed in forward decides what comes, and how many numbers is the same for every input."""
    state = _states.pop(running_model(), None) if kwargs.get("generator") is None else None
    if state is None or not unrecorded(lambda: torch.equal(torch.get_rng_state(), state)):
        return NotImplemented
    given, named = [_fixed(one) for one in args], {name: _fixed(one) for name, one in kwargs.items()}
    sizes = (one for value in (*given, *named.values()) for one in (value if isinstance(value, list) else [value]))
    if any(isinstance(one, torch.SymInt | Tensor) for one in sizes):
        return NotImplemented  # as many as a size says: behind them nothing is known
    drawn: Tensor = unrecorded(lambda: original(*given, **named))
    _states[running_model()] = unrecorded(torch.get_rng_state)
    return drawn


def _fixed(argument: Any) -> object:
    if isinstance(argument, tuple | list):
        return [_fixed(one) for one in argument]
    return known_size(argument)


_KINDS = ("alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")


@op(
    *(f"nn.functional.{kind}" for kind in _KINDS),
    name="dropout-of-nothing",
    why="Unsupported: ONNX export of operator aten::feature_dropout, training mode, where p is 0",
    reason="training mode",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n, 4),
    case=lambda x: tuple(getattr(functional, kind)(x, p=0.0, training=True) for kind in _KINDS if kind != "dropout3d"),
)
def undropped(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The same."""
    return input.clone() if p == 0 and training and not inplace else NotImplemented
