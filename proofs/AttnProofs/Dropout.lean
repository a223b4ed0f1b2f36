module
public import AttnProofs.Attention

/-! Dropout as a fixed multiplier. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {nQ nK d dv : Nat}

/-- With dropout off, the values meet the weights themselves. -/
theorem consumed_off [Field R] [Exp R] {p : Params R nQ nK} (h : p.multiplier = Dropout.off)
    (x : Inputs R nQ nK d dv) : consumed p x = weights p x :=
  funext fun _ => consumed_of_multiplier_one p x fun j _ => by rw [h]; rfl

/-- The multiplier averages to one: kept with probability `1 - q`, dropped with probability `q`. -/
theorem multiplier_mean [Field R] {q : R} (h : 1 - q ≠ 0) (i : Fin nQ) (j : Fin nK) :
    (1 - q) * multiplier (fun _ _ => true) q i j + q * multiplier (fun _ _ => false) q i j = 1 := by
  simp only [multiplier, if_true, Bool.false_eq_true, if_false]
  have : (1 - q) * (1 - q)⁻¹ = 1 := by grind
  grind

end AttnSpec
