"""Writes spec/vectors/*.json from what Lean computes, or checks that they are what Lean computes.

    python3 tools/lean/vectors.py [--check] [--no-lean] [--timeout SECONDS]

Without an option: regenerate. With --check: compare the digests recorded in spec/vectors/manifest.json with the
sources, then, where a Lean is to be had, regenerate into memory and compare every byte. --no-lean leaves out the
second part. Exit status 1: something differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.lean import native
from tools.lean.digest import ROOT, file_digest, folder_digest
from tools.lean.flatten import flatten, load, order
from tools.lean.lean_run import run
from tools.lean.toolchain import ToolchainError, find_lake, install

FORMAT = 1
FOLDER = Path("spec") / "vectors"
PROGRAM = Path("tools") / "lean" / "Vectors.lean"


class VectorError(Exception):
    """The vectors could not be made; the text says why."""


def generate(root: Path, timeout: float) -> dict[str, str]:
    """File name to content, for every family, as Lean prints them. Raises VectorError or ToolchainError."""
    lake = find_lake()
    if lake:
        outcome = native.call([lake, "exe", "vectors"], root, timeout)
        text, status, late = outcome.output, outcome.status, outcome.timed_out
    else:
        flat = flatten(order(load((root / "spec", root / PROGRAM.parent)), ("Vectors",)), "#eval main\n")
        with tempfile.TemporaryDirectory(prefix="attnspec-") as folder:
            file = Path(folder) / "Flat.lean"
            file.write_text(flat.text, encoding="utf-8")
            result = run(install(), file, timeout)
        for message in result.messages:
            if message.severity == "error":
                origin = flat.locate(message.line)
                place = f"{origin[0].relative_to(root)}:{origin[1]}" if origin else "#eval main"
                raise VectorError(f"{place}: {message.text}")
        text, status, late = result.output, result.status, result.timed_out
    if late:
        raise VectorError(f"Lean did not finish within {timeout:.0f} s")
    if status != 0:
        raise VectorError(f"Lean ended with status {status}: {text[-800:]}")
    return split(text)


def split(text: str) -> dict[str, str]:
    """The program's output cut into files: a JSON array each, one case a line."""
    cases: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.startswith("@file "):
            current = cases.setdefault(line.removeprefix("@file ") + ".json", [])
        elif line == "@end":
            return {name: "[\n" + ",\n".join(lines) + "\n]\n" for name, lines in cases.items()}
        elif current is not None and line.startswith("{"):
            json.loads(line)
            current.append(line)
    raise VectorError("Lean's output has no end: it was cut off")


def manifest(root: Path, files: dict[str, str]) -> str:
    """What the vectors were made from: digests of spec/ and of the program, and the number of cases of each file."""
    record = {
        "format": FORMAT,
        "spec_digest": folder_digest(root / "spec"),
        "program_digest": file_digest(root / PROGRAM),
        "cases": {name: len(json.loads(content)) for name, content in sorted(files.items())},
    }
    return json.dumps(record, indent=1) + "\n"


def write(root: Path, timeout: float) -> int:
    """Regenerates the folder; gives the number of cases."""
    files = generate(root, timeout)
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.json"):
        if stale.name not in files:
            stale.unlink()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "manifest.json").write_text(manifest(root, files), encoding="utf-8")
    return sum(len(json.loads(content)) for content in files.values())


def stale(root: Path) -> list[str]:
    """What the manifest says otherwise than the tree; empty when the vectors belong to these sources."""
    path = root / FOLDER / "manifest.json"
    if not path.exists():
        return [f"{FOLDER}/manifest.json is missing: run tools/lean/vectors.py"]
    record = json.loads(path.read_text(encoding="utf-8"))
    wrong = []
    for key, now in (("spec_digest", folder_digest(root / "spec")), ("program_digest", file_digest(root / PROGRAM))):
        if record.get(key) != now:
            wrong.append(f"{FOLDER}/manifest.json: {key} is {record.get(key)}, the sources have {now}")
    present = {p.name for p in (root / FOLDER).glob("*.json")} - {"manifest.json"}
    if present != set(record["cases"]):
        wrong.append(f"{FOLDER}: files {sorted(present)} differ from the manifest's {sorted(record['cases'])}")
    for name in sorted(present & set(record["cases"])):
        found = len(json.loads((root / FOLDER / name).read_text(encoding="utf-8")))
        if found != record["cases"][name]:
            wrong.append(f"{FOLDER}/{name}: {found} cases, the manifest says {record['cases'][name]}")
    return wrong


def differences(root: Path, timeout: float) -> list[str]:
    """Files that Lean would write otherwise. Raises VectorError or ToolchainError."""
    wrong = []
    for name, content in generate(root, timeout).items():
        path = root / FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            wrong.append(f"{FOLDER}/{name} is not what Lean computes")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="vectors.py", description="Make or check the exact test vectors.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--no-lean", action="store_true", help="with --check: digests only")
    parser.add_argument("--timeout", type=float, default=480, help="seconds for one run of Lean (default 480)")
    parser.add_argument("--root", type=Path, default=ROOT, help="top folder of the project")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        if not options.check:
            print(f"vectors: {write(root, options.timeout)} cases written to {FOLDER}")
            return 0
        wrong = stale(root)
        how = "digests only"
        if not wrong and not options.no_lean:
            try:
                wrong = differences(root, options.timeout)
                how = "regenerated by Lean and compared"
            except ToolchainError as error:
                how = f"digests only, no Lean here: {error}"
    except (VectorError, ToolchainError) as error:
        print(f"vectors: {error}", file=sys.stderr)
        return 1
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"vectors: {'NOT current' if wrong else 'current'} ({how})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
