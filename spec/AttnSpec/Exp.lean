module

/-! The transcendental operations, left open, and rational stand-ins that can be computed exactly. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u

/-- A scalar with an exponential. No law is assumed here; a theorem that needs one says so. -/
class Exp (R : Type u) where
  /-- The exponential function, or whatever stands in for it. -/
  exp : R → R

export Exp (exp)

/-- A scalar with a hyperbolic tangent, which softcapped scores need. No law is assumed here either. -/
class Tanh (R : Type u) where
  /-- The hyperbolic tangent, or whatever stands in for it. -/
  tanh : R → R

export Tanh (tanh)

/-- The (2,2) Padé approximant of the exponential, `(12 + 6x + x²) / (12 - 6x + x²)`: rational and positive everywhere.
It stands in for the exponential wherever exact numbers are wanted. -/
def padeExp (x : Rat) : Rat := (12 + 6 * x + x * x) / (12 - 6 * x + x * x)

/-- Rational numbers with `padeExp` as their exponential. Not an instance: a file that wants it says so. -/
@[reducible] def padeRat : Exp Rat := ⟨padeExp⟩

/-- `3x / (3 + x²)`, which is `(e - 1) / (e + 1)` with `e = padeExp (2x)`: rational and odd.
It stands in for the hyperbolic tangent wherever exact numbers are wanted. -/
def padeTanh (x : Rat) : Rat := 3 * x / (3 + x * x)

/-- Rational numbers with `padeTanh` as their hyperbolic tangent. Not an instance either. -/
@[reducible] def padeTanhRat : Tanh Rat := ⟨padeTanh⟩

end AttnSpec
