module
public import AttnProofs.Matrix

/-! The row maps: masked softmax and weighted centring. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {m n : Nat}

section Center
variable [CommRing R]

/-- Weighted centring is symmetric in the inner product. -/
theorem dot_center (p x g : Vec R n) : dot (center p x) g = dot x (center p g) := by
  have h (u v : Vec R n) : dot (center p u) v = sum (fun j => p j * u j * v j) - dot p u * dot p v := by
    simp only [dot, center, mul_sum (R := R), ← sum_sub]
    exact sum_congr fun _ => by grind
  rw [dot_comm x, h, h]
  grind

/-- The backward helper is symmetric in the Frobenius inner product, for any weights. -/
theorem frob_centerRows (P X G : Mat R m n) : frob (centerRows P X) G = frob X (centerRows P G) :=
  sum_congr fun _ => dot_center _ _ _

/-- Centring under zero weights gives zero. -/
theorem center_zero (g : Vec R n) : center (fun _ => 0) g = fun _ => 0 := by
  funext j; simp only [center]; grind

/-- Centring gives zero wherever the weight is zero. -/
theorem center_of_weight_zero {p : Vec R n} {j : Fin n} (h : p j = 0) (g : Vec R n) : center p g j = 0 := by
  simp only [center]; grind

/-- The entries of a centred vector sum to `(1 - Σ p) ⟨p, g⟩`. -/
theorem sum_center (p g : Vec R n) : sum (center p g) = (1 - sum p) * dot p g := by
  have : center p g = fun j => p j * g j - p j * dot p g := by funext j; simp only [center]; grind
  rw [this, sum_sub, ← sum_mul]
  simp only [dot]; grind

end Center

section Hidden
variable [CommRing R] [Inv R] [Exp R]

/-- A hidden key has weight zero. -/
theorem softmax_hidden {visible : Vec Bool n} {j : Fin n} (h : visible j = false) (s : Vec R n) :
    softmax visible s j = 0 := by
  simp only [softmax, numerator, h]; grind

/-- A row that sees no key is the zero row. -/
theorem softmax_empty {visible : Vec Bool n} (h : ∀ j, visible j = false) (s : Vec R n) :
    softmax visible s = fun _ => 0 := funext fun j => softmax_hidden (h j) s

/-- Weights depend on the scores of visible keys only. -/
theorem softmax_congr {visible : Vec Bool n} {s t : Vec R n} (h : ∀ j, visible j → s j = t j) :
    softmax visible s = softmax visible t := by
  have : numerator visible s = numerator visible t := by funext j; simp only [numerator]; grind
  unfold softmax denominator
  rw [this]

/-- Visible keys with equal scores have equal weights. -/
theorem softmax_tie {visible : Vec Bool n} {s : Vec R n} {j k : Fin n} (hj : visible j) (hk : visible k)
    (h : s j = s k) : softmax visible s j = softmax visible s k := by
  simp only [softmax, numerator, hj, hk, h]

