module
public import AttnProofs.Attention

/-! The places where kernels apply the scale give the same scores. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec.Scale
open Lean.Grind

universe u
variable {R : Type u} {nQ nK d : Nat} [CommRing R] (a b : R) (query : Mat R nQ d) (key : Mat R nK d)

/-- A factor on each side is their product on the scores. -/
theorem split_eq : split a b query key = onScores (a * b) query key := by
  funext i j
  simp only [split, onScores, scaled, mulT, dot, mul_sum]
  exact sum_congr fun _ => by grind

/-- The scale on the queries is the scale on the scores. -/
theorem onQuery_eq : onQuery a query key = onScores a query key := by
  funext i j
  simp only [onQuery, onScores, scaled, mulT, dot, mul_sum]
  exact sum_congr fun _ => by grind

/-- The scale on the keys is the scale on the scores. -/
theorem onKey_eq : onKey a query key = onScores a query key := by
  funext i j
  simp only [onKey, onScores, scaled, mulT, dot, mul_sum]
  exact sum_congr fun _ => by grind

/-- The scale may be applied to the queries beforehand. -/
theorem forward_scaled_query [Inv R] [Exp R] {dv : Nat} (p : Params R nQ nK) (x : Inputs R nQ nK d dv) :
    forward p x = forward { p with scale := 1 } { x with query := scaled p.scale x.query } := by
  have hs : scores p x = scores { p with scale := 1 } { x with query := scaled p.scale x.query } := by
    funext i j
    have h : mulT (scaled p.scale x.query) x.key i j = p.scale * mulT x.query x.key i j :=
      congrFun (congrFun (onQuery_eq p.scale x.query x.key) i) j
    simp only [scores, h]
    grind
  unfold forward consumed weights
  rw [hs]

end AttnSpec.Scale
