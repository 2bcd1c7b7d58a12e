"""Which tests `make check`, `make test` and `make test-all` run, and the table of durations that decides it.

make test-all  every test
make test      without those marked `slow`, and without the cases of a test that take more than LIMIT seconds of the
               processor each: of a test that has no shorter case, its shortest stays, unless it is over LONGEST.
               A case marked `quick` stays.
make check     of these, those that export nothing, and the trace proofs marked `sample`. A test that exports and is not
               marked `exports` fails there.

`python -m pytest --durations-into tests/durations.txt FILES` writes the lines of the tests that it runs anew.
"""

from __future__ import annotations

import functools
import re
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import onnxpatch
from onnxpatch.onnxfile.metadata import versions

TABLE = Path(__file__).parent / "durations.txt"
LIMIT, LONGEST = 0.4, 1.5
LISTED = 0.3  # seconds from which on a test has a line of its own
Seconds = dict[str, dict[str, float]]  # by file, then by name; "" stands for all that have no line of their own

# ---- the table


def read(text: str) -> Seconds:
    """The table's seconds."""
    found: Seconds = {}
    for line in text.splitlines():
        if line.startswith("tests/"):
            here = found.setdefault(line, {})
        elif match := re.match(r" +([\d.]+) (.*)", line):
            here[match[2].removeprefix("the others")] = float(match[1])
    return found


def written(seconds: Seconds) -> str:
    """The table, with the versions that it was measured with."""
    shown = ", ".join(f"{name} {version}" for name, version in {"torch": torch.__version__, **versions()}.items())
    lines = [
        f"Seconds of the processor, {sum(sum(one.values()) for one in seconds.values()):.0f} of all tests. {shown}"
    ]
    for file in sorted(seconds):
        tests = seconds[file]
        # A test with a case over the limit is listed with all its cases: one of them stays.
        long = {_test(name) for name, took in tests.items() if took > LIMIT}
        own = {name: took for name, took in tests.items() if name and (took >= LISTED or _test(name) in long)}
        rest = sum(took for name, took in tests.items() if name not in own)
        lines += [file, *(f"{took:7.1f} {name}" for name, took in own.items()), f"{rest:7.1f} the others"]
    return "\n".join(lines) + "\n"


def _test(name: str) -> str:
    return name.partition("[")[0]


def long_cases(seconds: Seconds) -> set[str]:
    """Ids of the cases that make test leaves out."""
    out: set[str] = set()
    for file, tests in seconds.items():
        cases: dict[str, dict[str, float]] = defaultdict(dict)
        for name in filter(None, tests):
            cases[_test(name)][name] = tests[name]
        for mine in cases.values():
            shortest = min(mine, key=lambda name: mine[name])
            out |= {f"{file}::{name}" for name, took in mine.items() if took > (LONGEST if name == shortest else LIMIT)}
    return out


@functools.cache
def left_out() -> frozenset[str]:
    """Ids of the cases that the committed table leaves out."""
    return frozenset(long_cases(read(TABLE.read_text(encoding="utf-8"))))


def mark(items: list[pytest.Item]) -> None:
    """Mark as `slow` what the table leaves out."""
    for item in items:
        if item.nodeid in left_out() and not item.get_closest_marker("quick"):
            item.add_marker(pytest.mark.slow)


# ---- measuring


def processor_seconds() -> float:
    """Of this process and of its children that ended: other work on the machine does not count."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Durations:
    """A plugin that measures every test, in the workers, and writes the table, in the process that has none above.

    What fixtures take counts for their file and for no test: the first one would have the time of what all share. What
    is loaded at a first export is loaded before the first test.
    """

    def __init__(self, into: Path, worker: bool) -> None:
        self.into, self.worker, self.start = into, worker, 0.0
        self.found: Seconds = defaultdict(lambda: defaultdict(float))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Load what exports load at first."""
        if any(item.get_closest_marker("exports") for item in session.items):
            for exporter in ("trace", "dynamo"):
                onnxpatch.export(torch.nn.ReLU(), (torch.ones(2),), exporter=exporter, progress=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note when a test begins."""
        self.start = processor_seconds()
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Write into the report how long this part of the test took."""
        report = (yield).get_result()  # type: ignore[misc]
        before, self.start = self.start, processor_seconds()
        report.user_properties = [*report.user_properties, ("processor", self.start - before)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add it up."""
        file, _, name = report.nodeid.partition("::")
        took = dict(report.user_properties)["processor"]
        self.found[file][name] += 0.0 if report.when == "setup" else took
        self.found[file][""] += took if report.when == "setup" else 0.0

    def pytest_sessionfinish(self) -> None:
        """Write what was measured over what the table had of these tests."""
        if self.worker:
            return
        seconds = read(self.into.read_text(encoding="utf-8")) if self.into.exists() else {}
        for file, tests in self.found.items():
            seconds[file] = {**seconds.get(file, {}), **tests}
        self.into.write_text(written(seconds), encoding="utf-8")


# ---- the guard of make check

EXPORTS = (
    "this test exports: mark it, or its file (`pytestmark = pytest.mark.exports`), so that `make check` leaves it out"
)


class NoExports:
    """A plugin under which a test that calls torch's exporters fails, unless it is marked `sample`."""

    def __init__(self) -> None:
        self.asked = False

    def refuse(self, *args: object, **kwargs: object) -> None:
        """Stands in for torch.onnx.export and torch.export.export."""
        self.asked = True
        pytest.fail(EXPORTS, pytrace=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Setup, test and teardown without exporters."""
        if item.get_closest_marker("sample"):
            yield
            return
        with pytest.MonkeyPatch.context() as changes:
            for home in (torch.onnx, torch.export):
                changes.setattr(home, "export", self.refuse)
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test that got over the failure."""
        self.asked = False
        outcome = yield
        if self.asked:
            outcome.force_exception(pytest.fail.Exception(EXPORTS, pytrace=False))  # type: ignore[attr-defined]


def add_options(add: Callable[..., None]) -> None:
    """The options of tests/conftest.py that are about tiers."""
    add("--durations-into", type=Path, help="write seconds of the processor of each test into this table")
    add("--anew", action="store_true", help="export each proof's case without its patch, whatever the record says")
    add("--no-exports", action="store_true", help="fail what calls torch's exporters and is not marked sample")


def configure(config: pytest.Config) -> None:
    """Register the plugins that were asked for."""
    if config.getoption("--no-exports"):
        config.pluginmanager.register(NoExports())
    if into := config.getoption("--durations-into"):
        config.pluginmanager.register(Durations(into, hasattr(config, "workerinput")))
