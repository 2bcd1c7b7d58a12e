"""Pages that are written from the code: a catalogue page for each patch, and the schemas of what `--json` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from onnxpatch.cli import inspect_model, registry_commands
from onnxpatch.diagnosis.proof_trial import TOLERANCE
from onnxpatch.html.planned import original, source
from onnxpatch.patching.registry import REGISTRY, Patch
from onnxpatch.results.schema import diagnosis_schema, report_schema, schema_of


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with the pages it found."""
    from mkdocs.structure.files import File  # here: the tests read these pages without mkdocs

    patches = _patches()
    pages = {f"patches/{patch.name}.md": patch_page(patch) for patch in patches}
    pages["patches/index.md"] = index_page(patches)
    pages |= {f"{name.lower()}.md": _of_repository(f"{name}.md") for name in ("CONTRIBUTING", "CHANGELOG")}
    pages |= {f"{name}.schema.json": json.dumps(schema, indent=2) for name, schema in schemas().items()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The overview is the README, whose links lead to files of the repository: to a page where there is one."""
    return _of_repository("README.md") if page.file.src_uri == "index.md" else markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """In the reference each parameter begins a line, as it does in its docstring: Markdown joins the lines."""
    return broken(html) if page.file.src_uri.startswith(("reference/", "testing")) else html


def broken(html: str) -> str:
    """The same with a line break before each `name: ` or `name, name: ` that begins a line."""
    return re.sub(r"\n(?=[a-z_]+(?:, [a-z_]+)*: )", "<br>\n", html)


def _of_repository(name: str) -> str:
    """A file of the repository as a page: its links lead to pages, and to files by their names alone."""
    text = (Path(__file__).parent.parent / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", text)
    text = re.sub(r"\]\((CONTRIBUTING|CHANGELOG)\.md\)", lambda found: f"]({found[1].lower()}.md)", text)
    return re.sub(
        r"\[`?([^\]`]+)`?\]\((?:\.\./)?(?:examples|benchmarks/|tests|patches|[A-Z_]+\.md)[^)]*\)", r"`\1`", text
    )


def schemas() -> dict[str, Any]:
    """What each command's --json holds."""
    layouts = registry_commands.JSON | inspect_model.JSON
    rest = {name: schema_of(layout, name) for name, layout in layouts.items()}
    return {"report": report_schema(), "diagnosis": diagnosis_schema(), **rest}


def _patches() -> list[Patch]:
    return sorted(REGISTRY, key=lambda patch: patch.name)


def index_page(patches: list[Patch]) -> str:
    """The table of all patches."""
    rows = [f"| [{p.name}]({p.name}.md) | {_targets(p)} | {_cell(p.why)} |" for p in patches]
    head = ["# Patches", "", "The search finds patches by name, by what they stand in for and by the error.", ""]
    head += [f'??? note "All {len(rows)} patches"', ""]
    table = ["| patch | stands in for | the error it cures |", "| --- | --- | --- |", *rows]
    return "\n".join([*head, *(f"    {line}" for line in table)])


def patch_page(patch: Patch) -> str:
    """One patch: the error it cures, code before and after, proof, when."""
    link = [f"Discussed at <{patch.link}>.", ""] if patch.link else []
    parts = [
        f"# {patch.name}", "", f"!!! failure \"{_cell(patch.why)}\"", "", *link,
        f"Stands in for {', '.join(f'`{one}`' for one in patch.targets[:12])}"
        + (f" and {len(patch.targets) - 12} more." if len(patch.targets) > 12 else "."),
        "", "## Before", "", _block(original(patch)), "", "## After", "", _block(source(patch.stand_in)), "",
        "## Proof", "", *_proof(patch), "", "## When", "", *_when(patch),
    ]  # fmt: skip
    return "\n".join(parts)


def _proof(patch: Patch) -> list[str]:
    proof = patch.proof
    if proof is None:
        return ["None yet."]
    sizes = len(proof.examples())
    lines = [f"- Refused or wrong without it: {', '.join(proof.fails)}; found: `{proof.reason}`"] if proof.fails else []
    lines += [f"- Right without it, with more nodes: {', '.join(proof.leaner)}"] if proof.leaner else []
    lines += [f"- Right without it, {ratio:g} times as long: {name}" for name, ratio in proof.slower.items()]
    return [
        *lines,
        f"- Right with it in {', '.join(proof.served())}, at {sizes} inputs of which one is traced, "
        f"within {TOLERANCE:g} of the output's largest magnitude",
        f"- Run it: `onnxpatch list {patch.name} --prove`",
        "", _block(source(proof.build)),
    ]  # fmt: skip


def _when(patch: Patch) -> list[str]:
    when = patch.when
    lowest, highest = when.opset
    return [
        f"- Versions: {', '.join(f'`{one}`' for one in when.requires) or 'any'}",
        f"- Exporters: {', '.join(when.exporters)}",
        f"- Opset: {lowest or 'any'} to {highest or 'any'}",
    ]


def _targets(patch: Patch) -> str:
    more = len(patch.targets) - 3
    return ", ".join(f"`{one}`" for one in patch.targets[:3]) + (f" and {more} more" if more > 0 else "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace('"', "'")


def _block(code: str) -> str:
    return f"```python\n{code}\n```"
