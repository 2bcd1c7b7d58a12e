"""Paths as results show them: relative to site-packages or to the working folder; on pages without other folders.

    /usr/lib/python3/site-packages/timm/layers/pool.py:31    timm/layers/pool.py:31
    /home/me/project/net.py:7, in /home/me/project           net.py:7
    /data/models/net.onnx                                    stays; `without_folders`, for pages: net.onnx

Called where a text is finished: what a result holds are whole paths, which tools can open.
"""

from __future__ import annotations

import os
import re
import sysconfig

_PACKAGES = re.compile(r"(?<![\w.-])(?:[A-Za-z]:)?[\\/][^\s\"'(<>|]*[\\/](?:site|dist)-packages[\\/]")
_ABSOLUTE = re.compile(r"(?<![\w./\\<-])(?:[A-Za-z]:[\\/]|/)(?:[\w.@+~ -]+[\\/])+(?=[\w.@+~-])")


def relative(text: str) -> str:
    """`text` with paths inside site-packages, Python's own library and the working folder as relative ones."""
    if "/" not in text and "\\" not in text:
        return text
    text = _PACKAGES.sub("", text)
    for folder in (os.getcwd(), sysconfig.get_path("stdlib")):
        if len(folder) > 1:  # the root of the file system is part of every path
            text = re.sub(rf"(?<![\w.-]){re.escape(folder.rstrip(os.sep) + os.sep)}", "", text)
    return text


def without_folders(text: str) -> str:
    """`relative` text in which what is still an absolute path is its last part: whoever reads it has other folders.

    Only folders that exist count: names of nodes in a graph begin with a slash as well.
    """
    return _ABSOLUTE.sub(lambda found: "" if os.path.isdir(found[0]) else found[0], relative(text))
