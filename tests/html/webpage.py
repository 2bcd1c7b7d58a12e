"""A page as a parser and as a browser see it."""

from __future__ import annotations

import html
import importlib.util
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
_AXE = importlib.util.find_spec("axe_core_python")
AXE = Path(_AXE.origin or "").with_name("axe.min.js") if _AXE else None
needs_axe = pytest.mark.skipif(not AXE, reason="needs axe: pip install axe-core-python")
seen = pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, False), (1280, True)])

# In the browser: whether anything hangs over the page's edge, and how many of the body and the first code are dark.
_ALWAYS = """
  const told = {};
  told.width = window.innerWidth;
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


def barriers(text: str, folder: Path, dark: bool) -> list[str]:
    """What axe finds that keyboards, screen readers or weak eyes stumble over, every part of the page being open."""
    assert AXE is not None
    opened = text.replace("<details>", "<details open>").replace('<details class="idle">', "<details open>")
    script = f"<script>{AXE.read_text(encoding='utf-8')}</script>"
    run = """<script>axe.run().then(found => {
      document.title = JSON.stringify({barriers: found.violations.map(one => one.id + ': ' + one.nodes[0].html)});
    });</script></body>"""
    (folder / "axe.html").write_text(opened.replace("</body>", f"{script}{run}"), encoding="utf-8")
    shown = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'axe'}",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=20000", "--dump-dom",
         (folder / "axe.html").as_uri()],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    told = json.loads(html.unescape(shown.stdout.split("<title>")[1].split("</title>")[0]))
    return list(told["barriers"])


def browse(text: str, folder: Path, width: int, dark: bool, script: str) -> dict[str, object]:
    """What `script` (it fills `told`) sees in chromium; a screenshot is taken as well, which must show something.

    In a frame: chromium makes no window narrower than 500 pixels.
    """
    probe = f"<script>{_ALWAYS}{script}parent.postMessage(JSON.stringify(told), '*');</script></body>"
    frame = f"style='width: {width}px; height: 1600px; border: 0'"
    heard = "<script>addEventListener('message', one => { document.title = one.data; });</script>"
    for name, page in (("probe", text.replace("</body>", probe)), ("page", text)):
        (folder / f"{name}.inner.html").write_text(page, encoding="utf-8")
        shown_in = f"<title></title>{heard}<body style='margin: 0'><iframe src='{name}.inner.html' {frame}></iframe>"
        (folder / f"{name}.html").write_text(shown_in, encoding="utf-8")
    common = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
              f"--window-size={max(width, 500)},1600",
              f"--blink-settings=preferredColorScheme={0 if dark else 1}"]  # fmt: skip
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
