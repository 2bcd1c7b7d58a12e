"""Dispatch modes that watch a forward: how much it computes and takes, and which tensors it writes into.

- `torch.utils.flop_counter.flop_registry`, a formula for each aten operator, is not public. Counting work makes a
  budget the same on every machine. If it moves, matrix products are counted like every other operator, by the elements
  of their results.
- `OpOverload._schema` marks the arguments that an operator writes. If it moves, no write is seen.
- `UntypedStorage._cdata` tells storages apart. If it moves, views of one storage are taken for tensors of their own,
  and no memory is counted.
- `torch._C._autograd._unsafe_set_version_counter` sets the count of writes by which autograd refuses a backward through
  a tensor that was written to, after a write that was undone. If it moves, the count stays as it is.
- `torch._higher_order_ops.utils._hop_compile_and_call` is how torch's scan, cond and while_loop call what they compile.
  They need what Dynamo makes of a result. If it moves, scans of several states are refused.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnxpatch._torch.kernel_checks import (
    beyond_bounds,
    check_positions,
    is_asserted,
    is_unchecked,
    makes_storage,
    result_bytes,
    sized_by_data,
)
from onnxpatch._torch.one_export import Replaced
from onnxpatch._torch.relied_on import gone_class

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    TorchDispatchMode = gone_class("torch.utils._python_dispatch.TorchDispatchMode")  # type: ignore[misc]
try:
    from torch.utils.flop_counter import flop_registry
except ImportError:
    flop_registry = {}
# The unit is one multiplication in a matrix product. Reading and writing an element takes as long as 16 of them, and
# the call of an operator as long as 200,000, on one core.
_ELEMENT = 16
_CALL = 200_000
COARSE = (torch.float16, torch.bfloat16)
_WIDEST = 16.0  # bytes of the largest element; of two results of 8 each, too
_LEAST = 256  # elements of a result whose memory is counted: what is smaller cannot add up within the limit of calls


class _TooLarge(BaseException):
    """Raised in place of an operator that exceeds a limit. Not an Exception: models catch those."""


class _Watching(TorchDispatchMode):
    # torch.cond and torch.while_loop refuse to run in a mode that does not declare support for them.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Read by torch 2.11 and later: whether torch.compile works as usual inside the block.

        Otherwise Dynamo skips the functions that torch.cond compiles, from then on, and torch.cond fails in eager too.
        """
        return True


class CountedRun(_Watching):
    """A mode that counts the arithmetic and the memory of a forward, and leaves its block before one exceeds a limit.

    Bodies of torch.cond and torch.while_loop are not counted.

    bytes: what the operators' results may take together at one moment. calls: of operators. Other memory is not seen:
    the model's weights, what a kernel needs while it runs, numpy's arrays. arithmetic: False to count none of it.
    operations: the arithmetic so far. peak: the most bytes that were in use at one moment. made: calls so far. stopped:
    why the forward was ended, or ''; it stays where the model catches the exception. by_data: an operator gave a
    Python number, or results whose size follows from values, or takes values for positions that it does not check.
    coarse: float16 or bfloat16, where an operator gave results in it. without_elements: results that have none.
    Operators whose C code does not check the positions that it gets raise IndexError where these are outside; on a GPU,
    all with positions do.
    """

    def __init__(self, bytes: float = math.inf, calls: float = math.inf, arithmetic: bool = True) -> None:
        super().__init__()
        self.operations = 0.0
        self.peak = self.made = self.without_elements = 0
        self.stopped = ""
        self.by_data = False
        self.coarse: torch.dtype | None = None
        self._bytes, self._calls, self._arithmetic = bytes, calls, arithmetic
        self._used = 0
        self._storages: dict[int, tuple[int, Any]] = {}

    def __exit__(self, kind: object, error: object, at: object) -> bool:
        super().__exit__(kind, error, at)
        return isinstance(error, _TooLarge)

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        facts = _FACTS.get(func) or _FACTS.setdefault(func, _Facts(func))
        self.made += 1
        self._look(facts, func, args, kwargs)
        room = self._bytes - self._used
        if facts.makes_storage and (not (most := _most_bytes(args, kwargs)) <= room or facts.beyond_bounds):
            self._check(func, args, kwargs, most)
        if self.made > self._calls:
            self._stop(f"it calls more than {self._calls:,.0f} operators")
        result = func(*args, **kwargs)
        self.without_elements += isinstance(result, torch.Tensor) and not result.numel()
        if facts.makes_storage:
            for one in result if isinstance(result, tuple | list) else (result,):
                if isinstance(one, torch.Tensor):
                    self._hold(one)
        if self._arithmetic:
            self.operations += _CALL + _ELEMENT * _elements(result) + _of_product(facts.formula, args, kwargs, result)
        return result

    def _look(self, facts: _Facts, func: Any, args: Any, kwargs: Any) -> None:
        """Note whether values decide about the call, and refuse positions that its kernel must not meet."""
        on_a_gpu = facts.asserted and not _is_on_cpu(args)
        self.by_data |= facts.by_data or on_a_gpu
        if facts.unchecked or on_a_gpu:
            check_positions(func, args, kwargs)

    def _check(self, func: Any, args: Any, kwargs: Any, most: float) -> None:
        try:
            needed = result_bytes(func, args, kwargs, most)
        except (RuntimeError, NotImplementedError, TypeError, AttributeError):
            return  # tensors of a kind that cannot be counted: the operating system's limit holds for them
        if needed > self._bytes - self._used:
            named = str(func).removesuffix(".default").replace("aten.", "torch.")
            self._stop(f"{named} would make {needed / 1e6:,.0f} MB, with {self._used / 1e6:,.0f} MB in use")

    def _stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason
        raise _TooLarge(reason)

    def _hold(self, made: torch.Tensor) -> None:
        """Count the storage of a result until it is freed."""
        self.coarse = made.dtype if made.dtype in COARSE else self.coarse
        if made.numel() < _LEAST:
            return
        try:
            storage = made.untyped_storage()
            key, size = int(storage._cdata), storage.nbytes()
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse tensors and others without one storage
            return
        before = self._storages.get(key)
        if before is not None and before[0] == size:
            return
        # Python's object of a storage lives as long as the storage itself.
        self._storages[key] = (size, weakref.ref(storage, lambda _: self._freed(key)))
        self._used += size - (before[0] if before else 0)
        self.peak = max(self.peak, self._used)

    def _freed(self, key: int) -> None:
        size, _ = self._storages.pop(key, (0, None))
        self._used -= size


