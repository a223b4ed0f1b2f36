"""The number systems in which the spec is read."""

from attnspec.pyspec.domains.ball import BallDomain
from attnspec.pyspec.domains.big import BigDomain
from attnspec.pyspec.domains.exact import ExactDomain, pade_exp
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.pyspec.domains.symbolic import SymbolicDomain

__all__ = [
    "BallDomain",
    "BigDomain",
    "ExactDomain",
    "Float64Domain",
    "SymbolicDomain",
    "pade_exp",
]
