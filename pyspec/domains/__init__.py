"""The number systems in which the spec is read."""

from attnspec.pyspec.domains.ball import BallDomain
from attnspec.pyspec.domains.big import BigDomain
from attnspec.pyspec.domains.exact import ExactDomain, pade_exp
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.pyspec.domains.symbolic import SymbolicDomain
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.bounded import Bounded

__all__ = [
    "BallDomain",
    "BigDomain",
    "BoundDomain",
    "Bounded",
    "ExactDomain",
    "Float64Domain",
    "SymbolicDomain",
    "pade_exp",
]
