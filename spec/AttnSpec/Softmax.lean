module
public import AttnSpec.Matrix
public import AttnSpec.Exp

/-! Softmax of one row under a hard mask, and the weighted centring that is both its derivative and the adjoint of it. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {m n : Nat}

section Softmax
variable [Zero R] [Add R] [Mul R] [Inv R] [Exp R]

/-- The unnormalised weights of a row: `exp (s j)` where key `j` is visible, zero where it is not. -/
def numerator (visible : Vec Bool n) (s : Vec R n) : Vec R n :=
  fun j => if visible j then exp (s j) else 0

/-- The sum of the unnormalised weights of a row. -/
def denominator (visible : Vec Bool n) (s : Vec R n) : R := sum (numerator visible s)

/-- The weights of a row: numerator over denominator. A row that sees no key is the zero row. -/
def softmax (visible : Vec Bool n) (s : Vec R n) : Vec R n :=
  fun j => numerator visible s j * (denominator visible s)⁻¹

/-- `softmax` of every row of a score matrix, each under its own row of the mask. -/
def softmaxRows (visible : Mat Bool m n) (S : Mat R m n) : Mat R m n :=
  fun i => softmax (visible i) (S i)

end Softmax

section Center
variable [Zero R] [Add R] [Sub R] [Mul R]

/-- Weighted centring, `p ⊙ (g - ⟨p, g⟩)`: what `softmax` with weights `p` does to a tangent and to a gradient. -/
def center (p g : Vec R n) : Vec R n := fun j => p j * (g j - dot p g)

/-- `center` of every row. This is the backward helper: from weights and their gradient to the score gradient. -/
def centerRows (P G : Mat R m n) : Mat R m n := fun i => center (P i) (G i)

end Center
end AttnSpec
