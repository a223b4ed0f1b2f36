module
public import AttnProofs.Locality

/-! Laws of the visibility relations, and what they mean for the output. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {n nQ nK mQ d dv : Nat}

namespace Visibility

/-- A pair is visible under a composition exactly when every part lets it through. -/
theorem compose_iff (a b : Mat Bool nQ nK) (i : Fin nQ) (j : Fin nK) :
    compose a b i j = true ↔ a i j = true ∧ b i j = true := by simp [compose]

/-- The order of composition does not matter. -/
theorem compose_comm (a b : Mat Bool nQ nK) : compose a b = compose b a := by
  funext i j; simp [compose, Bool.and_comm]

/-- The grouping of compositions does not matter. -/
theorem compose_assoc (a b c : Mat Bool nQ nK) : compose (compose a b) c = compose a (compose b c) := by
  funext i j; simp [compose, Bool.and_assoc]

/-- Composing with the full mask changes nothing. -/
theorem compose_full (a : Mat Bool nQ nK) : compose a full = a := by funext i j; simp [compose, full]

/-- Composing with the empty mask hides everything. -/
theorem compose_empty (a : Mat Bool nQ nK) : compose a empty = empty := by funext i j; simp [compose, empty]

/-- Composing a mask with itself changes nothing. -/
theorem compose_self (a : Mat Bool nQ nK) : compose a a = a := by funext i j; simp [compose]

/-- Under lower right alignment a single query sees every key. -/
theorem lowerRight_decode (i : Fin 1) (j : Fin nK) : lowerRight i j = true := by
  simp [lowerRight, causal]; omega

/-- Under lower right alignment the last query sees every key. -/
theorem lowerRight_last (i : Fin nQ) (h : i.1 + 1 = nQ) (j : Fin nK) : lowerRight i j = true := by
  simp [lowerRight, causal]; omega

/-- Under lower right alignment a query sees a key exactly when `nQ ≤ i + nK`. -/
theorem lowerRight_sees (i : Fin nQ) : (∃ j : Fin nK, lowerRight i j = true) ↔ nQ ≤ i.1 + nK := by
  constructor
  · rintro ⟨j, h⟩; simp [lowerRight, causal] at h; omega
  · intro h; exact ⟨⟨i.1 + nK - nQ, by omega⟩, by simp [lowerRight, causal]; omega⟩

/-- Under upper left alignment every query sees the first key. -/
theorem upperLeft_first (i : Fin nQ) (h : 0 < nK) : upperLeft i (⟨0, h⟩ : Fin nK) = true := by
  simp [upperLeft, causal]

/-- The two alignments agree exactly on squares. -/
theorem upperLeft_eq_lowerRight_iff (hQ : 0 < nQ) (hK : 0 < nK) :
    (upperLeft : Mat Bool nQ nK) = lowerRight ↔ nQ = nK := by
  constructor
  · intro h
    have h1 := congrFun (congrFun h ⟨0, hQ⟩) ⟨0, hK⟩
    have h2 := congrFun (congrFun h ⟨nQ - 1, by omega⟩) ⟨nK - 1, by omega⟩
    simp [upperLeft, lowerRight, causal] at h1 h2
    omega
  · rintro rfl; simp [lowerRight, upperLeft]

/-- A window that reaches back far enough and not ahead is the causal mask. -/
theorem window_causal (offset : Int) (left : Nat) (h : (nQ : Int) + offset ≤ left + 1) :
    (window offset left 0 : Mat Bool nQ nK) = causal offset := by
  funext i j; simp [window, causal]; omega

/-- A window that does not look ahead lies within the causal mask. -/
theorem window_within_causal (offset : Int) (left : Nat) (i : Fin nQ) (j : Fin nK)
    (h : window offset left 0 i j = true) : causal offset i j = true := by
  simp [window, causal] at *; omega

/-- A window is the meeting of its two half planes. -/
theorem window_iff (offset : Int) (left right : Nat) (i : Fin nQ) (j : Fin nK) :
    window offset left right i j = true ↔ (i.1 : Int) + offset - left ≤ j.1 ∧ (j.1 : Int) ≤ i.1 + offset + right := by
  simp [window]

