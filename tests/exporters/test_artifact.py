"""Where a file goes: devices and pipes, links, modes, and what a killed export leaves behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.exporters import artifact
from onnxpatch.exporters.artifact import OutFile, write_text
from onnxpatch.messages.text import one_line

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="devices, pipes and modes of POSIX"), pytest.mark.exports]
MODEL, X = torch.nn.Linear(2, 2).eval(), torch.ones(1, 2)


def export(place: Path | str, **options: object) -> onnxpatch.Report:
    return onnxpatch.export(MODEL, (X,), place, dynamo=False, check=False, **options)


def loads(file: Path | bytes) -> bool:
    proto = onnx.load_from_string(file) if isinstance(file, bytes) else onnx.load(file)
    return [node.op_type for node in proto.graph.node] == ["Gemm"]


def test_a_device_is_written_through(tmp_path: Path) -> None:
    null, before = tmp_path / "null", os.stat("/dev/null")
    try:
        os.mknod(null, 0o666 | stat.S_IFCHR, before.st_rdev)
        null.open("wb").close()
    except OSError:
        null = Path("/dev/null")
        if os.access(null.parent, os.W_OK):
            pytest.skip("no device can be made here, and a fault would replace the real one")
    link = tmp_path / "m.onnx"
    link.symlink_to(null)
    for place in (null, link):
        export(place)
        write_text(place, "a page")
    assert stat.S_ISCHR(os.stat(null).st_mode) and link.is_symlink()
    assert not [one for one in os.listdir(tmp_path) if one.startswith(".onnxpatch")]


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    with OutFile(pipe) as out:
        out.path.write_bytes(bytes(300_000))
        reader.start()
        while True:  # the reader's open() ends when the writer's begins
            try:
                out.keep()
                break
            except onnxpatch.InputError:
                continue
    reader.join(20)
    assert got == [bytes(300_000)] and stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_pipe_without_a_reader_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(onnxpatch.InputError, match="nobody reads from the pipe"):
        export(tmp_path / "pipe")
    with pytest.raises(onnxpatch.InputError, match="nobody reads from the pipe"):
        write_text(tmp_path / "pipe", "a page")
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_takes_no_weights_in_another_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with OutFile(tmp_path / "pipe") as out:
        out.path.write_bytes(b"model")
        out.path.with_name("weights").write_bytes(b"weights")
        with pytest.raises(onnxpatch.InputError, match="takes one file"):
            out.keep()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.onnx", tmp_path / "m.onnx"
    link.symlink_to(real)
    for _ in range(2):  # it leads to nothing at first
        report = export(link)
        assert link.is_symlink() and not real.is_symlink() and loads(real) and report.notes == []
    assert report.file == str(link)
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "no" / "folder")
    for place in ("a", "c"):
        with pytest.raises(onnxpatch.InputError):
            export(tmp_path / place)


def test_weights_go_beside_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "m.onnx"
    link.symlink_to(tmp_path / "there" / "real.onnx")
    with OutFile(link) as out:
        assert out.path.name == "real.onnx"
        out.path.write_bytes(b"model")
        out.path.with_name("real.onnx.data").write_bytes(b"weights")
        out.keep()
    assert (tmp_path / "there" / "real.onnx.data").read_bytes() == b"weights"
    assert "the weights are beside the file it leads to" in out.notes[0]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_the_mode_is_kept(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    for name in ("m.onnx", "m.html"):
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(mode)
    export(file)
    write_text(tmp_path / "m.html", "new")
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE((tmp_path / "m.html").stat().st_mode) == mode
    assert loads(file) and (tmp_path / "m.html").read_text() == "new"


def test_weights_are_as_private_as_the_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("old")
    (tmp_path / "m.onnx").chmod(0o600)
    with OutFile(tmp_path / "m.onnx") as out:
        out.path.write_bytes(b"model")
        out.path.with_name("m.onnx.data").write_bytes(b"weights")
        out.keep()
    assert stat.S_IMODE((tmp_path / "m.onnx.data").stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_text("old")
    os.chown(file, 12345, 23456)
    export(file)
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_a_hard_link_keeps_the_old_file_and_the_report_says_so(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("old")
    os.link(tmp_path / "other", tmp_path / "m.onnx")
    report = export(tmp_path / "m.onnx")
    assert loads(tmp_path / "m.onnx") and (tmp_path / "other").read_text() == "old"
    assert "1 other name (hard links)" in str(report)
    assert export(tmp_path / "m.onnx").notes == []


@pytest.mark.parametrize("name", ["n" * 300 + ".onnx", "a\0b.onnx", "m.onnx/m.onnx", "é" * 200, "\udcff.onnx", "new/"])
def test_names_that_no_file_system_takes(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("a file")
    for call in (
        lambda place: export(place),
        lambda place: write_text(place, "page"),
        lambda place: onnxpatch.verify(place, MODEL, (X,)),
        lambda place: onnxpatch.Session(place),
    ):
        with pytest.raises(onnxpatch.InputError) as caught:
            call(f"{tmp_path}/{name}")
        assert "⏎" not in one_line(str(caught.value))
    assert os.listdir(tmp_path) == ["m.onnx"]


# ------------------------------------------------------------------ killed exports
KILLED = """
import os, sys, time
from onnxpatch.exporters.artifact import OutFile
with OutFile(sys.argv[1]) as out:
    out.path.write_text("half")
    print("made", flush=True)
    time.sleep(60)
