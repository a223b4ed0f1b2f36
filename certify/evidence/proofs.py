"""Phase "spec current": were the theorems compiled here, and do the files still say what was compiled?"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.certificate import ProofRecord

STATE = Path(".attnspec") / "proofs.json"


def proof_state(start: Path | None = None) -> ProofRecord:
    """What is known about the proofs; a UsageError when files, vectors and what was compiled contradict each other.

    Looks upward from `start` (default: the working directory), then beside this package. An installed wheel has
    neither spec/ nor a state: that is recorded, and fails nothing.
    """
    root = _root(start or Path.cwd())
    if root is None:
        return not_compiled_here("no spec/ and no proof state found: an installed package does not carry them")
    state = _read_state(root / STATE)
    digests = source_digests(root)
    vectors = _vectors(root, digests.get("spec"))
    if state is None:
        return not_compiled_here("the proofs were not compiled here: `make proofs` does it", digests, vectors)
    for name, now in digests.items():
        then = _state_digest(state, name)
        if then is not None and then != now:
            raise UsageError(
                f"{root / name}/ has changed since its proofs were compiled "
                f"(digest {now[:12]}, compiled {then[:12]}): run `make proofs`"
            )
    compared = [name for name in digests if _state_digest(state, name) is not None]
    toolchain = str(state.get("toolchain", "an unknown toolchain"))
    theorems = _theorems(state)
    return ProofRecord(
        compiled="here",
        toolchain=toolchain,
        digests=digests or {n: d for n in ("spec", "proofs") if (d := _state_digest(state, n)) is not None},
        vectors=vectors,
        agrees=True if compared else None,
        theorems=theorems,
        detail=f"{len(theorems)} theorems compiled here under {toolchain} ({state.get('audit', 'no axiom audit')})",
    )


def checked_here(proofs: ProofRecord, theorem: str | None) -> bool:
    """Was that theorem among those compiled here? False where only the whole is known not to be."""
    if theorem is None or proofs.compiled != "here":
        return False
    names = {name.rpartition(".")[2] for name in proofs.theorems}
    return theorem.rpartition(".")[2] in names


def source_digests(root: Path) -> dict[str, str]:
    """Digests of spec/ and proofs/ where they are, by the rule of tools/lean/digest.py."""
    return {name: folder_digest(root / name) for name in ("spec", "proofs") if (root / name).is_dir()}


def folder_digest(folder: Path) -> str:
    """SHA-256 over the relative paths and contents of all *.lean files below a folder, in order of path.

    The rule of tools/lean/digest.py, written again: that file is not installed, and a folder found on the way up
    from the working directory must not have its code run.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.lean"), key=lambda p: p.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _root(start: Path) -> Path | None:
    places = (start.resolve(), *start.resolve().parents, Path(__file__).resolve().parents[2])
    for place in places:
        if (place / STATE).is_file() or (place / "spec" / "AttnSpec.lean").is_file():
            return place
    return None


def _read_state(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: cannot read the proof state: {error}: run `make proofs`") from error


def _state_digest(state: dict[str, Any], name: str) -> str | None:
    found = state.get(f"{name}_digest")
    return found if isinstance(found, str) else None


def _theorems(state: dict[str, Any]) -> list[str]:
    found = state.get("theorems", [])
    return [str(entry["name"]) for entry in found if isinstance(entry, dict) and "name" in entry]


def _vectors(root: Path, spec_digest: str | None) -> str:
    """The state of the vectors in words; a UsageError when they were made from another spec/."""
    file = root / "spec" / "vectors" / "manifest.json"
    if not file.is_file():
        return "none here"
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{file}: cannot read it: {error}: run `make vectors`") from error
    then = _state_digest(manifest, "spec")
    if then is None or spec_digest is None:
        return "here, with no digest to compare"
    if then != spec_digest:
        raise UsageError(
            f"{file.parent}/ was made from another spec/ (digest {then[:12]}, now {spec_digest[:12]}): "
            "run `make vectors`"
        )
    return "made from this spec/"


def not_compiled_here(detail: str, digests: dict[str, str] | None = None, vectors: str = "none here") -> ProofRecord:
    """The record where nothing is known to have been compiled; `detail` says why."""
    return ProofRecord(
        compiled="not here",
        toolchain=None,
        digests=digests or {},
        vectors=vectors,
        agrees=None,
        theorems=[],
        detail=detail,
    )
