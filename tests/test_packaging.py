"""What setup.cfg installs is what the folders hold."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onnxpatch

ROOT = Path(__file__).parent.parent


def test_every_package_is_listed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {".".join(init.parent.relative_to(ROOT).parts) for init in (ROOT / "onnxpatch").rglob("__init__.py")}
    patches = {
        f"onnxpatch.{'.'.join(init.parent.relative_to(ROOT).parts)}" for init in (ROOT / "patches").rglob("__init__.py")
    }
    assert listed == found | patches
    folders = {folder for folder in (ROOT / "patches").iterdir() if any(folder.glob("*.py"))}
    assert all((folder / "__init__.py").exists() for folder in folders), "a folder of patches without __init__.py"


def test_what_the_pages_are_made_of_is_installed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    folder = ROOT / "onnxpatch" / "html"
    patterns = config["options.package_data"]["onnxpatch.html"].split(",")
    listed = {file for pattern in patterns for file in folder.glob(pattern.strip())}
    assert listed == {file for file in folder.iterdir() if file.is_file() and file.suffix != ".py"}


def test_the_version_is_said_once_more_and_the_same():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["metadata"]["version"] == onnxpatch.__version__


def test_the_changelog_has_a_dated_section_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"(?m)^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text)
    assert (onnxpatch.__version__, True) in [(version, bool(date)) for version, date in sections]
    assert [version for version, date in sections if not date] in ([], ["Unreleased"])


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_importing_the_kit_imports_no_library_that_it_patches():
    code = "import sys, onnxpatch; print({'einops', 'transformers', 'timm', 'onnxruntime'} & sys.modules.keys())"
    assert printed(code) == "set()"


@pytest.mark.quick  # what every change can break
def test_importing_the_kit_costs_under_a_fifth_of_a_second_beyond_torch():
    """Of the processor, so that what else the machine does is not counted."""
    code = "import torch, time; start = time.process_time(); import onnxpatch; print(time.process_time() - start)"
    assert float(printed(code)) < 0.2


BARE = """
import importlib.machinery, sys

class Bare(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {extras} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Bare
import torch, onnxpatch
assert not onnxpatch.REGISTRY.failures, onnxpatch.REGISTRY.failures
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
report = onnxpatch.export(model, (torch.randn(2, 3),), dynamic_shapes=({{0: "batch"}},), dynamo=False)
print(report.ok, report.runtime)
"""


@pytest.mark.slow
def test_no_extra_is_needed():
    """With none of them, an export is held against eager in onnx.reference."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = re.findall(r"(?m)^([a-z][\w-]*)", "\n".join(config["options.extras_require"].values()))
    extras = {name.replace("-", "_") for name in wanted} - {"onnxpatch"} | {"pydantic_core", "torchvision"}
    assert {"onnxruntime", "typer", "rich", "jinja2", "openvino", "transformers", "timm"} <= extras
    assert printed(BARE.format(extras=sorted(extras))) == "True reference"
