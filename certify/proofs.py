"""Phase "spec current": were the theorems compiled here, and do the files still say what was compiled?"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from certify.certificate import ProofRecord
from certify.errors import OwnFault, UsageError

STATE = Path(".attnspec") / "proofs.json"

Digest = Callable[[Path], str]


def proof_state(start: Path | None = None) -> ProofRecord:
    """What is known about the proofs; a UsageError when files, vectors and what was compiled contradict each other.

    Looks upward from `start` (default: the working directory), then beside this package. An installed wheel has
    neither spec/ nor a state: that is recorded, and fails nothing.
    """
    root = _root(start or Path.cwd())
    if root is None:
        return _not_here("no spec/ and no proof state found: an installed package does not carry them")
    state = _read_state(root / STATE)
    digests = source_digests(root)
    vectors = _vectors(root, digests.get("spec"))
    if state is None:
        return _not_here("the proofs were not compiled here: `make proofs` does it", digests, vectors)
    for name, now in digests.items():
        then = _state_digest(state, name)
        if then is not None and then != now:
            raise UsageError(
                f"{root / name}/ has changed since its proofs were compiled "
                f"(digest {now[:12]}, compiled {then[:12]}): run `make proofs`"
            )
    compared = [name for name in digests if _state_digest(state, name) is not None]
    toolchain = str(state.get("toolchain", "unknown toolchain"))
    return ProofRecord(
        compiled="here",
        toolchain=toolchain,
        digests=digests or {n: d for n in ("spec", "proofs") if (d := _state_digest(state, n)) is not None},
        vectors=vectors,
        agrees=True if compared else None,
        theorems=_headlines(state),
        detail=f"compiled here under {toolchain}",
    )


def checked_here(proofs: ProofRecord, theorem: str | None) -> bool:
    """Was that theorem among those compiled here? False where only the whole is known not to be."""
    if theorem is None or proofs.compiled != "here":
        return False
    names = {name.rpartition(".")[2] for name in proofs.theorems}
    return theorem.rpartition(".")[2] in names


def source_digests(root: Path) -> dict[str, str]:
    """Digests of spec/ and proofs/ by the rule of tools/lean/digest.py; empty where sources or rule are absent."""
    module = _digest_module(root)
    if module is None:
        return {}
    found = {}
    for name in ("spec", "proofs"):
        digest = _digest_of(module, root, name)
        if digest is not None and (root / name).is_dir():
            found[name] = digest
    return found


def _digest_module(root: Path) -> ModuleType | None:
    path = root / "tools" / "lean" / "digest.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("_attnspec_lean_digest", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OwnFault(f"{path} does not import: {type(error).__name__}: {error}") from error
    return module


def _digest_of(module: ModuleType, root: Path, name: str) -> str | None:
    function: Digest | None = getattr(module, "digest", None)
    return None if function is None else function(root / name)


def _root(start: Path) -> Path | None:
    places = (start.resolve(), *start.resolve().parents, Path(__file__).resolve().parent.parent)
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
    digests = state.get("digests")
    found = digests.get(name) if isinstance(digests, dict) else state.get(f"{name}_digest")
    return found if isinstance(found, str) else None


def _headlines(state: dict[str, Any]) -> list[str]:
    found = state.get("headlines", [])
    return [str(h["name"] if isinstance(h, dict) and "name" in h else h) for h in found]


def _vectors(root: Path, spec_digest: str | None) -> str:
    files = sorted((root / "spec" / "vectors").glob("*.json"))
    if not files:
        return "none here"
    compared = 0
    for file in files:
        try:
            data = msgspec.json.decode(file.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{file}: cannot read the vectors: {error}: run `make vectors`") from error
        then = data.get("spec_digest") if isinstance(data, dict) else None
        if not isinstance(then, str) or spec_digest is None:
            continue
        compared += 1
        if then != spec_digest:
            raise UsageError(
                f"{file} was made from another spec/ (digest {then[:12]}, now {spec_digest[:12]}): run `make vectors`"
            )
    return f"{len(files)} files, {compared} with the digest of spec/"


def _not_here(detail: str, digests: dict[str, str] | None = None, vectors: str = "none here") -> ProofRecord:
    return ProofRecord(
        compiled="not here",
        toolchain=None,
        digests=digests or {},
        vectors=vectors,
        agrees=None,
        theorems=[],
        detail=detail,
    )
