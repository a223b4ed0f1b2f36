"""The number systems in which the spec is read."""

from pyspec.domains.ball import BallDomain
from pyspec.domains.big import BigDomain
from pyspec.domains.bound import BoundDomain
from pyspec.domains.bounded import Bounded
from pyspec.domains.exact import ExactDomain, pade_exp
from pyspec.domains.float64 import Float64Domain
from pyspec.domains.symbolic import SymbolicDomain

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
