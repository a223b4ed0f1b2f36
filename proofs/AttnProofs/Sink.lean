module
public import AttnProofs.Attention

/-! The attention sink: its share of a row, rows that see nothing else, and its gradient. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {n nQ nK d dv : Nat}

namespace Sink

/-- A sum over the extended keys is the sum over the real ones plus the term of the sink. -/
theorem sum_split [CommRing R] {n : Nat} (f : Vec R (n + 1)) : sum f = (sum fun j => f (real j)) + f column := by
  induction n with
  | zero => rw [sum_succ, sum_nil, sum_nil]; have : f column = f 0 := rfl; grind
  | succ n ih =>
    rw [sum_succ, ih fun i => f i.succ, sum_succ]
    have h1 : f (real 0) = f 0 := rfl
    have h2 : f (column : Fin (n + 1)).succ = f column := congrArg f (Fin.ext (by simp [column]))
    have h3 : (sum fun j : Fin n => f (real j).succ) = sum fun j : Fin n => f (real j.succ) := rfl
    grind

section Entries
variable [CommRing R] (logit : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ) (j : Fin nK)

/-- Real keys keep their place in the mask. -/
@[simp] theorem visible_real : p.extended.visible i (real j) = p.visible i j :=
  append_left (p.visible i) (fun _ => true) j

/-- Every query sees the sink. -/
@[simp] theorem visible_column : p.extended.visible i column = true := append_right (p.visible i) (fun _ => true) 0

/-- Dropout leaves the sink alone. -/
@[simp] theorem multiplier_column : p.extended.multiplier i column = 1 :=
  append_right (p.multiplier i) (fun _ => 1) 0

/-- Real keys keep their values. -/
@[simp] theorem value_real : (x.extended logit).value (real j) = x.value j :=
  append_left x.value (fun _ _ => 0) j

/-- The sink carries no value. -/
@[simp] theorem value_column : (x.extended logit).value column = fun _ => 0 :=
  append_right x.value (fun _ _ => 0) 0

/-- The sink's key is zero. -/
@[simp] theorem key_column : (x.extended logit).key column = fun _ => 0 := append_right x.key (fun _ _ => 0) 0

/-- Real keys keep their scores. -/
@[simp] theorem scores_real : scores p.extended (x.extended logit) i (real j) = scores p x i j := by
  have hk : (x.extended logit).key (real j) = x.key j := append_left x.key (fun _ _ => 0) j
  have hb : (x.extended logit).bias i (real j) = x.bias i j := append_left (x.bias i) (fun _ => logit) j
  simp only [scores, mulT, hk, hb]; rfl

/-- The score of the sink is its logit, whatever the query. -/
@[simp] theorem scores_column : scores p.extended (x.extended logit) i column = logit := by
  have hb : (x.extended logit).bias i column = logit := append_right (x.bias i) (fun _ => logit) 0
  have hd : dot ((x.extended logit).query i) ((x.extended logit).key column) = 0 := by
    rw [key_column]; exact sum_eq_zero fun _ => by grind
  simp only [scores, mulT, hb, hd]; grind

end Entries

section Row
variable [CommRing R] [Inv R] [Exp R] (logit : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ)

omit [Inv R] in
/-- The sink adds its exponential to the denominator of every row. -/
theorem denominator_extended :
    denominator (p.extended.visible i) (scores p.extended (x.extended logit) i)
      = denominator (p.visible i) (scores p x i) + exp logit := by
  have real : ∀ j, numerator (p.extended.visible i) (scores p.extended (x.extended logit) i) (real j)
      = numerator (p.visible i) (scores p x i) j := fun j => by simp only [numerator, visible_real, scores_real]
  unfold denominator
  rw [sum_split, sum_congr real]
  simp [numerator]

/-- The weight of a real key: its numerator over the denominator that the sink has grown. -/
theorem weights_real (j : Fin nK) :
    weights p.extended (x.extended logit) i (real j)
      = numerator (p.visible i) (scores p x i) j * (denominator (p.visible i) (scores p x i) + exp logit)⁻¹ := by
  simp only [weights, softmaxRows, softmax, denominator_extended, numerator, visible_real, scores_real]

/-- The weight of the sink: its exponential over that denominator. -/
theorem weights_column :
    weights p.extended (x.extended logit) i column
      = exp logit * (denominator (p.visible i) (scores p x i) + exp logit)⁻¹ := by
  simp [weights, softmaxRows, softmax, denominator_extended, numerator]

/-- The output is a sum over the real keys: the sink carries no value. -/
theorem forward_extended (c : Fin dv) :
    forward p.extended (x.extended logit) i c
      = sum fun j => consumed p.extended (x.extended logit) i (real j) * x.value j c := by
  simp only [forward, mul]
  rw [sum_split]
  simp only [value_real, value_column]
  grind

/-- The gradient of the sink's score: minus its weight times the inner product of output and output gradient. -/
theorem scoresGrad_column (G : Mat R nQ dv) :
    scoresGrad p.extended (x.extended logit) G i column
      = -(weights p.extended (x.extended logit) i column * dot (G i) (forward p.extended (x.extended logit) i)) := by
  have hd : dot (G i) ((x.extended logit).value column) = 0 := by
    rw [value_column]; exact sum_eq_zero fun _ => by grind
  rw [scoresGrad_eq]
  simp only [weightsGrad, hadamard, mulT, hd]; grind

variable {i} (h : ∀ j, p.visible i j = false)
include h

/-- A row that sees the sink alone has output zero. -/
theorem forward_empty : forward p.extended (x.extended logit) i = fun _ => 0 := by
  funext c
  rw [forward_extended]
  refine sum_eq_zero fun j => ?_
  rw [consumed_hidden _ ((visible_real p i j).trans (h j))]; grind

omit [Inv R] in
/-- A row that sees the sink alone has the exponential of its logit as denominator. -/
theorem denominator_empty :
    denominator (p.extended.visible i) (scores p.extended (x.extended logit) i) = exp logit := by
  have : denominator (p.visible i) (scores p x i) = 0 := sum_eq_zero fun j => by simp [numerator, h j]
  rw [denominator_extended, this]; grind

/-- The query of a row that sees the sink alone receives no gradient. -/
theorem backward_query_empty (G : Mat R nQ dv) :
    (backward p.extended (x.extended logit) G).query i = fun _ => 0 := by
  funext a
  have : mul (scoresGrad p.extended (x.extended logit) G) (x.extended logit).key i a = 0 := by
    unfold mul
    rw [sum_split, key_column, sum_eq_zero fun j => by
      rw [scoresGrad_hidden _ G ((visible_real p i j).trans (h j))]; grind]
    grind
  simp only [backward, this]; grind

end Row

/-- Real weights sum to what the sink leaves of one. -/
theorem sum_weights_real [Field R] [Exp R] (logit : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ)
    (h : denominator (p.visible i) (scores p x i) + exp logit ≠ 0) :
    (sum fun j => weights p.extended (x.extended logit) i (real j))
      = 1 - weights p.extended (x.extended logit) i column := by
  have whole : sum (weights p.extended (x.extended logit) i) = 1 :=
    sum_softmax (by rw [denominator_extended]; exact h)
  rw [sum_split] at whole
  grind

end Sink
end AttnSpec
