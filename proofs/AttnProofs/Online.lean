module
public import AttnProofs.Attention

/-! Online softmax: merging blocks in any order, with any shifts, is the direct computation. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec.Acc
open Lean.Grind

universe u
variable {R : Type u} {n nQ nK d dv : Nat} [Field R] [Exp R]

/-- The numerators of a union of disjoint blocks are the sums of theirs. -/
theorem numerator_or {a b : Vec Bool n} {j : Fin n} (h : ¬ (a j ∧ b j)) (s : Vec R n) :
    numerator (fun j => a j || b j) s j = numerator a s j + numerator b s j := by
  simp only [numerator]; grind

/-- The order of two merged blocks does not matter. -/
theorem merge_comm (r : R) (a b : Acc R dv) : merge r a b = merge r b a := by
  simp only [merge, Acc.mk.injEq, true_and]
  exact ⟨by grind, by funext c; grind⟩

variable [LawfulExp R]

/-- A shift multiplies every numerator by one factor. -/
theorem numerator_shift (visible : Vec Bool n) (s : Vec R n) (r : R) (j : Fin n) :
    numerator visible (fun j => s j - r) j = numerator visible s j * exp (-r) := by
  simp only [numerator, exp_sub]; grind

/-- Changing the shift of a partial sum is one multiplication. -/
theorem numerator_reshift (visible : Vec Bool n) (s : Vec R n) (r r' : R) (j : Fin n) :
    numerator visible (fun j => s j - r) j * exp (r - r') = numerator visible (fun j => s j - r') j := by
  rw [numerator_shift, numerator_shift, exp_sub]; have := exp_neg_mul r; grind

/-- Changing a shift in two steps is changing it in one. -/
theorem exp_reshift (a b c : R) : exp (a - b) * exp (b - c) = exp (a - c) := by
  rw [← LawfulExp.exp_add]; congr 1; grind

/-- The grouping of three merged blocks does not matter, whatever the shifts in between. -/
theorem merge_assoc (r s t : R) (a b c : Acc R dv) : merge r (merge s a b) c = merge r a (merge t b c) := by
  have e : ∀ u v w : R, exp (u - v) * exp (v - w) = exp (u - w) := exp_reshift
  simp only [merge, Acc.mk.injEq, true_and]
  constructor
  · have := e a.shift s r; have := e b.shift s r; have := e b.shift t r; have := e c.shift t r; grind
  · funext k
    have := e a.shift s r; have := e b.shift s r; have := e b.shift t r; have := e c.shift t r; grind

/-- Merging two disjoint blocks gives the block of their union, whatever the shifts. -/
theorem merge_block {a b : Vec Bool n} (h : ∀ j, ¬ (a j ∧ b j)) (s : Vec R n) (v : Mat R n dv) (r₁ r₂ r : R) :
    merge r (block r₁ a s v) (block r₂ b s v) = block r (fun j => a j || b j) s v := by
  simp only [merge, block, denominator, sum_mul, ← sum_add, Acc.mk.injEq, true_and]
  constructor
  · exact sum_congr fun j => by rw [numerator_or (h j), numerator_reshift, numerator_reshift]
  · funext c
    refine sum_congr fun j => ?_
    rw [numerator_or (h j), ← numerator_reshift a s r₁ r, ← numerator_reshift b s r₂ r]; grind

/-- Finishing a block gives the softmax average of the values, whatever the shift. -/
theorem finish_block (visible : Vec Bool n) (s : Vec R n) (v : Mat R n dv) (r : R) (c : Fin dv) :
    finish (block r visible s v) c = sum fun j => softmax visible s j * v j c := by
  rw [← softmax_shift visible s r]
  simp only [finish, block, softmax, sum_mul]
  exact sum_congr fun _ => by grind

/-- Folding disjoint blocks gives the block of their union, at some shift. -/
theorem fold_block (s : Vec R n) (v : Mat R n dv) : ∀ (blocks : List (R × Vec Bool n)) (r : R) (a : Vec Bool n),
    (a :: blocks.map (·.2)).Pairwise (fun a b => ∀ j, ¬ (a j ∧ b j)) →
    ∃ r', fold s v (block r a s v) blocks = block r' (fun j => a j || blocks.any (·.2 j)) s v
  | [], r, a, _ => ⟨r, by simp [fold]⟩
  | b :: bs, r, a, h => by
    simp only [List.map_cons, List.pairwise_cons, List.mem_cons] at h
    obtain ⟨ha, hb, hbs⟩ := h
    obtain ⟨r', h'⟩ := fold_block s v bs b.1 (fun j => a j || b.2 j) (by
      simp only [List.pairwise_cons]; refine ⟨fun c hc j => ?_, hbs⟩
      have := ha c (.inr hc) j; have := hb c hc j; grind)
    refine ⟨r', ?_⟩
    rw [fold, merge_block (ha b.2 (.inl rfl)), h']
    simp [Bool.or_assoc]

/-- Any disjoint blocks that make up the visible keys, in any order and with any shifts, compute the output row. -/
theorem fold_forward (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ) (blocks : List (R × Vec Bool nK))
    (r : R) (disjoint : (blocks.map (·.2)).Pairwise fun a b => ∀ j, ¬ (a j ∧ b j))
    (cover : ∀ j, blocks.any (·.2 j) = p.visible i j) :
    finish (fold (scores p x i) (fun j c => p.multiplier i j * x.value j c)
        (block r (fun _ => false) (scores p x i) fun j c => p.multiplier i j * x.value j c) blocks)
      = forward p x i := by
  obtain ⟨r', h⟩ := fold_block (scores p x i) (fun j c => p.multiplier i j * x.value j c) blocks r
    (fun _ => false) (by simpa using disjoint)
  funext c
  rw [h, finish_block]
  simp only [Bool.false_or, cover, forward, mul, consumed, hadamard, weights, softmaxRows]
  exact sum_congr fun _ => by grind

/-- Weights may be recomputed from a stored log-sum-exp. -/
theorem softmax_of_logsumexp {visible : Vec Bool n} {s : Vec R n} {L : R} (h : exp L = denominator visible s)
    (j : Fin n) : softmax visible s j = numerator visible (fun j => s j - L) j := by
  rw [numerator_shift, softmax, ← h]; have := exp_neg_mul L; have := exp_ne_zero L; grind

end AttnSpec.Acc
