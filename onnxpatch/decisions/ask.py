"""Who answers what Python asks while a model runs under an exporter: the first, in this order, that does not decline.

    known      the answer is the same at every size and for all data
    numbers    branches=True: the number stays in the graph, and a range becomes a loop
    patches    a stand-in computes it in the graph, or does what is right on both sides of the `if`
    paths      branches=True: the module runs once for each answer
    (torch)    nobody: torch and Python answer as the example does

Questions are `bool(t)`, `n > 512`, `int(n)`, `len(x)`, `range(n)`, `layers[i]`, `t.item()`. A patched model answers as
`patches` while it runs, and an export with its branches as the three others. The answers of a thread are its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, get_args

from onnxpatch.process import undone

Rank: TypeAlias = Literal["known", "numbers", "patches", "paths"]
# Answers (function, args, kwargs); NotImplemented declines.
Answer: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_ORDER: tuple[Rank, ...] = get_args(Rank)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.answers: dict[Rank, tuple[Answer, ...]] = {}


_thread = _Thread()


@contextlib.contextmanager
def answering(answers: dict[Rank, Answer | None]) -> Iterator[None]:
    """Inside the block, these answer in this thread, before others of their rank; None: nobody of the rank does."""
    before = _thread.answers
    with undone(lambda: setattr(_thread, "answers", before)):
        # The innermost of nested models first.
        more = {rank: (answer, *before.get(rank, ())) if answer else () for rank, answer in answers.items()}
        _thread.answers = {**before, **more}
        yield


def ask(
    function: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    around_patches: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Any:
    """The answer to a call of `function`, such as torch.Tensor.__bool__ or int; NotImplemented if all decline.

    around_patches: makes a context in which patches are asked.
    """
    asked = _thread.answers
    for rank in _ORDER:
        if not (answers := asked.get(rank)):
            continue
        with around_patches() if rank == "patches" else contextlib.nullcontext():
            for answer in answers:
                found = answer(function, args, kwargs)
                if found is not NotImplemented:
                    return found
    return NotImplemented


def forking() -> bool:
    """Whether the branches of a model are exported with both sides in this thread: then nothing need be assumed."""
    return bool(_thread.answers.get("paths"))
