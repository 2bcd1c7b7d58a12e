"""A page as a parser and as a browser see it."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
VOID = {"meta", "br", "hr", "img", "input", "link"}
needs_browser = pytest.mark.skipif(not CHROMIUM, reason="needs a browser: apt-get install chromium")
seen = pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, False), (1280, True)])

# In the browser: whether anything hangs over the page's edge, and how many of the body and the first code are dark.
_ALWAYS = """
  const told = {};
  told.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const shade = e => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => +a + +b, 0);
  told.dark = [document.body, document.querySelector('.code')].filter(e => shade(e) < 200).length;
"""


class Page(HTMLParser):
    """Counts elements, checks that they close, and gathers what the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.fetched: list[str] = []
        self.counts: dict[str, int] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.ids |= {given["id"]} if "id" in given else set()
        self.fetched += [given[name] for name in ("src", "srcset", "data") if name in given]
        self.fetched += [given["href"]] if tag == "link" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"


def self_contained(text: str) -> Page:
    """The page, which must be well formed, without scripts, and fetch nothing."""
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert "@import" not in text and "url(" not in text
    assert page.counts.get("script", 0) == 0
    return page


def browse(text: str, folder: Path, width: int, dark: bool, script: str) -> dict[str, object]:
    """What `script` (it fills `told`) sees in chromium; a screenshot is taken as well, which must show something."""
    probe = f"<script>{_ALWAYS}{script}document.title = JSON.stringify(told);</script></body>"
    (folder / "probe.html").write_text(text.replace("</body>", probe), encoding="utf-8")
    (folder / "page.html").write_text(text, encoding="utf-8")
    common = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
              f"--window-size={width},1600", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]  # fmt: skip
    shown = subprocess.run(
        [*common, "--virtual-time-budget=2000", "--dump-dom", (folder / "probe.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    subprocess.run(
        [*common, f"--screenshot={folder / 'page.png'}", (folder / "page.html").as_uri()],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    assert (folder / "page.png").stat().st_size > 20_000
    return dict(json.loads(shown.stdout.split("<title>")[1].split("</title>")[0]))
