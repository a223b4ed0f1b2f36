from __future__ import annotations

from attnspec.certify.subjects import subject as _s
from attnspec.certify.subjects.subject import Skip


def uncovered(subject, call):
    text = _s.uncovered(subject, call)
    if text is None:
        return None
    return Skip("known_divergence" if text.startswith("known divergence ") else "not_claimed", "", text)


def unclaimed(c, names):
    from attnspec.certify.properties import needs as _needs

    own = {
        "slopes": (c.slopes, "ALiBi slopes not claimed"),
        "returned_weights": (getattr(c, "returns_weights", False), "returned weights not claimed"),
        "own_dropout": (getattr(c, "samples_dropout", False), "dropout of its own not claimed"),
        **{
            f"{n}_score": (n in getattr(c, "families", ()), f"the {n} family not claimed")
            for n in ("bilinear", "additive", "cosine")
        },
    }
    for n in names:
        t = (None if own[n][0] else own[n][1]) if n in own else getattr(_needs, n)(c)
        if t:
            return Skip("not_claimed", n, t)
    return None
