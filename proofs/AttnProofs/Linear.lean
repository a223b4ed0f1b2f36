module
public import AttnProofs.Attention

/-! The gradient map is linear in the output gradient. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {nQ nK d dv : Nat} [CommRing R]

/-- The bundle `a · y + z`. -/
def Inputs.combine (a : R) (y z : Inputs R nQ nK d dv) : Inputs R nQ nK d dv where
  query := fun i c => a * y.query i c + z.query i c
  key := fun j c => a * y.key j c + z.key j c
  value := fun j c => a * y.value j c + z.value j c
  bias := fun i j => a * y.bias i j + z.bias i j

/-- The inner product is linear on the right. -/
theorem inner_combine (a : R) (x y z : Inputs R nQ nK d dv) :
    Inputs.inner x (Inputs.combine a y z) = a * Inputs.inner x y + Inputs.inner x z := by
  simp only [Inputs.inner, Inputs.combine, frob_add_right, frob_smul_right]
  grind

/-- The gradients of `a · G + G'` are `a` times those of `G` plus those of `G'`. -/
theorem backward_combine [Inv R] [Exp R] (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (a : R)
    (G G' : Mat R nQ dv) :
    backward p x (fun i c => a * G i c + G' i c) = Inputs.combine a (backward p x G) (backward p x G') :=
  (backward_unique p x _ _ fun dx => by
    rw [frob_add_right, frob_smul_right, jvp_backward, jvp_backward, inner_combine]).symm

end AttnSpec
