"""Compiles the specification and every proof, and says what was checked and how.

    python3 tools/lean/check.py [--json] [--timeout SECONDS] [--root FOLDER]

Uses `lake build` where there is a native Lean, and otherwise the WebAssembly build of toolchain.py. Exit status 0:
every theorem checked; 1: something is wrong, printed as file:line. Writes .attnspec/proofs.json on success.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.lean import gate, native
from tools.lean.digest import ROOT, folder_digest
from tools.lean.flatten import flatten, load, order
from tools.lean.lean_run import run
from tools.lean.toolchain import LEAN_VERSION, ToolchainError, find_lake, install

STATE = Path(".attnspec") / "proofs.json"

# False: a hidden key has weight zero. A checker that lets it pass checks nothing.
CANARY = """\
theorem AttnProofs.canary {R : Type} [Lean.Grind.CommRing R] [Inv R] [AttnSpec.Exp R] {nQ nK d dv : Nat}
    {p : AttnSpec.Params R nQ nK} (x : AttnSpec.Inputs R nQ nK d dv) {i : Fin nQ} {j : Fin nK}
    (h : p.visible i j = false) : AttnSpec.weights p x i j = 1 := (AttnProofs.masked_weight_zero x h).1
"""


class Failure(Exception):
    """The check failed; each line says where and why."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True)
class Checked:
    """How the sources were checked: which Lean, and which audit stands behind the claims."""

    toolchain: str
    audit: str


def check_native(lake: str, root: Path, names: list[str], timeout: float) -> Checked:
    """Builds with lake, audits axioms, and sees the false theorem rejected. Raises Failure."""
    built = native.call([lake, "build"], root, timeout)
    if built.timed_out:
        raise Failure((f"lake build did not finish within {timeout:.0f} s",))
    bad = [line for line in built.output.splitlines() if "error:" in line or "warning:" in line]
    if built.status != 0 or bad:
        raise Failure(tuple(bad or built.output.splitlines()[-20:]))
    if wrong := native.audit_axioms(lake, root, names, timeout):
        raise Failure(tuple(wrong))
    canary = native.run_text(lake, root, "import AttnProofs\n" + CANARY, timeout)
    if canary.status == 0 or canary.output.count("error") == 0:
        raise Failure(("the deliberately false theorem was accepted: this Lean checks nothing",))
    return Checked(
        native.version(lake, root), "axioms: propext, Classical.choice and Quot.sound at most, for each claim"
    )


def check_fallback(root: Path, timeout: float) -> Checked:
    """Elaborates all files as one, with the false theorem last, and demands its rejection and no other message."""
    lean = install()
    flat = flatten(order(load(tuple(root / name for name in gate.FOLDERS)), gate.ROOTS), CANARY)
    first_own = len(flat.text.splitlines()) - len(CANARY.splitlines()) + 1
    with tempfile.TemporaryDirectory(prefix="attnspec-") as folder:
        file = Path(folder) / "Flat.lean"
        file.write_text(flat.text, encoding="utf-8")
        result = run(lean, file, timeout)
    if result.timed_out:
        raise Failure((f"Lean did not finish within {timeout:.0f} s",))
    rejected = 0
    lines: list[str] = []
    for message in result.messages:
        if message.line >= first_own and message.severity == "error":
            rejected += 1
        elif message.severity in ("error", "warning"):
            origin = flat.locate(message.line)
            place = f"{origin[0].relative_to(root)}:{origin[1]}" if origin else f"flat:{message.line}"
            lines.append(f"{place}:{message.column}: {message.severity}: {message.text}")
    if lines:
        raise Failure(tuple(lines))
    if rejected != 1:
        detail = result.output[-800:] if rejected == 0 else "\n".join(m.text for m in result.messages)
        raise Failure((f"the deliberately false theorem drew {rejected} errors instead of one: {detail}",))
    if result.status != 1:
        raise Failure((f"Lean ended with status {result.status} and not 1: {result.output[-800:]}",))
    return Checked(
        f"Lean {LEAN_VERSION}", "source gate: no open proof, axiom, compiled-code trust or code run while checking"
    )


def check(root: Path, timeout: float) -> dict[str, object]:
    """Checks everything under root and gives the state to record. Raises Failure or ToolchainError."""
    started = time.monotonic()
    findings = gate.audit(root)
    if findings:
        raise Failure(
            tuple(
                f"{f.path.relative_to(root) if f.path.is_relative_to(root) else f.path}:{f.line}: {f.reason}"
                for f in findings
            )
        )
    claims = gate.headlines(root)
    digests = folder_digest(root / "spec"), folder_digest(root / "proofs")
    lake = find_lake()
    if lake:
        done = check_native(lake, root, [f"AttnProofs.{claim.name}" for claim in claims], timeout)
    else:
        done = check_fallback(root, timeout)
    if digests != (folder_digest(root / "spec"), folder_digest(root / "proofs")):
        raise Failure(("the sources changed while they were being checked: run again",))
    return {
        "status": "checked",
        "toolchain": done.toolchain,
        "native": lake is not None,
        "audit": done.audit,
        "canary": "rejected",
        "spec_digest": digests[0],
        "proofs_digest": digests[1],
        "theorems": [{"name": claim.name, "sentence": claim.sentence} for claim in claims],
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 1),
    }


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="check.py", description="Compile the Lean specification and proofs.")
    parser.add_argument("--json", action="store_true", help="print the recorded state as JSON and nothing else")
    parser.add_argument("--timeout", type=float, default=480, help="seconds for one run of Lean (default 480)")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder that holds spec/ and proofs/")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    state_file = root / STATE
    state_file.unlink(missing_ok=True)
    try:
        state = check(root, options.timeout)
    except Failure as failure:
        for line in failure.lines:
            print(line, file=sys.stderr)
        print(f"proofs: NOT checked, {len(failure.lines)} finding(s)", file=sys.stderr)
        return 1
    except ToolchainError as error:
        print(f"proofs: NOT checked: {error}", file=sys.stderr)
        return 1
    state_file.parent.mkdir(exist_ok=True)
    state_file.write_text(json.dumps(state, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(state, indent=1, ensure_ascii=False))
        return 0
    claims = gate.headlines(root)
    for claim in claims:
        print(f"{claim.name} — {claim.sentence}")
    print(f"proofs: {len(claims)} claims and all that they rest on, checked by {state['toolchain']}")
    print(f"proofs: it took {state['seconds']} s")
    print(f"proofs: audit by {state['audit']}")
    print("proofs: a deliberately false theorem was rejected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
