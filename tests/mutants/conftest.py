"""A summary under `pytest -m mutants`: cases and seconds to the first refutation, and what was not driven."""

from __future__ import annotations

from collections import defaultdict
from statistics import median, quantiles
from typing import Any

WIDTH = 62


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the table, from the properties that the tests recorded (with or without workers)."""
    rows = [dict(r.user_properties) for r in terminalreporter.stats.get("passed", []) if r.when == "call"]
    rows = [r for r in rows if "mutant" in r]
    if not rows:
        return
    write = terminalreporter.write_line
    terminalreporter.section("mutants: cases and seconds to the first refutation")
    for row in sorted(rows, key=lambda r: (r["dtype"], -r["cases"])):
        name = f"{row['mutant']} ({row['kind']})"
        write(f"{row['dtype']:9} {name:{WIDTH}} {row['cases']:5d} {row['seconds']:8.3f} s  {row['property']}")
    by_dtype: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_dtype[row["dtype"]].append(row)
    for dtype, group in sorted(by_dtype.items()):
        cases, seconds = [r["cases"] for r in group], [r["seconds"] for r in group]
        write(
            f"{dtype}: {len(group)} refuted; cases median {median(cases):g}, 95 % {late(cases):g}, most {max(cases)}; "
            f"seconds median {median(seconds):.3f}, 95 % {late(seconds):.2f}, most {max(seconds):.2f}"
        )
    for title, outcome in (("not driven", "skipped"), ("survived", "xfailed"), ("survived unasked", "failed")):
        names = [r.nodeid.partition("[")[2].rstrip("]") for r in terminalreporter.stats.get(outcome, [])]
        names = [n for n in names if n]
        if names:
            write(f"{title} ({len(names)}, counted as not refuted): {', '.join(sorted(names))}")


def late(numbers: list[float]) -> float:
    """The 95th percentile."""
    return quantiles(numbers, n=20, method="inclusive")[-1] if len(numbers) > 1 else numbers[0]
