"""Ledgers from the command line, and ledgers as data."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attnspec.certify.errors import UsageError
from attnspec.pyspec import Ledger, named_ledgers
from attnspec.pyspec.calls.errors import did_you_mean

LedgerFor = Callable[[str], Ledger]


def ledger_as_data(ledger: Ledger) -> dict[str, Any]:
    """The ledger's fields as JSON values."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(ledger).items()}


def ledger_from_data(data: Mapping[str, Any], where: str) -> Ledger:
    """The ledger in a mapping; a UsageError names the field that is wrong."""
    fields = {f.name: f for f in dataclasses.fields(Ledger)}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        expected = f"expected some of {', '.join(fields)}"
        raise UsageError(f"{where}: unknown ledger field {unknown[0]!r}{did_you_mean(unknown[0], fields)}: {expected}")
    values = dict(data)
    for name in ("exp_error", "exp_argument_roundings", "tanh_error"):
        if name in values and (isinstance(values[name], bool) or not isinstance(values[name], int | float)):
            raise UsageError(f"{where}: {name} = {values[name]!r}: expected a number")
        if not math.isfinite(values.get(name, 0)):
            raise UsageError(f"{where}: {name} = {values[name]!r}: expected a finite number")
    for name in ("gradient_tile", "key_tile"):
        if values.get(name) is not None and (isinstance(values[name], bool) or not isinstance(values[name], int)):
            raise UsageError(f"{where}: {name} = {values[name]!r}: expected a number of rows, or none")
    if "stores" in values:
        if not isinstance(values["stores"], list | tuple) or not all(isinstance(s, str) for s in values["stores"]):
            raise UsageError(f"{where}: stores = {values['stores']!r}: expected a list of stages")
        values["stores"] = tuple(values["stores"])
    try:
        return Ledger(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def ledger_option(value: str | None, declared: LedgerFor, dtypes: tuple[str, ...]) -> LedgerFor:
    """The ledger in force for each dtype: the subject's own, a named one, or one from a TOML or JSON file.

    A file has one table a dtype, such as `[bfloat16]`, keyed by the fields of attnspec.pyspec.Ledger; `base` names a
    ledger whose fields it starts from (default: what the subject declares).
    """
    if value is None:
        return declared
    path = Path(value)
    if path.suffix in (".toml", ".json") or path.is_file():
        tables = _read(path)
        chosen = {d: _from_table(tables, d, path, declared) for d in dtypes}
    else:
        known = named_ledgers(dtypes[0] if dtypes else "float32")
        if value not in known:
            raise UsageError(
                f"unknown ledger {value!r}{did_you_mean(value, known)}: "
                f"expected one of {', '.join(known)}, or a .toml or .json file"
            )
        chosen = {d: named_ledgers(d)[value] for d in dtypes}
    return lambda dtype: chosen[dtype] if dtype in chosen else declared(dtype)


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--ledger {path}: cannot read it: {error.strerror or error}") from error
    try:
        found = json.loads(raw) if path.suffix == ".json" else tomllib.loads(raw.decode())
    except ValueError as error:
        raise UsageError(f"--ledger {path}: not valid {path.suffix.lstrip('.') or 'TOML'}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(table, dict) for table in found.values()):
        raise UsageError(f"--ledger {path}: expected one table a dtype, such as [bfloat16]")
    return found


def _from_table(tables: dict[str, Any], dtype: str, path: Path, declared: LedgerFor) -> Ledger:
    if dtype not in tables:
        raise UsageError(f"--ledger {path}: no table [{dtype}]: it has {', '.join(tables) or 'none'}")
    table = dict(tables[dtype])
    base = table.pop("base", None)
    known = named_ledgers(dtype)
    if base is not None and base not in known:
        raise UsageError(f"--ledger {path}: base = {base!r}: expected one of {', '.join(known)}")
    start = ledger_as_data(known[base] if base is not None else declared(dtype))
    return ledger_from_data({**start, "name": path.stem, **table, "storage": dtype}, f"--ledger {path} [{dtype}]")
