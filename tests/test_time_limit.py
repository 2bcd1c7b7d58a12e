"""A time limit ends Python at safe lines only, and says so wherever it came."""

import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import FunctionType

import pytest

from onnxpatch.limits import TimeLimit, limited

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no alarm signal"),
    pytest.mark.exports,
]


def wait(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_loop_is_ended_and_the_alarm_is_off_again():
    start, tracer, others = time.monotonic(), sys.gettrace(), signal.getitimer(signal.ITIMER_REAL)[1]
    with pytest.raises(TimeLimit, match=r"more than 0\.05 s"), limited(0.05):
        wait(30)
    assert time.monotonic() - start < 10
    assert signal.getitimer(signal.ITIMER_REAL)[1] == others and sys.gettrace() is tracer


def test_time_inside_of_one_package_alone_is_counted(monkeypatch):
    monkeypatch.setattr("onnxpatch.limits._LOOK", 0.02)
    there = FunctionType(wait.__code__, {**globals(), "__name__": "elsewhere.part"})
    with limited(0.05, processor=True, inside="elsewhere"):
        wait(0.2)
    with pytest.raises(TimeLimit), limited(0.05, processor=True, inside="elsewhere"):
        there(30)


def test_no_with_finally_or_except_is_ended():
    done = []

    class Slow:
        def __enter__(self):
            wait(0.1)

        def __exit__(self, *_):
            wait(0.1)
            done.append("left")

    def run():
        with Slow():
            done.append("entered")
            try:
                1 / 0  # noqa: B018
            except ZeroDivisionError:
                wait(0.1)
                done.append("caught")
            finally:
                wait(0.1)
                done.append("finally")

    for seconds in (0.05, 0.15, 0.25, 0.35):
        done.clear()
        with pytest.raises(TimeLimit), limited(seconds):
            run()
        assert "entered" not in done or done[-1] == "left"


@pytest.mark.parametrize("kept", [False, True])  # pytest's own hook keeps it until the test ends
def test_what_is_swallowed_is_raised_again(monkeypatch, kept):
    swallowed, alive = [], []
    monkeypatch.setattr(
        sys,
        "unraisablehook",
        lambda found: swallowed.append(found.exc_type) or (alive.append(found.exc_value) if kept else None),
    )

    class Thing:
        pass

    def collected(_):  # no one hears of an exception in a callback of weakref's
        wait(0.2)

    def run():
        thing = Thing()
        _kept = weakref.ref(thing, collected)
        del thing
        wait(30)

    start = time.monotonic()
    with pytest.raises(TimeLimit), limited(0.05):
        run()
    assert swallowed == [TimeLimit] and time.monotonic() - start < 10


def test_a_block_without_a_safe_line_is_ended_at_its_end():
    reached = False
    with pytest.raises(TimeLimit), limited(0.02):
        time.sleep(0.1)
        reached = True
    assert reached


def test_an_alarm_and_a_trace_function_of_somebody_else_stay():
    def rung(*_):
        raise AssertionError

    def traced(*_):
        return None

    before, tracer = signal.signal(signal.SIGALRM, rung), sys.gettrace()
    signal.setitimer(signal.ITIMER_REAL, 100)
    sys.settrace(traced)
    try:
        with pytest.raises(TimeLimit), limited(0.02):
            wait(30)
        found = sys.gettrace(), signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    finally:
        sys.settrace(tracer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found[:2] == (traced, rung) and 60 < found[2] < 100


def run_limited(exporter, times, seed):
    """In a process of its own, since the fault that is looked for is its end by a signal."""
    command = [sys.executable, "tests/onnxfile/limited_exports.py", exporter, str(times), str(seed)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0 and "Exception ignored" not in done.stderr, (done.returncode, done.stderr[-3000:])
    return int(done.stdout.split()[-1])


@pytest.mark.slow  # ten seconds of exports that are ended
def test_an_export_may_be_ended_at_any_moment():
    assert run_limited("trace", 8, 0) >= 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("exporter", "times"), [("trace", 200), ("dynamo", 60)])
@pytest.mark.parametrize("seed", range(1, 4))
def test_exports_may_be_ended_at_any_moment_many_times(exporter, times, seed):
    assert run_limited(exporter, times, seed) >= times // 2
