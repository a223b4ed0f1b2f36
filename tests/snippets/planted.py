"""A planted bug: which expression of a right kernel is written wrong, and which properties refute it then."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"

FUNCTION = "function.py:attention"  # torch's signature
CLAIMING = "claiming.py:attention"  # the same function with claims beyond its signature
UNDEFINED = "claiming.py:undefined"  # NaN on rows without a key, and said so
SUBJECT = "subject.py:kernel"  # a Subject: score families, given dropout, returned weights


@dataclass(frozen=True)
class Planted:
    """A wrong kernel. changes: expressions of the right one, each with what stands there instead.

    isolated: it is run in a process of its own. call_timeout: seconds that one of its calls may take there.
    """

    name: str
    kernel: str
    refuted_by: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    dtype: str = "float32"
    isolated: bool = False
    call_timeout: float = 60.0

    @property
    def file(self) -> str:
        """The file that the bug is in."""
        return "subject.py" if self.kernel == SUBJECT else "claiming.py" if self.kernel == UNDEFINED else "function.py"

    def source(self) -> str:
        """That file with the bug."""
        text = (KERNELS / self.file).read_text(encoding="utf-8")
        for right, wrong in self.changes:
            assert text.count(right) == 1, f"{self.name}: {right!r} stands {text.count(right)} times in {self.file}"
            text = text.replace(right, wrong)
        return text

    def write(self, folder: Path) -> None:
        """The kernel with its bug, as files in the folder."""
        mend(folder)
        (folder / self.file).write_text(self.source(), encoding="utf-8")


def mend(folder: Path) -> None:
    """The right kernels, as files in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in KERNELS.glob("*.py"):
        shutil.copyfile(file, folder / file.name)


def wrong(kernel: str, name: str, right: str, instead: str, *refuted_by: str, **details: object) -> Planted:
    """A kernel with one expression written wrong."""
    return Planted(name, kernel, refuted_by, ((right, instead),), **details)  # type: ignore[arg-type]
