module
public import AttnProofs.Softmax

/-! One head: the pairing of tangent and gradient, hidden keys, empty rows, conservation. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {nQ nK d dv : Nat}

section Pairing
variable [CommRing R] [Inv R] [Exp R]

/-- The gradient map is the adjoint of the tangent map, for every scale, mask, multiplier, bias and shape. -/
theorem jvp_backward (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) (G : Mat R nQ dv) :
    frob (jvp p x dx) G = Inputs.inner dx (backward p x G) := by
  have hv : frob (mul (consumed p x) dx.value) G = frob dx.value (backward p x G).value :=
    frob_mul_right _ _ _
  have hS : frob (mul (hadamard (weightsJvp p x dx) p.multiplier) x.value) G
      = frob (scoresJvp p x dx) (scoresGrad p x G) := by
    rw [frob_mul_left, frob_hadamard_left, weightsJvp, frob_centerRows]; rfl
  have hqk : frob (scoresJvp p x dx) (scoresGrad p x G)
      = frob dx.query (backward p x G).query + frob dx.key (backward p x G).key
        + frob dx.bias (backward p x G).bias := by
    unfold scoresJvp backward
    rw [frob_add_left, frob_smul_left, frob_add_left, frob_mulT_left, frob_mulT_right, frob_smul_right,
      frob_smul_right]
    grind
  unfold jvp Inputs.inner
  rw [frob_add_left, hS, hv, hqk]
  grind

omit [Inv R] [Exp R] in
/-- Bundles that pair alike with every bundle are equal. -/
theorem inner_ext {y z : Inputs R nQ nK d dv} (h : ∀ dx, Inputs.inner dx y = Inputs.inner dx z) : y = z := by
  ext i j
  · have := h ⟨basis i j, fun _ _ => 0, fun _ _ => 0, fun _ _ => 0⟩
    simp only [Inputs.inner, frob_basis, frob_zero] at this; grind
  · have := h ⟨fun _ _ => 0, basis i j, fun _ _ => 0, fun _ _ => 0⟩
    simp only [Inputs.inner, frob_basis, frob_zero] at this; grind
  · have := h ⟨fun _ _ => 0, fun _ _ => 0, basis i j, fun _ _ => 0⟩
    simp only [Inputs.inner, frob_basis, frob_zero] at this; grind
  · have := h ⟨fun _ _ => 0, fun _ _ => 0, fun _ _ => 0, basis i j⟩
    simp only [Inputs.inner, frob_basis, frob_zero] at this; grind

/-- Nothing but `backward` is adjoint to `jvp`. -/
theorem backward_unique (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv)
    (y : Inputs R nQ nK d dv) (h : ∀ dx, frob (jvp p x dx) G = Inputs.inner dx y) : y = backward p x G :=
  inner_ext fun dx => by rw [← h, jvp_backward]

/-- The correction term of a row may be taken from the output instead of from the weights. -/
theorem dot_weights_weightsGrad (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) (i : Fin nQ) :
    dot (weights p x i) (weightsGrad p x G i) = dot (G i) (forward p x i) := by
  simp only [dot, weightsGrad, forward, consumed, hadamard, mul, mulT, mul_sum]
  rw [sum_comm]
  exact sum_congr fun _ => sum_congr fun _ => by grind

/-- The score gradient as kernels compute it, from the output. -/
theorem scoresGrad_eq (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) (i : Fin nQ)
    (j : Fin nK) :
    scoresGrad p x G i j = weights p x i j * (weightsGrad p x G i j - dot (G i) (forward p x i)) := by
  rw [← dot_weights_weightsGrad]; rfl

end Pairing

section Hidden
variable [CommRing R] [Inv R] [Exp R]
variable {p : Params R nQ nK} (x dx : Inputs R nQ nK d dv) (G : Mat R nQ dv)

/-- A hidden key has weight zero. -/
theorem weights_hidden {i : Fin nQ} {j : Fin nK} (h : p.visible i j = false) : weights p x i j = 0 :=
  softmax_hidden h _