/-- A wider window sees no less. -/
theorem window_mono (offset : Int) {left left' right right' : Nat} (hl : left ≤ left') (hr : right ≤ right')
    (i : Fin nQ) (j : Fin nK) (h : window offset left right i j = true) :
    window offset left' right' i j = true := by
  simp [window] at *; omega

/-- A prefix of length zero is the causal mask. -/
theorem prefix_zero (offset : Int) : (Visibility.prefix 0 offset : Mat Bool nQ nK) = causal offset := by
  funext i j; simp [Visibility.prefix, either]

/-- A prefix that holds every key is the full mask. -/
theorem prefix_all (offset : Int) {length : Nat} (h : nK ≤ length) :
    (Visibility.prefix length offset : Mat Bool nQ nK) = full := by
  funext i j; have := j.2; simp [Visibility.prefix, either, full]; omega

/-- Every query sees the whole prefix. -/
theorem prefix_sees (length : Nat) (offset : Int) (i : Fin nQ) (j : Fin nK) (h : j.1 < length) :
    Visibility.prefix length offset i j = true := by simp [Visibility.prefix, either, h]

/-- Later queries of a causal mask are a causal mask with a larger offset. -/
theorem causal_rest (offset : Int) (i : Fin mQ) (j : Fin nK) :
    (causal offset : Mat Bool (nQ + mQ) nK) (Fin.natAdd nQ i) j = causal (offset + nQ) i j := by
  simp [causal]; omega

/-- A later query of a causal mask sees no less than an earlier one. -/
theorem causal_mono (offset : Int) {i i' : Fin nQ} (h : i.1 ≤ i'.1) (j : Fin nK)
    (hj : causal offset i j = true) : causal offset i' j = true := by
  simp [causal] at *; omega

/-- Key padding and segments let a pair through or not for the same reason from every query of a segment. -/
theorem segments_iff (sq : Vec Nat nQ) (sk : Vec Nat nK) (i : Fin nQ) (j : Fin nK) :
    segments sq sk i j = true ↔ sq i = sk j := by simp [segments]

end Visibility

section
variable [CommRing R] [Inv R] [Exp R]

/-- A causal row never reads what comes after it. -/
theorem forward_causal {p : Params R nQ nK} {offset : Int} (hp : p.visible = Visibility.causal offset)
    {x x' : Inputs R nQ nK d dv} {i : Fin nQ} (query : x.query i = x'.query i)
    (bias : ∀ j : Fin nK, (j.1 : Int) ≤ i.1 + offset → x.bias i j = x'.bias i j)
    (key : ∀ j : Fin nK, (j.1 : Int) ≤ i.1 + offset → x.key j = x'.key j)
    (value : ∀ j : Fin nK, (j.1 : Int) ≤ i.1 + offset → x.value j = x'.value j) :
    forward p x i = forward p x' i :=
  (RowMatch.of_agree rfl rfl query (fun _ _ => rfl)
    (fun j h => bias j (by simpa [hp, Visibility.causal] using h))
    (fun j h => key j (by simpa [hp, Visibility.causal] using h))
    (fun j h => value j (by simpa [hp, Visibility.causal] using h))).forward

/-- The last queries alone, aligned to the lower right, give the last rows of the whole. -/
theorem forward_decode {p : Params R (nQ + mQ) nK} {p' : Params R mQ nK} {x : Inputs R (nQ + mQ) nK d dv}
    {x' : Inputs R mQ nK d dv} (hp : p.visible = Visibility.lowerRight) (hp' : p'.visible = Visibility.lowerRight)
    (scale : p.scale = p'.scale) (multiplier : ∀ i, p.multiplier (Fin.natAdd nQ i) = p'.multiplier i)
    (bias : ∀ i, x.bias (Fin.natAdd nQ i) = x'.bias i) (query : ∀ i, x.query (Fin.natAdd nQ i) = x'.query i)
    (key : x.key = x'.key) (value : x.value = x'.value) (i : Fin mQ) :
    forward p x (Fin.natAdd nQ i) = forward p' x' i :=
  RowMatch.forward (ι := id) {
    covers := .id _
    scale := scale
    query := query i
    visible := fun j => by simp [hp, hp', Visibility.lowerRight, Visibility.causal]; omega
    multiplier := fun j _ => congrFun (multiplier i) j
    bias := fun j _ => congrFun (bias i) j
    key := fun j _ => congrFun key j
    value := fun j _ => congrFun value j }

end
end AttnSpec
