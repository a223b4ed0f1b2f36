module
public import AttnProofs.Attention

/-! Linearity: of the gradient in the output gradient, of the tangent in the direction, of the output in the values. -/

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

/-- The inner product is linear on the left. -/
theorem combine_inner (a : R) (x y z : Inputs R nQ nK d dv) :
    Inputs.inner (Inputs.combine a x y) z = a * Inputs.inner x z + Inputs.inner y z := by
  simp only [Inputs.inner, Inputs.combine, frob_add_left, frob_smul_left]
  grind

/-- Matrices that pair alike with every matrix are equal. -/
theorem frob_ext {m n : Nat} {A B : Mat R m n} (h : ∀ G, frob A G = frob B G) : A = B := by
  funext i j
  have := h (basis i j)
  rwa [frob_comm A, frob_comm B, frob_basis, frob_basis] at this

/-- The tangent in the direction `a · dx + dx'` is `a` times that in `dx` plus that in `dx'`. -/
theorem jvp_combine [Inv R] [Exp R] (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (a : R)
    (dx dx' : Inputs R nQ nK d dv) :
    jvp p x (Inputs.combine a dx dx') = fun i c => a * jvp p x dx i c + jvp p x dx' i c :=
  frob_ext fun G => by
    rw [frob_add_left, frob_smul_left, jvp_backward, jvp_backward, jvp_backward, combine_inner]

/-- The output is linear in the values. -/
theorem forward_combine_value [Inv R] [Exp R] (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (a : R)
    (V V' : Mat R nK dv) :
    forward p { x with value := fun j c => a * V j c + V' j c }
      = fun i c => a * forward p { x with value := V } i c + forward p { x with value := V' } i c := by
  funext i c
  simp only [forward, mul, mul_sum, ← sum_add]
  refine sum_congr fun j => ?_
  have e : ∀ W : Mat R nK dv, consumed p { x with value := W } i j = consumed p x i j := fun _ => rfl
  simp only [e]
  grind

end AttnSpec