/-- A hidden key has weight zero after dropout too. -/
theorem consumed_hidden {i : Fin nQ} {j : Fin nK} (h : p.visible i j = false) : consumed p x i j = 0 := by
  simp only [consumed, hadamard, weights_hidden x h]; grind

/-- The weight of a hidden key does not move. -/
theorem weightsJvp_hidden {i : Fin nQ} {j : Fin nK} (h : p.visible i j = false) :
    weightsJvp p x dx i j = 0 := center_of_weight_zero (weights_hidden x h) _

/-- The score of a hidden key has gradient zero. -/
theorem scoresGrad_hidden {i : Fin nQ} {j : Fin nK} (h : p.visible i j = false) : scoresGrad p x G i j = 0 :=
  center_of_weight_zero (weights_hidden x h) _

/-- A key that no query sees receives no gradient. -/
theorem backward_key_hidden {j : Fin nK} (h : ∀ i, p.visible i j = false) :
    (backward p x G).key j = fun _ => 0 := by
  funext c
  have : tMul (scoresGrad p x G) x.query j c = 0 :=
    sum_eq_zero fun i => by rw [scoresGrad_hidden x G (h i)]; grind
  simp only [backward, this]; grind

/-- The value of a key that no query sees receives no gradient. -/
theorem backward_value_hidden {j : Fin nK} (h : ∀ i, p.visible i j = false) :
    (backward p x G).value j = fun _ => 0 := by
  funext c
  exact sum_eq_zero fun i => by rw [consumed_hidden x (h i)]; grind

section Empty
variable {i : Fin nQ} (h : ∀ j, p.visible i j = false)
include h

/-- A query that sees no key has the zero row of weights. -/
theorem weights_empty : weights p x i = fun _ => 0 := softmax_empty h _

/-- A query that sees no key has the zero row as its output. -/
theorem forward_empty : forward p x i = fun _ => 0 := by
  funext c
  exact sum_eq_zero fun j => by rw [consumed_hidden x (h j)]; grind

/-- A query that sees no key passes no gradient to its scores. -/
theorem scoresGrad_empty : scoresGrad p x G i = fun _ => 0 := funext fun j => scoresGrad_hidden x G (h j)

/-- A query that sees no key receives no gradient. -/
theorem backward_query_empty : (backward p x G).query i = fun _ => 0 := by
  funext a
  have : mul (scoresGrad p x G) x.key i a = 0 := sum_eq_zero fun j => by rw [scoresGrad_hidden x G (h j)]; grind
  simp only [backward, this]; grind

/-- The output of a query that sees no key does not move. -/
theorem jvp_empty : jvp p x dx i = fun _ => 0 := by
  funext c
  have h1 : mul (hadamard (weightsJvp p x dx) p.multiplier) x.value i c = 0 := sum_eq_zero fun j => by
    simp only [hadamard, weightsJvp_hidden x dx (h j)]; grind
  have h2 : mul (consumed p x) dx.value i c = 0 := sum_eq_zero fun j => by rw [consumed_hidden x (h j)]; grind
  simp only [jvp, h1, h2]; grind

end Empty
end Hidden

section Conservation
variable [CommRing R] [Inv R] [Exp R]

/-- Value gradients summed over keys are output gradients weighted by the mass of each row. -/
theorem sum_backward_value (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) (c : Fin dv) :
    (sum fun j => (backward p x G).value j c) = sum fun i => sum (consumed p x i) * G i c := by
  simp only [backward, tMul, sum_mul]
  exact sum_comm _

end Conservation

section Rows
variable [Field R] [Exp R] (p : Params R nQ nK) (x : Inputs R nQ nK d dv)

/-- The gradients of the scores of a row sum to zero. -/
theorem sum_scoresGrad (G : Mat R nQ dv) (i : Fin nQ) : sum (scoresGrad p x G i) = 0 :=
  sum_center_softmax _ _ _

/-- Where a value column is one at every visible key, the output is the mass of the row. -/
theorem forward_unit_value {i : Fin nQ} {c : Fin dv} (h : ∀ j, p.visible i j → x.value j c = 1) :
    forward p x i c = sum (consumed p x i) := by
  refine sum_congr fun j => ?_
  by_cases hj : p.visible i j
  · rw [h j hj]; grind
  · rw [consumed_hidden x (by simpa using hj)]; grind

