"""Which input of a graph each value of a call is: by keyword, by the keys of dicts and the layers of caches, by order.

inputs `batch_mask`, `batch_ids`, `n`      call(batch={"ids": i, "mask": m}, n=3), with the keys in any order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxpatch.inputs.caches import is_cache, opened

Path = tuple[str, ...]  # the keys and positions that lead to a value


class UnmatchedError(Exception):
    """The values of a call do not fit the inputs. given: how many there are; unknown: keywords that fit no input."""

    def __init__(self, given: int, unknown: Sequence[str] = ()) -> None:
        super().__init__(given, unknown)
        self.given, self.unknown = given, list(unknown)


def matched_arguments(
    names: Sequence[str], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Each value of a call by the name of its input. names: all inputs, in the graph's order; None values are left out.

    Raises UnmatchedError where a keyword is neither an input nor a container of some, or where the numbers differ.
    """
    values = sum(len(list(_leaves(one))) for one in (*args, *kwargs.values()))
    found: dict[str, object] = {}
    unknown = []
    for keyword, value in kwargs.items():
        if keyword in names:
            found[keyword] = value
        elif value is not None:
            below = _below(names, keyword, list(_leaves(value)), _has_keys(value))
            found |= below or {}
            unknown += [] if below is not None else [keyword]
    rest = [name for name in names if name not in found]
    for value in args:
        leaves = list(_leaves(value))
        chunk, rest = rest[: len(leaves)], rest[len(leaves) :]
        found |= _in_chunk(chunk, leaves) if len(chunk) == len(leaves) else {}
    if unknown or rest or len(found) != values:
        raise UnmatchedError(values, unknown)
    return found


def match_call(
    names: Sequence[str], called: Sequence[str], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """As `matched_arguments`, for a call that may give what the graph has no input for; these are in the result too.

    called: what the model is called with, in order.
    """
    more = {name: value for name, value in kwargs.items() if name in called and name not in names}
    rest = {name: value for name, value in kwargs.items() if name not in more}
    try:
        return matched_arguments(names, args, rest) | more
    except UnmatchedError as error:
        # As many as there are values: parameters at the end may be left to their defaults.
        first = [name for name in called if name not in more][: error.given]
        if not set(names) <= set(first):
            raise
        return matched_arguments(first, args, rest) | more


def _leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """The tensors, arrays and numbers in a value, each with its path; None is left out."""
    value = opened(value) if is_cache(value) else value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, tuple | list):
        for key, inner in zip(getattr(value, "_fields", range(len(value))), value, strict=True):
            yield from _leaves(inner, (*path, str(key)))
    elif value is not None:
        yield path, value


def _below(
    names: Sequence[str], keyword: str, leaves: list[tuple[Path, object]], keyed: bool
) -> dict[str, object] | None:
    """The values of one container by the names of their inputs: `keyword_key`, `keyword.0.key`. None: they do not fit.

    A sequence may have inputs of other names (`past.0.key` for the first of a pair): they are taken in order.
    """
    # torch joins the parts of a name by `_`; the tensors of a cache have `.` in theirs.
    for mark in ("_", "."):
        named = {mark.join((keyword, *path)): value for path, value in leaves}
        if named and all(name in names for name in named):
            return named
        below = [name for name in names if name.startswith(keyword + mark)]
        if not keyed and len(below) == len(leaves) > 0:
            return dict(zip(below, (value for _, value in leaves), strict=True))
    return {} if not leaves else None


def _in_chunk(chunk: list[str], leaves: list[tuple[Path, object]]) -> dict[str, object]:
    """The values of one positional argument: by their keys where the inputs are called after these, else in order."""
    by_order = dict(zip(chunk, (value for _, value in leaves), strict=True))
    for mark in ("_", "."):
        tails = [mark.join(path) for path, _ in leaves]
        starts = [chunk[0].removesuffix(tail) for tail in tails if chunk[0].endswith(tail)] if chunk else []
        for start in starts:
            named = {start + tail: value for tail, (_, value) in zip(tails, leaves, strict=True)}
            if named.keys() == by_order.keys():
                return named
    return by_order


def _has_keys(value: object) -> bool:
    """Whether there is a mapping in it, whose order means nothing. The layers of a cache are in order."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, tuple | list) and any(map(_has_keys, value))