class _Facts:
    """What is the same for all calls of one operator."""

    def __init__(self, operator: Any) -> None:
        self.unchecked, self.asserted = is_unchecked(operator), is_asserted(operator)
        self.makes_storage = makes_storage(operator)
        self.beyond_bounds = beyond_bounds(operator)
        self.by_data = self.unchecked or sized_by_data(operator)
        self.formula = flop_registry.get(getattr(operator, "overloadpacket", None))


_FACTS: dict[Any, _Facts] = {}


def _is_on_cpu(args: Any) -> bool:
    return not (args and isinstance(args[0], torch.Tensor)) or args[0].device.type in ("cpu", "meta")


def _most_bytes(args: Any, kwargs: Any) -> float:
    """What the results take at most: the product of all elements and whole numbers that an operator gets."""
    return math.prod(map(_factor, (*args, *kwargs.values()) if kwargs else args), start=_WIDEST)


def _factor(one: Any) -> float:
    if isinstance(one, torch.Tensor):
        return one.numel() or 1
    if isinstance(one, bool) or one is None:
        return 1
    if isinstance(one, int):
        return abs(one) + 1
    if isinstance(one, float):
        return max(abs(one), 1 / abs(one)) if one else 1  # the step of a range
    if isinstance(one, list | tuple):
        return math.prod(map(_factor, one))
    return 1


def _elements(result: object) -> int:
    if isinstance(result, torch.Tensor):
        return result.numel()
    return sum(one.numel() for one in result if isinstance(one, torch.Tensor)) if isinstance(result, tuple) else 0


def _of_product(formula: Callable[..., Any] | None, args: Any, kwargs: Any, result: Any) -> float:
    try:
        return float(formula(*args, **kwargs, out_val=result)) if formula is not None else 0.0
    except Exception:  # arguments that the formula does not know: the elements are still counted
        return 0.0


def writes_seen(seen: Callable[[torch.Tensor], None]) -> TorchDispatchMode:
    """A mode that calls `seen(tensor)` before an operator writes into a tensor.

    For a write through `.data`, that is another tensor with the same storage.
    """
    return _Writes(seen)


class _Writes(_Watching):
    def __init__(self, seen: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            for number, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = args[number] if number < len(args) else kwargs.get(argument.name)
                    for one in value if isinstance(value, list | tuple) else (value,):
                        if isinstance(one, torch.Tensor):
                            self._seen(one)
        return func(*args, **kwargs)


def storage_key(tensor: torch.Tensor) -> int:
    """The same number for all views into one storage."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, TypeError):
        return id(tensor)


def count_writes(tensor: torch.Tensor, count: int) -> None:
    """Set the count of writes into `tensor`, and into the views that share it, where torch allows it."""
    with contextlib.suppress(AttributeError, TypeError, RuntimeError):
        torch._C._autograd._unsafe_set_version_counter((tensor,), (count,))


@contextlib.contextmanager
def run_in_eager() -> Iterator[None]:
    """A context in which what torch.compile made runs as it was written; torch's scan and its kin run as ever."""
    with torch.compiler.set_stance("force_eager"), _AS_EVER.held():
        yield


_AS_EVER = Replaced(
    "torch._higher_order_ops.utils._hop_compile_and_call", lambda call: torch.compiler.set_stance("default")(call)
)