/-- Where the multiplier is one at every visible key, dropout changes no weight of the row. -/
theorem consumed_of_multiplier_one {i : Fin nQ} (h : ∀ j, p.visible i j → p.multiplier i j = 1) :
    consumed p x i = weights p x i := by
  funext j
  by_cases hj : p.visible i j
  · simp only [consumed, hadamard, h j hj]; grind
  · rw [consumed_hidden x (by simpa using hj), weights_hidden x (by simpa using hj)]

/-- A query that sees one key copies its value, times the multiplier. -/
theorem forward_singleton {i : Fin nQ} {j : Fin nK} (only : ∀ k, p.visible i k = true ↔ k = j)
    (h : exp (scores p x i j) ≠ 0) (c : Fin dv) :
    forward p x i c = p.multiplier i j * x.value j c := by
  have hidden : ∀ k, k ≠ j → p.visible i k = false := fun k hk =>
    Bool.eq_false_iff.2 fun e => hk ((only k).1 e)
  have hd : denominator (p.visible i) (scores p x i) = exp (scores p x i j) := by
    rw [denominator, sum_single _ j fun k hk => by simp [numerator, hidden k hk]]
    simp [numerator, (only j).2 rfl]
  have hw : weights p x i j = 1 := by
    simp only [weights, softmaxRows, softmax, hd, numerator, (only j).2 rfl]; grind
  unfold forward mul
  rw [sum_single _ j fun k hk => by rw [consumed_hidden x (hidden k hk)]; grind]
  simp only [consumed, hadamard, hw]; grind

/-- Where all visible scores of a row are equal, its output is the average of the visible values. -/
theorem forward_uniform {i : Fin nQ} {a : R} (h : ∀ j, p.visible i j → scores p x i j = a)
    (one : ∀ j, p.visible i j → p.multiplier i j = 1)
    (hd : denominator (p.visible i) (scores p x i) ≠ 0) (c : Fin dv) :
    (sum fun j => if p.visible i j then (1 : R) else 0) * forward p x i c
      = sum fun j => if p.visible i j then x.value j c else 0 := by
  simp only [forward, mul]
  rw [consumed_of_multiplier_one p x one, mul_sum]
  refine sum_congr fun j => ?_
  have := softmax_uniform h hd j
  simp only [weights, softmaxRows]
  grind

end Rows

section Shift
variable [Field R] [Exp R] [LawfulExp R]

/-- The inputs with `c i` subtracted from every bias of row `i`. -/
def Inputs.shiftBias (c : Vec R nQ) (x : Inputs R nQ nK d dv) : Inputs R nQ nK d dv :=
  { x with bias := fun i j => x.bias i j - c i }

/-- Weights do not see a number that is subtracted from all biases of a row. -/
theorem weights_shiftBias (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (c : Vec R nQ) :
    weights p (x.shiftBias c) = weights p x := by
  funext i
  have : scores p (x.shiftBias c) i = fun j => scores p x i j - c i := by
    funext j; simp only [scores, Inputs.shiftBias]; grind
  simp only [weights, softmaxRows, this, softmax_shift]

/-- The output does not see a number that is subtracted from all biases of a row. -/
theorem forward_shiftBias (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (c : Vec R nQ) :
    forward p (x.shiftBias c) = forward p x := by
  unfold forward consumed
  rw [weights_shiftBias]; rfl

/-- The gradients do not see a number that is subtracted from all biases of a row. -/
theorem backward_shiftBias (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (c : Vec R nQ) (G : Mat R nQ dv) :
    backward p (x.shiftBias c) G = backward p x G := by
  have hs : scoresGrad p (x.shiftBias c) G = scoresGrad p x G := by
    unfold scoresGrad; rw [weights_shiftBias]; rfl
  unfold backward consumed
  rw [hs, weights_shiftBias]; rfl

end Shift
end AttnSpec
