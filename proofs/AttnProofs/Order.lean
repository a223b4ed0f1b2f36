module
public import AttnProofs.Attention

/-! What needs an order: positive exponentials make weights positive and outputs averages. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {n nQ nK d dv : Nat}
  [Field R] [LE R] [LT R] [Std.LawfulOrderLT R] [Std.IsLinearOrder R] [OrderedRing R]

/-- A sum of terms that are not negative is not negative. -/
theorem sum_nonneg {f : Vec R n} (h : ∀ j, 0 ≤ f j) : 0 ≤ sum f := by
  induction n with
  | zero => simp only [sum_nil]; grind
  | succ n ih => rw [sum_succ]; have := ih (f := fun i => f i.succ) (fun j => h _); have := h 0; grind

/-- A term of a sum of terms that are not negative is at most the sum. -/
theorem le_sum {f : Vec R n} (h : ∀ j, 0 ≤ f j) (j : Fin n) : f j ≤ sum f := by
  induction n with
  | zero => exact j.elim0
  | succ n ih =>
    rw [sum_succ]
    cases j using Fin.cases with
    | zero => have := sum_nonneg (f := fun i => f i.succ) (fun j => h _); grind
    | succ j => have := ih (f := fun i => f i.succ) (fun j => h _) j; have := h 0; grind

/-- A sum is monotone in its terms. -/
theorem sum_mono {f g : Vec R n} (h : ∀ j, f j ≤ g j) : sum f ≤ sum g := by
  have := sum_nonneg (f := fun j => g j - f j) fun j => by have := h j; grind
  rw [sum_sub] at this; grind

/-- The inverse of a positive number is positive. -/
theorem inv_pos_of_pos {a : R} (h : 0 < a) : 0 < a⁻¹ := by
  have ne : a ≠ 0 := by grind
  have e : a * a⁻¹ = 1 := by grind
  have sq : a⁻¹ = a * (a⁻¹ * a⁻¹) := by grind
  have one : (0 : R) < 1 := OrderedRing.zero_lt_one
  by_cases hneg : a⁻¹ ≤ 0
  · have := OrderedRing.mul_le_mul_of_nonneg_left hneg (Std.le_of_lt h); grind
  · grind

variable [Exp R] (pos : ∀ a : R, 0 < exp a)
include pos

/-- A row that sees a key has a positive denominator. -/
theorem denominator_pos {visible : Vec Bool n} {j : Fin n} (hj : visible j) (s : Vec R n) :
    0 < denominator visible s := by
  have h : ∀ j, 0 ≤ numerator visible s j := by
    intro j; simp only [numerator]; have := pos (s j); grind
  have h1 := le_sum h j
  have h2 := pos (s j)
  simp only [numerator, hj] at h1
  simp only [denominator]; grind

/-- A row that sees a key has weights that sum to one. -/
theorem sum_softmax_of_visible {visible : Vec Bool n} {j : Fin n} (hj : visible j) (s : Vec R n) :
    sum (softmax visible s) = 1 :=
  sum_softmax (by have := denominator_pos pos hj s; grind)

/-- A visible key has a positive weight. -/
theorem softmax_pos {visible : Vec Bool n} {j : Fin n} (hj : visible j) (s : Vec R n) :
    0 < softmax visible s j := by
  have := OrderedRing.mul_pos (pos (s j)) (inv_pos_of_pos (denominator_pos pos hj s))
  simpa only [softmax, numerator, hj, if_true] using this

/-- No weight is negative. -/
theorem softmax_nonneg (visible : Vec Bool n) (s : Vec R n) (j : Fin n) : 0 ≤ softmax visible s j := by
  by_cases hj : visible j
  · have := softmax_pos pos hj s; grind
  · rw [softmax_hidden (by simpa using hj)]; grind

/-- No weight exceeds one. -/
theorem softmax_le_one (visible : Vec Bool n) (s : Vec R n) (j : Fin n) : softmax visible s j ≤ 1 := by
  by_cases hj : visible j
  · have := le_sum (softmax_nonneg pos visible s) j
    rw [sum_softmax_of_visible pos hj s] at this; exact this
  · rw [softmax_hidden (by simpa using hj)]
    have : (0 : R) < 1 := OrderedRing.zero_lt_one
    grind

variable (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {i : Fin nQ}

/-- Without dropout, an output entry is at least any lower bound of the visible values. -/
theorem le_forward {j : Fin nK} (hj : p.visible i j) (one : ∀ j, p.visible i j → p.multiplier i j = 1)
    {c : Fin dv} {lo : R} (h : ∀ j, p.visible i j → lo ≤ x.value j c) : lo ≤ forward p x i c := by
  have hs : lo = sum fun j => weights p x i j * lo := by
    rw [← sum_mul]
    have : sum (weights p x i) = 1 := sum_softmax_of_visible pos hj _
    grind
  simp only [forward, mul]
  rw [consumed_of_multiplier_one p x one, hs]
  refine sum_mono fun j => ?_
  by_cases hj : p.visible i j
  · exact OrderedRing.mul_le_mul_of_nonneg_left (h j hj) (softmax_nonneg pos _ _ j)
  · rw [weights_hidden x (by simpa using hj)]; grind

/-- Without dropout, an output entry is at most any upper bound of the visible values. -/
theorem forward_le {j : Fin nK} (hj : p.visible i j) (one : ∀ j, p.visible i j → p.multiplier i j = 1)
    {c : Fin dv} {hi : R} (h : ∀ j, p.visible i j → x.value j c ≤ hi) : forward p x i c ≤ hi := by
  have hs : hi = sum fun j => weights p x i j * hi := by
    rw [← sum_mul]
    have : sum (weights p x i) = 1 := sum_softmax_of_visible pos hj _
    grind
  simp only [forward, mul]
  rw [consumed_of_multiplier_one p x one, hs]
  refine sum_mono fun j => ?_
  by_cases hj : p.visible i j
  · exact OrderedRing.mul_le_mul_of_nonneg_left (h j hj) (softmax_nonneg pos _ _ j)
  · rw [weights_hidden x (by simpa using hj)]; grind

end AttnSpec
