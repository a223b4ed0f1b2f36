module
public import AttnProofs.Packing
public import AttnProofs.Visibility

/-! Masks as kernels are told them: prefixes beside flags, polarity, sums of masks, and rows that borrow a key. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {n nQ nK mQ mK d dv : Nat}

namespace Visibility

/-- A query inside the prefix sees the prefix; a query behind it sees its past. -/
theorem prefix_two_regions (length : Nat) (offset : Int) (i : Fin nQ) (j : Fin nK) :
    Visibility.prefix length offset i j = true ↔
      ((i.1 : Int) + offset < length ∧ j.1 < length) ∨ ((length : Int) ≤ i.1 + offset ∧ (j.1 : Int) ≤ i.1 + offset) := by
  simp [Visibility.prefix, either, causal]; omega

/-- A causal mask beside a prefix takes the prefix away. -/
theorem prefix_with_causal (length : Nat) (offset : Int) :
    (compose (Visibility.prefix length offset) (causal offset) : Mat Bool nQ nK) = causal offset := by
  funext i j
  cases h : (causal offset : Mat Bool nQ nK) i j <;> simp [compose, Visibility.prefix, either, h]

/-- Where the prefix holds a key ahead of a query, the causal mask beside it hides a key that the prefix shows. -/
theorem prefix_with_causal_hides (length : Nat) (offset : Int) (i : Fin nQ) (j : Fin nK) (inside : j.1 < length)
    (ahead : (i.1 : Int) + offset < j.1) :
    Visibility.prefix length offset i j = true ∧
      compose (Visibility.prefix length offset) (causal offset) i j = false := by
  simp [compose, Visibility.prefix, either, causal, inside]; omega

/-- A window over a causal mask is the window that does not look ahead. -/
theorem window_with_causal (offset : Int) (left right : Nat) :
    (compose (window offset left right) (causal offset) : Mat Bool nQ nK) = window offset left 0 := by
  funext i j; rw [Bool.eq_iff_iff]; simp [compose, window, causal]; omega

/-- In the other polarity, masks compose by OR: blocked where at least one of them blocks. -/
theorem blocked_composition (a b : Mat Bool nQ nK) (i : Fin nQ) (j : Fin nK) :
    (!compose a b i j) = either (fun i j => !a i j) (fun i j => !b i j) i j := by
  simp [compose, either, Bool.not_and]

/-- An additive mask: a finite number where the key is visible, none for minus infinity. -/
def shown (m : Mat (Option R) nQ nK) : Mat Bool nQ nK := fun i j => (m i j).isSome

/-- Additive masks add up; minus infinity stays. -/
def plus [Add R] (a b : Mat (Option R) nQ nK) : Mat (Option R) nQ nK := fun i j =>
  match a i j, b i j with
  | some x, some y => some (x + y)
  | _, _ => none

/-- The sum of two additive masks shows what both show: sums and conjunctions agree. -/
theorem additive_composition [Add R] (a b : Mat (Option R) nQ nK) : shown (plus a b) = compose (shown a) (shown b) := by
  funext i j
  simp only [shown, plus, compose]
  cases a i j <;> cases b i j <;> rfl

end Visibility

section
variable [CommRing R] [Inv R] [Exp R]

/-- A row over exactly the keys that it sees, listed once each in any order, is its row of the whole. -/
theorem forward_visible_only (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (rows : Fin mQ → Fin nQ)
    {columns : Fin mK → Fin nK} (i : Fin mQ) (once : ∀ {j j'}, columns j = columns j' → j = j')
    (all : ∀ j, p.visible (rows i) j = true → ∃ j', columns j' = j) :
    forward (p.select rows columns) (x.select rows columns) i = forward p x (rows i) :=
  forward_select p x rows ⟨once, all⟩

/-- A row whose output gradient is zero has score gradients zero, whatever it sees. -/
theorem scoresGrad_zero_row (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {G : Mat R nQ dv} {i : Fin nQ}
    (h : ∀ c, G i c = 0) (j : Fin nK) : scoresGrad p x G i j = 0 := by
  have z : ∀ k, weightsGrad p x G i k = 0 := fun k => by
    have : dot (G i) (x.value k) = 0 := by unfold dot; exact sum_eq_zero fun c => by rw [h c]; grind
    simp only [weightsGrad, hadamard, mulT, this]; grind
  have d : dot (weights p x i) (weightsGrad p x G i) = 0 := by
    unfold dot; exact sum_eq_zero fun k => by rw [z k]; grind
  simp only [scoresGrad, centerRows, center, z, d]; grind

/-- Masks and multipliers of rows whose output gradient is zero do not matter to any gradient: a key that an unused
query borrows for the softmax leaves no trace. -/
theorem backward_zero_rows {p p' : Params R nQ nK} (x : Inputs R nQ nK d dv) {G : Mat R nQ dv}
    (scale : p.scale = p'.scale)
    (same : ∀ i, (∀ c, G i c = 0) ∨ (p.visible i = p'.visible i ∧ p.multiplier i = p'.multiplier i)) :
    backward p x G = backward p' x G := by
  have row : ∀ i, p.visible i = p'.visible i → p.multiplier i = p'.multiplier i → RowMatch p x i p' x i id :=
    fun i hv hm => .of_agree scale hv rfl (fun _ _ => congrFun hm _) (fun _ _ => rfl) (fun _ _ => rfl) (fun _ _ => rfl)
  have s : scoresGrad p x G = scoresGrad p' x G := by
    funext i j
    rcases same i with h | ⟨hv, hm⟩
    · rw [scoresGrad_zero_row p x h, scoresGrad_zero_row p' x h]
    · exact (row i hv hm).scoresGrad (G := G) (G' := G) rfl j
  have v : ∀ j c, tMul (consumed p x) G j c = tMul (consumed p' x) G j c := fun j c => sum_congr fun i => by
    rcases same i with h | ⟨hv, hm⟩
    · rw [h c]; grind
    · have e : consumed p x i j = consumed p' x i j := (row i hv hm).consumed j
      rw [e]
  ext i j
  · simp only [backward, s, scale]
  · simp only [backward, s, scale]
  · exact v i j
  · exact congrFun (congrFun s i) j

end
end AttnSpec
