module

/-! The one transcendental operation, left open, and a rational stand-in that can be computed exactly. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u

/-- A scalar with an exponential. No law is assumed here; a theorem that needs one says so. -/
class Exp (R : Type u) where
  /-- The exponential function, or whatever stands in for it. -/
  exp : R → R

export Exp (exp)

/-- The (2,2) Padé approximant of the exponential, `(12 + 6x + x²) / (12 - 6x + x²)`: rational and positive everywhere.
It stands in for the exponential wherever exact numbers are wanted. -/
def padeExp (x : Rat) : Rat := (12 + 6 * x + x * x) / (12 - 6 * x + x * x)

/-- Rational numbers with `padeExp` as their exponential. Not an instance: a file that wants it says so. -/
@[reducible] def padeRat : Exp Rat := ⟨padeExp⟩

end AttnSpec
