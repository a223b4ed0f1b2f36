module
public import AttnProofs.Attention

/-! Grouped heads: the same as repeated heads, with gradients summed over each group. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {m n hQ hK nQ nK d dv : Nat} [CommRing R]

/-- Summing over groups is the adjoint of repeating heads. -/
theorem frob_groupSum (headMap : Fin hQ → Fin hK) (A : Fin hK → Mat R m n) (B : Fin hQ → Mat R m n) :
    (sum fun g => frob (A g) (groupSum headMap B g)) = sum fun h => frob (repeatHeads headMap A h) (B h) := by
  have e (g : Fin hK) : frob (A g) (groupSum headMap B g)
      = sum fun h => if headMap h = g then frob (A g) (B h) else 0 := by
    simp only [frob, dot, groupSum, mul_sum]
    simp only [sum_comm (n := hQ)]
    refine sum_congr fun h => ?_
    split
    · rfl
    · exact sum_eq_zero fun _ => sum_eq_zero fun _ => by grind
  rw [sum_congr e, sum_comm]
  exact sum_congr fun h => by rw [sum_single _ (headMap h) fun g hg => by grind]; simp [repeatHeads]

/-- Groups of one head each leave gradients as they are. -/
theorem groupSum_id (B : Fin hQ → Mat R m n) : groupSum id B = B := by
  funext g i j
  simp only [groupSum]
  rw [sum_single _ g fun h hh => by simp [hh]]
  simp

/-- A shared head that no query head reads receives no gradient. -/
theorem groupSum_unread {headMap : Fin hQ → Fin hK} {g : Fin hK} (h : ∀ k, headMap k ≠ g)
    (B : Fin hQ → Mat R m n) : groupSum headMap B g = fun _ _ => 0 := by
  funext i j
  exact sum_eq_zero fun k => by simp [h k]

variable [Inv R] [Exp R]

/-- Over grouped heads too, the gradient map is the adjoint of the tangent map. -/
theorem Heads.jvp_backward (headMap : Fin hQ → Fin hK) (p : Fin hQ → Params R nQ nK)
    (x dx : HeadInputs R hQ hK nQ nK d dv) (G : Fin hQ → Mat R nQ dv) :
    (sum fun h => frob (jvp headMap p x dx h) (G h)) = HeadInputs.inner dx (backward headMap p x G) := by
  simp only [Heads.jvp, AttnSpec.jvp_backward, Inputs.inner, sum_add, HeadInputs.inner, Heads.backward,
    frob_groupSum]
  rfl

/-- The gradients over grouped heads are those over repeated heads, keys' and values' summed over groups. -/
theorem Heads.backward_repeated (headMap : Fin hQ → Fin hK) (p : Fin hQ → Params R nQ nK)
    (x : HeadInputs R hQ hK nQ nK d dv) (G : Fin hQ → Mat R nQ dv) :
    backward headMap p x G =
      ⟨(backward id p (x.repeated headMap) G).query,
       groupSum headMap (backward id p (x.repeated headMap) G).key,
       groupSum headMap (backward id p (x.repeated headMap) G).value,
       (backward id p (x.repeated headMap) G).bias⟩ := by
  simp only [Heads.backward, groupSum_id]
  rfl

end AttnSpec
