"""Finding subjects: built-in names, entry points, `module:attr`, and `path.py:attr`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from attnspec.certify.errors import UsageError
from attnspec.certify.subject import Subject
from attnspec.pyspec.calls.errors import did_you_mean

ENTRY_POINTS = "attnspec.subjects"


def _cpu_only(name: str, device: str) -> None:
    if device != "cpu":
        raise UsageError(f"{name} runs on cpu only, not on {device!r}: leave --device out")


def _numpy_reference(device: str) -> Subject:
    from attnspec.certify.subjects.numpy_reference import NumpyReference

    _cpu_only("numpy-reference", device)
    return NumpyReference()


def _torch_eager(device: str) -> Subject:
    from attnspec.certify.subjects.torch_sdpa import TorchEager, require_device

    require_device(device)
    return TorchEager(device)


def _torch_sdpa(kernel: str) -> Callable[[str], Subject]:
    def make(device: str) -> Subject:
        from attnspec.certify.subjects.torch_sdpa import CAPABILITIES, TorchSdpa, require_device

        require_device(device)
        if (kernel, device.split(":")[0]) not in CAPABILITIES:
            raise UsageError(f"torch-sdpa:{kernel} has no {device} kernel: use --device cuda")
        return TorchSdpa(kernel, device)

    return make


def _numpy_scores(device: str) -> Subject:
    from attnspec.certify.subjects.families import NumpyScores

    _cpu_only("numpy-scores", device)
    return NumpyScores()


def _torch_scores(device: str) -> Subject:
    from attnspec.certify.subjects.families import TorchScores
    from attnspec.certify.subjects.torch_sdpa import require_device

    require_device(device)
    return TorchScores(device)


BUILT_IN: dict[str, Callable[[str], Subject]] = {
    "numpy-reference": _numpy_reference,
    "torch-eager": _torch_eager,
    "torch-sdpa:math": _torch_sdpa("math"),
    "torch-sdpa:flash": _torch_sdpa("flash"),
    "torch-sdpa:efficient": _torch_sdpa("efficient"),
    "torch-sdpa:cudnn": _torch_sdpa("cudnn"),
    "numpy-scores": _numpy_scores,
    "torch-scores": _torch_scores,
}


def subject_names() -> list[str]:
    """Names that `load_subject` knows without a path: built in, then from entry points."""
    found = {e.name for e in entry_points(group=ENTRY_POINTS)} - set(BUILT_IN)
    return [*BUILT_IN, *sorted(found)]


def is_foreign(spec: str) -> bool:
    """Is this subject somebody's own code, named by module or path?"""
    return spec not in subject_names()


def load_subject(spec: str, device: str = "cpu") -> Subject:
    """The subject of that name or path on that device.

    A name of `subject_names`, `module:attr` or `path.py:attr`. The attribute is a Subject, a function with
    the signature of torch's functional attention, or a factory `device -> Subject` marked as an entry point.
    Raises UsageError or MissingDevice with one clear line.
    """
    if spec in BUILT_IN:
        try:
            return BUILT_IN[spec](device)
        except ImportError as error:
            raise UsageError(
                f"{spec} needs a package that is not here ({error}): pip install 'attnspec[torch]'"
            ) from error
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == spec:
            return _as_subject(entry.load(), spec, device, factory=True)
    place, colon, attribute = spec.rpartition(":")
    if not colon or not place or not attribute:
        known = subject_names()
        raise UsageError(
            f"unknown subject {spec!r}{did_you_mean(spec, known)}: expected one of {', '.join(known)}, "
            "module:attr or path.py:attr"
        )
    return _as_subject(_attribute(place, attribute, spec), spec, device)


def _attribute(place: str, attribute: str, spec: str) -> Any:
    try:
        module = _module_at(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise UsageError(f"subject {spec!r}: there is no file {place!r}") from error
    except Exception as error:
        hint = did_you_mean(spec, subject_names())
        raise UsageError(
            f"subject {spec!r}: importing {place!r} failed with {type(error).__name__}: {error}{hint}"
        ) from error
    if not hasattr(module, attribute):
        names = [n for n in vars(module) if not n.startswith("_")]
        raise UsageError(f"subject {spec!r}: {place!r} has no {attribute!r}{did_you_mean(attribute, names)}")
    return getattr(module, attribute)


def _module_at(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(path)
    name = f"attnspec_subject_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _as_subject(found: Any, spec: str, device: str, *, factory: bool = False) -> Subject:
    if isinstance(found, type):
        found = found()
    if isinstance(found, Subject):
        return found
    if factory and callable(found):
        made = found(device)
        if isinstance(made, Subject):
            return made
    if not callable(found):
        raise UsageError(
            f"subject {spec!r} is a {type(found).__name__}: expected a Subject, or a function "
            "fn(query, key, value, attn_mask=None, ...)"
        )
    from attnspec.certify.subjects.functional import FunctionSubject
    from attnspec.certify.subjects.torch_sdpa import require_device

    require_device(device)
    return FunctionSubject(found, spec, device)


__all__ = ["BUILT_IN", "is_foreign", "load_subject", "subject_names"]
