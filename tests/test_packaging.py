"""What setup.cfg installs is what the folders hold."""

import configparser
from pathlib import Path

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


def test_importing_the_kit_imports_no_library_that_it_patches():
    import subprocess
    import sys

    code = "import sys, onnxpatch; print({'einops', 'transformers', 'timm', 'onnxruntime'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "set()"
