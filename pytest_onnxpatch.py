"""The pytest plugin: a fixture `assert_exports`, and `--onnxpatch-reports DIR` to keep what was found.

It stands outside the package because pytest imports it at every start, and importing the package imports torch.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_LONGEST = 200  # bytes of a file's name; file systems take 255


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnxpatch", "ONNX exports")
    group.addoption(
        "--onnxpatch-reports", metavar="DIR", default=None, help="keep the report of every assert_exports as Markdown"
    )


@pytest.fixture
def assert_exports(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`onnxpatch.testing.assert_exports`; with --onnxpatch-reports, what it found is also written there."""
    from onnxpatch import testing

    folder = request.config.getoption("--onnxpatch-reports")
    if folder is None:
        return testing.assert_exports
    return functools.partial(_kept, testing.assert_exports, Path(folder), request.node.nodeid)


def _kept(check: Callable[..., Any], folder: Path, test: str, *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    from onnxpatch.messages import visible

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_file_name(test)}.md"
    try:
        reports = check(*args, **kwargs)
    except AssertionError as error:
        file.write_text(f"### {visible.markdown(test)} failed\n\n{visible.fenced(str(error))}\n", encoding="utf-8")
        raise
    file.write_text("\n".join(report.to_markdown() for report in reports.values()), encoding="utf-8")
    return reports


def _file_name(test: str) -> str:
    """The test's name as that of a file; long ones are cut, and told apart by a digest."""
    name = re.sub(r"[^\w.-]+", "-", test).strip("-")
    if len(name.encode()) <= _LONGEST:
        return name
    return f"{name.encode()[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
