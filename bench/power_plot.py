"""The plot of docs/POWER.md: share of planted bugs that each rule rejects, false alarms beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.power_score import OURS, dtypes_of, score, titles

COLOURS = {"float64": "#9a9a9a", "float32": "#1b4f72", "bfloat16": "#2e86c1", "float16": "#85c1e9"}


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Horizontal bars, one a rule and storage type; a red number counts false alarms."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "attnspec", "font.size": 9, "font.family": "sans-serif"})
    bars = [
        (rule, dtype, s)
        for rule in reversed(list(titles()))
        for dtype in reversed(dtypes_of(rows))
        if (s := score(rows, rule, dtype)) is not None
    ]
    figure, axes = plt.subplots(figsize=(7.5, 0.19 * len(bars) + 0.12 * len(titles()) + 1.2))
    place, ticks, labels, before = 0.0, [], [], None
    starts: dict[str, list[float]] = {}
    for rule, dtype, s in bars:
        place += 0.6 if before not in (None, rule) else 0.0
        before = rule
        axes.barh(place, 100 * s.kills / max(s.live, 1), height=0.85, color=COLOURS[dtype])
        axes.plot([100 * s.kills / max(s.applicable, 1)], [place], marker="|", color="black", markersize=7)
        if s.alarms:
            axes.text(101.5, place, f"{s.alarms} of {s.tried}", color="#b03a2e", va="center", fontsize=7)
        starts.setdefault(rule, []).append(place)
        place += 1.0
    for rule, places in starts.items():
        ticks.append(sum(places) / len(places))
        labels.append(titles()[rule])
    axes.set_yticks(ticks, labels)
    for label, rule in zip(axes.get_yticklabels(), starts, strict=True):
        label.set_fontweight("bold" if rule == OURS else "normal")
    axes.set_xlim(0, 100)
    axes.set_xlabel("planted bugs rejected, % of all that act in the storage type; tick: % of those applicable")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[d]) for d in dtypes_of(rows)]
    axes.legend(handles, dtypes_of(rows), loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, frameon=False)
    axes.text(101.5, place + 0.3, "false alarms", color="#b03a2e", fontsize=7)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
