module
public import AttnProofs.Locality

/-! Packed sequences: problems laid end to end, or told apart by segment numbers, are the separate problems. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {nQ nK mQ mK d dv : Nat} [CommRing R] [Inv R] [Exp R]

section
variable (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (p' : Params R mQ mK) (x' : Inputs R mQ mK d dv)

omit [Inv R] [Exp R] in
/-- The first of two packed problems matches itself alone. -/
theorem pack_left : BlockMatch (p.pack p') (x.pack x') p x (Fin.castAdd mQ) (Fin.castAdd mK) where
  row i := {
    covers := ⟨fun h => by simpa [Fin.ext_iff] using h, fun j => by
      cases j using Fin.addCases <;> simp [Params.pack, blockDiagonal, Fin.ext_iff]⟩
    scale := rfl
    query := by simp [Inputs.pack]
    visible := by simp [Params.pack, blockDiagonal]
    multiplier := by simp [Params.pack, blockDiagonal]
    bias := by simp [Inputs.pack, blockDiagonal]
    key := by simp [Inputs.pack]
    value := by simp [Inputs.pack] }
  column j := ⟨fun h => by simpa [Fin.ext_iff] using h, fun i => by
    cases i using Fin.addCases <;> simp [Params.pack, blockDiagonal, Fin.ext_iff]⟩

omit [Inv R] [Exp R] in
/-- The second of two packed problems matches itself alone. -/
theorem pack_right (scale : p.scale = p'.scale) :
    BlockMatch (p.pack p') (x.pack x') p' x' (Fin.natAdd nQ) (Fin.natAdd nK) where
  row i := {
    covers := ⟨fun h => by simpa [Fin.ext_iff] using h, fun j => by
      cases j using Fin.addCases <;> simp [Params.pack, blockDiagonal, Fin.ext_iff]⟩
    scale := scale
    query := by simp [Inputs.pack]
    visible := by simp [Params.pack, blockDiagonal]
    multiplier := by simp [Params.pack, blockDiagonal]
    bias := by simp [Inputs.pack, blockDiagonal]
    key := by simp [Inputs.pack]
    value := by simp [Inputs.pack] }
  column j := ⟨fun h => by simpa [Fin.ext_iff] using h, fun i => by
    cases i using Fin.addCases <;> simp [Params.pack, blockDiagonal, Fin.ext_iff]⟩

variable (scale : p.scale = p'.scale) (G : Mat R nQ dv) (G' : Mat R mQ dv)
include scale

/-- The output of two packed problems is their outputs end to end. -/
theorem forward_pack : forward (p.pack p') (x.pack x') = append (forward p x) (forward p' x') := by
  funext i
  cases i using Fin.addCases with
  | left i => rw [((pack_left p x p' x').row i).forward, append_left]
  | right i => rw [((pack_right p x p' x' scale).row i).forward, append_right]

/-- The gradients of two packed problems are their gradients packed. -/
theorem backward_pack :
    backward (p.pack p') (x.pack x') (append G G') = (backward p x G).pack (backward p' x' G') := by
  have l := pack_left p x p' x'
  have r := pack_right p x p' x' scale
  have hl : ∀ i, append G G' (Fin.castAdd mQ i) = G i := fun i => append_left _ _ i
  have hr : ∀ i, append G G' (Fin.natAdd nQ i) = G' i := fun i => append_right _ _ i
  ext i j
  · cases i using Fin.addCases with
    | left i => rw [(l.row i).backward_query (hl i)]; simp [Inputs.pack]
    | right i => rw [(r.row i).backward_query (hr i)]; simp [Inputs.pack]
  · cases i using Fin.addCases with
    | left i => rw [l.backward_key hl rfl]; simp [Inputs.pack]
    | right i => rw [r.backward_key hr scale]; simp [Inputs.pack]
  · cases i using Fin.addCases with
    | left i => rw [l.backward_value hl]; simp [Inputs.pack]
    | right i => rw [r.backward_value hr]; simp [Inputs.pack]
  · show scoresGrad _ _ _ i j = _
    cases i using Fin.addCases with
    | left i =>
      cases j using Fin.addCases with
      | left j => rw [(l.row i).scoresGrad (hl i)]; simp [Inputs.pack, blockDiagonal, backward]
      | right j =>
        rw [scoresGrad_hidden _ _ (by simp [Params.pack, blockDiagonal])]
        simp [Inputs.pack, blockDiagonal]
    | right i =>
      cases j using Fin.addCases with
      | left j =>
        rw [scoresGrad_hidden _ _ (by simp [Params.pack, blockDiagonal])]
        simp [Inputs.pack, blockDiagonal]
      | right j => rw [(r.row i).scoresGrad (hr i)]; simp [Inputs.pack, blockDiagonal, backward]

end

/-- Under a segment mask, the output at one segment is attention over that segment alone. -/
theorem forward_segments (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {sq : Vec Nat nQ} {sk : Vec Nat nK}
    {inner : Mat Bool nQ nK} (hm : p.visible = Visibility.compose (Visibility.segments sq sk) inner)
    {κ : Fin mQ → Fin nQ} {ι : Fin mK → Fin nK} {t : Nat} (hκ : ∀ i, sq (κ i) = t)
    (inj : ∀ {j j'}, ι j = ι j' → j = j') (all : ∀ j, sk j = t → ∃ j', ι j' = j) (i : Fin mQ) :
    forward p x (κ i) = forward (p.select κ ι) (x.select κ ι) i :=
  (forward_select p x κ ⟨inj, fun j h => all j (by
    simp [hm, Visibility.compose, Visibility.segments, hκ] at h; exact h.1.symm)⟩).symm

/-- Cutting off padded keys leaves the output unchanged. -/
theorem forward_padding (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (len : mK ≤ nK) {inner : Mat Bool nQ nK}
    (hm : p.visible = Visibility.compose (Visibility.keyPadding fun j => decide (j.1 < mK)) inner) :
    forward p x = forward (p.select id (Fin.castLE len)) (x.select id (Fin.castLE len)) :=
  funext fun i => (forward_select p x id (i := i) ⟨fun h => by simpa [Fin.ext_iff] using h, fun j h => by
    simp [hm, Visibility.compose, Visibility.keyPadding] at h
    exact ⟨⟨j.1, h.1⟩, rfl⟩⟩).symm

end AttnSpec
