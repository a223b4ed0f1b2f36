module

/-! Vectors, matrices and finite sums: plain functions from indices, so that any length may be zero. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u

/-- A vector of `n` entries. -/
abbrev Vec (R : Type u) (n : Nat) := Fin n → R

/-- A matrix of `m` rows and `n` columns; `A i` is row `i`. -/
abbrev Mat (R : Type u) (m n : Nat) := Fin m → Fin n → R

/-- The sum of a vector, taken from the right: `f 0 + (f 1 + (… + 0))`. The empty sum is zero. -/
def sum {R : Type u} [Zero R] [Add R] : {n : Nat} → Vec R n → R
  | 0, _ => 0
  | _ + 1, f => f 0 + sum fun i => f ⟨i.1 + 1, Nat.succ_lt_succ i.2⟩

end AttnSpec
