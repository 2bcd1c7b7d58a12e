"""The pytest plugin: the fixture `assert_exports`, and `--onnxpatch-reports DIR` to keep the reports.

It is a module outside the package: pytest imports it in every run, and must not load torch for that.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import pytest

if TYPE_CHECKING:
    from onnxpatch import Report

P = ParamSpec("P")

_LONGEST = 200  # bytes of a file's name; file systems take 255


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares --onnxpatch-reports; pytest calls it."""
    group = parser.getgroup("onnxpatch", "ONNX exports")
    group.addoption(
        "--onnxpatch-reports", metavar="DIR", default=None, help="keep the report of every assert_exports as Markdown"
    )


@pytest.fixture
def assert_exports(request: pytest.FixtureRequest) -> Callable[..., dict[str, Report]]:
    """`onnxpatch.testing.assert_exports`; with --onnxpatch-reports DIR it also writes its reports into DIR."""
    from onnxpatch import testing

    folder = request.config.getoption("--onnxpatch-reports")
    if folder is None:
        return testing.assert_exports
    return functools.partial(_with_report_kept, testing.assert_exports, Path(folder), request.node.nodeid)


def _with_report_kept(
    check: Callable[P, dict[str, Report]], folder: Path, test: str, *args: P.args, **kwargs: P.kwargs
) -> dict[str, Report]:
    __tracebackhide__ = True  # pytest then shows the user's line
    from onnxpatch.messages import text

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_file_name(test)}.md"
    try:
        reports = check(*args, **kwargs)
    except AssertionError as error:
        file.write_text(f"### {text.markdown(test)} failed\n\n{text.fenced(str(error))}\n", encoding="utf-8")
        raise
    file.write_text("\n".join(report.to_markdown() for report in reports.values()), encoding="utf-8")
    return reports


def _file_name(test: str) -> str:
    """A file name for a test. A long one is cut, and ends in a digest so that two do not meet."""
    name = re.sub(r"[^\w.-]+", "-", test).strip("-")
    if len(name.encode()) <= _LONGEST:
        return name
    return f"{name.encode()[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
