"""Score families: how a query and a key become one number, before scale, bias and softmax.

dot          u = q · k
bilinear     u = q W kᵀ
additive     u = vᵀ tanh(W_q q + W_k k + b)
cosine       u = q · k / (|q| |k|), with a named policy for vectors of length zero

Everything after u is the attention of `attnspec.pyspec.attention`. Only the dot family may be handed to a dot-product
kernel; `reduce_to_dot` says which calls of the others are dot products in disguise, and refuses the rest by name.
"""

from attnspec.pyspec.families.evaluate import FamilyOracle, evaluate_family, evaluate_family_jvp, family_bounds
from attnspec.pyspec.families.kinds import FAMILIES, Additive, Bilinear, Cosine, Dot, Family, FamilyError
from attnspec.pyspec.families.reduce import Reduction, reduce_to_dot
from attnspec.pyspec.families.scores import score_jvp, scores, scores_backward, sharpest_cosine_weight

__all__ = [
    "FAMILIES",
    "Additive",
    "Bilinear",
    "Cosine",
    "Dot",
    "Family",
    "FamilyError",
    "FamilyOracle",
    "Reduction",
    "evaluate_family",
    "evaluate_family_jvp",
    "family_bounds",
    "reduce_to_dot",
    "score_jvp",
    "scores",
    "scores_backward",
    "sharpest_cosine_weight",
]