"""


def _killed(file: Path, how: int | None) -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "made\n"
    if how is not None:
        child.send_signal(how)
        child.wait(20)
    return child


def _hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(artifact.PREFIX)]


def test_the_next_export_sweeps_what_killed_ones_left(tmp_path: Path) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        _killed(tmp_path / "m.onnx", how)
        assert len(_hidden(tmp_path)) == 1  # the second has removed what the first one left
    alive, left = _killed(tmp_path / "m.onnx", None), tmp_path / ".onnxpatch-left"
    left.mkdir()
    (left / artifact._Lock.NAME).write_text("")
    try:
        assert len(_hidden(tmp_path)) == 2
        export(tmp_path / "other.onnx")
        assert len(_hidden(tmp_path)) == 1  # that of the process which is alive
    finally:
        alive.kill()
        alive.wait(20)
    with OutFile(tmp_path / "m.onnx") as out, OutFile(tmp_path / "n.onnx"):
        assert len(_hidden(tmp_path)) == 2 and out.path.parent.exists()
    assert _hidden(tmp_path) == []


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_disk_that_is_full_ends_the_export_in_one_line(tmp_path: Path, exporter: str) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no file takes a byte
    try:
        with pytest.raises(onnxpatch.InputError, match=r"^the file cannot be written in .*\n.*choose another place$"):
            onnxpatch.export(MODEL, (X,), tmp_path / "m.onnx", exporter=exporter)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert _hidden(tmp_path) == []


def test_what_is_not_ours_is_not_swept(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / artifact._Lock.NAME).write_text("")
    (tmp_path / ".onnxpatch-link").symlink_to(victim)
    (tmp_path / ".onnxpatch-cache").mkdir()
    (tmp_path / ".onnxpatch-file").write_text("a file")
    linked = tmp_path / ".onnxpatch-lock"
    linked.mkdir()
    (linked / artifact._Lock.NAME).symlink_to(tmp_path / ".onnxpatch-file")
    artifact.sweep(tmp_path)
    assert victim.exists() and sorted(_hidden(tmp_path)) == [
        ".onnxpatch-cache", ".onnxpatch-file", ".onnxpatch-link", ".onnxpatch-lock",
    ]  # fmt: skip


def test_without_locks_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "fcntl", None)
    with OutFile(tmp_path / "m.onnx") as out:
        artifact.sweep(tmp_path)
        out.path.write_text("model")
        out.keep()
    assert (tmp_path / "m.onnx").read_text() == "model" and _hidden(tmp_path) == []
