"""Where an exporter stands that takes long."""

import subprocess
import sys

from onnxpatch.messages.user_code import told_when_late


def test_a_long_call_says_once_where_it_is_and_a_short_one_nothing(capsys) -> None:
    with told_when_late("dynamo export of Net", "max_seconds= ends it", after=0.05):
        subprocess.run(
            [sys.executable, "-c", "import time; time.sleep(0.3)"], check=True
        )  # Python's own lines are passed over
    said = capsys.readouterr().err
    assert said.startswith("onnxpatch: dynamo export of Net takes longer than 0 s, at ")
    assert "test_told_when_late.py:" in said and said.endswith(": max_seconds= ends it\n") and said.count("\n") == 1
    with told_when_late("trace export of Net", ""):
        pass
    assert not capsys.readouterr().err
