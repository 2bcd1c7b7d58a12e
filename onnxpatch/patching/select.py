"""`only=` and `exclude=`: patches by name and modules by path, with `*`. One that fits nothing is an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from onnxpatch.errors import UnknownPatchError


def _listed(selectors: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if selectors is None:
        return None
    return (selectors,) if isinstance(selectors, str) else tuple(selectors)


class Selection:
    """What `only` and `exclude` allow. A module path includes its submodules."""

    def __init__(self, only: str | Iterable[str] | None = None, exclude: str | Iterable[str] | None = None) -> None:
        self.only = _listed(only)
        self.exclude = _listed(exclude) or ()
        self.admits_all = self.only is None and not self.exclude

    def admits(self, patch: str, path: str | None) -> bool:
        """Whether `patch` may act on the module at `path`. path None: a patch of functions."""
        if any(_fits(selector, patch, path) for selector in self.exclude):
            return False
        return self.only is None or any(_fits(selector, patch, path) for selector in self.only)

    def check(self, patches: Iterable[str], paths: Iterable[str]) -> None:
        """Raises UnknownPatchError for a selector that names neither a patch nor a module path."""
        selectors = (*(self.only or ()), *self.exclude)
        if not selectors:
            return
        names, places = list(patches), list(paths)
        for selector in selectors:
            if not any(fnmatchcase(name, selector) for name in (*names, *places)):
                near = difflib.get_close_matches(selector.strip("*."), [*names, *places], n=3, cutoff=0.5)
                known = f"did you mean {' or '.join(map(repr, near))}?"
                hint = known if near else "`onnxpatch list` shows the patches, print(model) the modules"
                raise UnknownPatchError(f"{selector!r} is neither a patch nor a module path of this model; {hint}")


def _fits(selector: str, patch: str, path: str | None) -> bool:
    if fnmatchcase(patch, selector):
        return True
    return path is not None and (fnmatchcase(path, selector) or fnmatchcase(path, f"{selector}.*"))