/-- `ι` lists, without repetition, a set of keys that holds every visible one. -/
structure Covers (ι : Fin m → Fin n) (visible : Vec Bool n) : Prop where
  /-- No key is listed twice. -/
  inj : ∀ {i i'}, ι i = ι i' → i = i'
  /-- Every visible key is listed. -/
  supp : ∀ j, visible j → ∃ i, ι i = j

omit [Inv R] [Exp R] in
/-- A sum that is zero off the visible keys may be taken along a list that covers them. -/
theorem sum_covers {ι : Fin m → Fin n} {visible : Vec Bool n} (h : Covers ι visible) (f : Vec R n)
    (hf : ∀ j, visible j = false → f j = 0) : sum f = sum fun i => f (ι i) := by
  refine sum_embed f ι h.inj fun j hj => hf j ?_
  have := h.supp j
  grind

omit [Inv R] in
/-- The denominator may be taken along a list that covers the visible keys. -/
theorem denominator_covers {ι : Fin m → Fin n} {visible : Vec Bool n} (h : Covers ι visible) (s : Vec R n) :
    denominator visible s = denominator (fun i => visible (ι i)) (fun i => s (ι i)) :=
  sum_covers h _ fun j hj => by simp [numerator, hj]

/-- The weights may be computed along a list that covers the visible keys. -/
theorem softmax_covers {ι : Fin m → Fin n} {visible : Vec Bool n} (h : Covers ι visible) (s : Vec R n)
    (i : Fin m) :
    softmax visible s (ι i) = softmax (fun i => visible (ι i)) (fun i => s (ι i)) i := by
  rw [softmax, denominator_covers h]; rfl

/-- A permutation, given with its inverse, covers any mask. -/
theorem Covers.of_inverse {ι : Fin m → Fin n} {π : Fin n → Fin m} (h : ∀ i, π (ι i) = i)
    (h' : ∀ j, ι (π j) = j) (visible : Vec Bool n) : Covers ι visible :=
  ⟨fun {i i'} e => by rw [← h i, e, h], fun j _ => ⟨π j, h' j⟩⟩

/-- The identity covers any mask. -/
theorem Covers.id (visible : Vec Bool n) : Covers id visible := ⟨fun h => h, fun j _ => ⟨j, rfl⟩⟩

end Hidden

section Normalised
variable [Field R] [Exp R]

/-- Weights sum to one where the denominator is not zero. -/
theorem sum_softmax {visible : Vec Bool n} {s : Vec R n} (h : denominator visible s ≠ 0) :
    sum (softmax visible s) = 1 := by
  have : sum (softmax visible s) = denominator visible s * (denominator visible s)⁻¹ := by
    rw [denominator, sum_mul]; rfl
  grind

/-- Where the denominator is zero the whole row is zero. -/
theorem softmax_of_denominator_zero {visible : Vec Bool n} {s : Vec R n} (h : denominator visible s = 0) :
    softmax visible s = fun _ => 0 := by
  funext j; simp only [softmax, h]; grind

/-- A row centred at softmax weights sums to zero, whether or not it sees a key. -/
theorem sum_center_softmax (visible : Vec Bool n) (s g : Vec R n) :
    sum (center (softmax visible s) g) = 0 := by
  by_cases h : denominator visible s = 0
  · rw [softmax_of_denominator_zero h, center_zero, sum_const_zero]
  · rw [sum_center, sum_softmax h]; grind

/-- Multiplying every visible numerator by one factor that is not zero changes no weight. -/
theorem softmax_scale {visible : Vec Bool n} {s t : Vec R n} {e : R} (he : e ≠ 0)
    (h : ∀ j, visible j → exp (t j) = exp (s j) * e) : softmax visible t = softmax visible s := by
  have hn : numerator visible t = fun j => numerator visible s j * e := by
    funext j; simp only [numerator]; grind
  have hd : denominator visible t = denominator visible s * e := by
    rw [denominator, hn, ← sum_mul]; rfl
  funext j
  simp only [softmax, hd, hn]
  by_cases hz : denominator visible s = 0 <;> grind

/-- Where all visible scores are equal, the weights times the number of visible keys are one. -/
theorem softmax_uniform {visible : Vec Bool n} {s : Vec R n} {a : R} (h : ∀ j, visible j → s j = a)
    (hd : denominator visible s ≠ 0) (j : Fin n) :
    (sum fun k => if visible k then (1 : R) else 0) * softmax visible s j = if visible j then 1 else 0 := by
  have hn : numerator visible s = fun j => exp a * (if visible j then 1 else 0) := by
    funext j; simp only [numerator]; have := h j; grind
  have hden : denominator visible s = exp a * sum fun k => if visible k then (1 : R) else 0 := by
    rw [denominator, hn, mul_sum]
  rw [hden] at hd
  simp only [softmax, hden, hn]
  grind

end Normalised

section Laws
variable [Field R] [Exp R]

/-- What the real exponential satisfies: zero goes to one and sums go to products. -/
class LawfulExp (R : Type u) [Field R] [Exp R] : Prop where
  /-- The exponential of zero is one. -/
  exp_zero : exp (0 : R) = 1
  /-- The exponential of a sum is the product of the exponentials. -/
  exp_add : ∀ a b : R, exp (a + b) = exp a * exp b

variable [LawfulExp R]

/-- The exponentials of `a` and `-a` are inverse to each other. -/
theorem exp_neg_mul (a : R) : exp (-a) * exp a = 1 := by
  rw [← LawfulExp.exp_add, ← LawfulExp.exp_zero (R := R)]; congr 1; grind

/-- No exponential is zero. -/
theorem exp_ne_zero (a : R) : exp a ≠ 0 := by
  have := exp_neg_mul a; grind

/-- The exponential of a difference. -/
theorem exp_sub (a b : R) : exp (a - b) = exp a * exp (-b) := by
  rw [← LawfulExp.exp_add]; congr 1; grind

/-- Adding one number to every score of a row changes no weight. -/
theorem softmax_shift (visible : Vec Bool n) (s : Vec R n) (c : R) :
    softmax visible (fun j => s j - c) = softmax visible s :=
  softmax_scale (exp_ne_zero (-c)) fun _ _ => exp_sub _ _

end Laws
end AttnSpec
