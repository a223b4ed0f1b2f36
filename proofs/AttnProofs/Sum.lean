module
public import AttnSpec

/-! Laws of finite sums over a commutative ring. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {m n : Nat}

/-- The empty sum is zero. -/
@[simp] theorem sum_nil [Zero R] [Add R] (f : Vec R 0) : sum f = 0 := rfl

/-- A sum is its first term plus the rest. -/
theorem sum_succ [Zero R] [Add R] (f : Vec R (n + 1)) : sum f = f 0 + sum fun i => f i.succ := rfl

/-- Equal terms give equal sums. -/
theorem sum_congr [Zero R] [Add R] {f g : Vec R n} (h : ∀ i, f i = g i) : sum f = sum g := by
  rw [funext h]

variable [CommRing R]

/-- A sum of zeros is zero. -/
theorem sum_const_zero : (sum fun _ : Fin n => (0 : R)) = 0 := by
  induction n with grind [sum_nil, sum_succ]

/-- The sum of a sum of vectors. -/
theorem sum_add (f g : Vec R n) : (sum fun i => f i + g i) = sum f + sum g := by
  induction n with grind [sum_nil, sum_succ]

/-- The sum of a negated vector. -/
theorem sum_neg (f : Vec R n) : (sum fun i => - f i) = - sum f := by
  induction n with grind [sum_nil, sum_succ]

/-- The sum of a difference of vectors. -/
theorem sum_sub (f g : Vec R n) : (sum fun i => f i - g i) = sum f - sum g := by
  induction n with grind [sum_nil, sum_succ]

/-- A factor on the left moves into a sum. -/
theorem mul_sum (a : R) (f : Vec R n) : a * sum f = sum fun i => a * f i := by
  induction n with grind [sum_nil, sum_succ]

/-- A factor on the right moves into a sum. -/
theorem sum_mul (f : Vec R n) (a : R) : sum f * a = sum fun i => f i * a := by
  induction n with grind [sum_nil, sum_succ]

/-- The order of two summations may be exchanged. -/
theorem sum_comm (f : Mat R m n) : (sum fun i => sum fun j => f i j) = sum fun j => sum fun i => f i j := by
  induction m with
  | zero => simp [sum_const_zero]
  | succ m ih => simp only [sum_succ, ih, sum_add]

/-- A sum whose every term is zero is zero. -/
theorem sum_eq_zero {f : Vec R n} (h : ∀ i, f i = 0) : sum f = 0 := by
  rw [funext h, sum_const_zero]

/-- A sum with one term that may differ from zero is that term. -/
theorem sum_single (f : Vec R n) (a : Fin n) (h : ∀ i, i ≠ a → f i = 0) : sum f = f a := by
  induction n with
  | zero => exact a.elim0
  | succ n ih =>
    rw [sum_succ]
    cases a using Fin.cases with
    | zero => rw [sum_eq_zero fun i => h _ (Fin.succ_ne_zero i)]; grind
    | succ a => rw [ih (fun i => f i.succ) a (fun i hi => h _ (by grind)), h 0 (by grind)]; grind

/-- A sum may be taken along an injection that reaches every term that differs from zero. -/
theorem sum_embed (f : Vec R n) (ι : Fin m → Fin n) (inj : ∀ {i i'}, ι i = ι i' → i = i')
    (supp : ∀ j, (∀ i, ι i ≠ j) → f j = 0) : sum f = sum fun i => f (ι i) := by
  have h1 : ∀ j, f j = sum fun i => (if ι i = j then f j else 0) := by
    intro j
    by_cases h : ∃ i, ι i = j
    · obtain ⟨i, hi⟩ := h
      rw [sum_single _ i (fun i' hi' => by grind)]; grind
    · rw [sum_eq_zero (fun i => by grind)]; grind
  rw [funext h1, sum_comm]
  exact sum_congr fun i => by rw [sum_single _ (ι i) (fun j hj => by grind)]; grind

end AttnSpec
