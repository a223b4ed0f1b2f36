module
public import AttnProofs.Dual

/-! Softcapped scores: tangent and gradient pair, the tangent is the derivative, and the mask still hides. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec.Softcap
open Lean.Grind

universe u
variable {R : Type u} {nQ nK d dv : Nat}

section Pairing
variable [CommRing R] [Inv R] [Exp R] [Tanh R]

/-- Under a cap too, the gradient map is the adjoint of the tangent map. -/
theorem jvp_backward (c : R) (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) (G : Mat R nQ dv) :
    frob (jvp c p x dx) G = Inputs.inner dx (backward c p x G) := by
  have hv : frob (mul (hadamard (weights c p x) p.multiplier) dx.value) G = frob dx.value (backward c p x G).value :=
    frob_mul_right _ _ _
  have hS : frob (mul (hadamard (weightsJvp c p x dx) p.multiplier) x.value) G
      = frob (scoresJvp c p x dx) (scoresGrad c p x G) := by
    rw [frob_mul_left, frob_hadamard_left, weightsJvp, frob_centerRows]; rfl
  have hslope (S A B : Mat R nQ nK) : frob (fun i j => S i j * A i j) B = frob A (hadamard S B) :=
    sum_congr fun _ => sum_congr fun _ => by simp only [hadamard]; grind
  have hqk : frob (scoresJvp c p x dx) (scoresGrad c p x G)
      = frob dx.query (backward c p x G).query + frob dx.key (backward c p x G).key
        + frob dx.bias (backward c p x G).bias := by
    unfold scoresJvp backward
    rw [frob_add_left, hslope, frob_smul_left, frob_add_left, frob_mulT_left, frob_mulT_right, frob_smul_right,
      frob_smul_right]
    grind
  unfold jvp Inputs.inner
  rw [frob_add_left, hS, hv, hqk]
  grind

/-- Nothing but `backward` is adjoint to `jvp`. -/
theorem backward_unique (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv)
    (y : Inputs R nQ nK d dv) (h : ∀ dx, frob (jvp c p x dx) G = Inputs.inner dx y) : y = backward c p x G :=
  inner_ext fun dx => by rw [← h, jvp_backward]

variable (c : R) {p : Params R nQ nK} (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) {i : Fin nQ}

/-- A hidden key has weight zero under a cap too: the mask comes after it. -/
theorem weights_hidden {j : Fin nK} (h : p.visible i j = false) : weights c p x i j = 0 := softmax_hidden h _

/-- The capped score of a hidden key has gradient zero. -/
theorem scoresGrad_hidden {j : Fin nK} (h : p.visible i j = false) : scoresGrad c p x G i j = 0 :=
  center_of_weight_zero (weights_hidden c x h) _

/-- A query that sees no key has the zero row as its output under a cap too. -/
theorem forward_empty (h : ∀ j, p.visible i j = false) : forward c p x i = fun _ => 0 := by
  funext k
  exact sum_eq_zero fun j => by simp only [hadamard, weights_hidden c x (h j)]; grind

end Pairing

section Derivative
variable [Field R] [Exp R] [Tanh R] {c : R} (hc : c ≠ 0) (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv)
include hc

omit [Exp R] in
/-- Capped scores over dual numbers are capped scores with their tangent. -/
theorem scores_dual (i : Fin nQ) (j : Fin nK) :
    scores (Dual.const c) (Dual.params p) (Dual.inputs x dx) i j = ⟨scores c p x i j, scoresJvp c p x dx i j⟩ := by
  have hp : scaledScores (Dual.params p) (Dual.inputs x dx) i j
      = ⟨scaledScores p x i j, p.scale * (mulT dx.query x.key i j + mulT x.query dx.key i j)⟩ := by
    ext
    · simp [scaledScores, mulT, dot, Dual.params, Dual.inputs]
    · simp [scaledScores, mulT, dot, Dual.params, Dual.inputs, sum_add]
      grind
  have ht (a : Dual R) : tanh a = ⟨tanh a.re, a.eps * (1 - tanh a.re * tanh a.re)⟩ := rfl
  simp only [scores, softcap, hp, ht, scoresJvp, slope]
  ext
  · simp [Dual.inputs]
  · simp [Dual.inputs]
    grind

/-- Weights under a cap over dual numbers are those weights with their tangent. -/
theorem weights_dual (i : Fin nQ) (j : Fin nK) :
    weights (Dual.const c) (Dual.params p) (Dual.inputs x dx) i j = ⟨weights c p x i j, weightsJvp c p x dx i j⟩ := by
  ext
  · simp only [weights, softmaxRows, re_softmax, scores_dual hc]; rfl
  · simp only [weights, weightsJvp, softmaxRows, centerRows, eps_softmax, scores_dual hc]; rfl

/-- The output under a cap over dual numbers is the output with its tangent. -/
theorem forward_dual (i : Fin nQ) (k : Fin dv) :
    forward (Dual.const c) (Dual.params p) (Dual.inputs x dx) i k = ⟨forward c p x i k, jvp c p x dx i k⟩ := by
  ext
  · simp only [forward, mul, hadamard, weights_dual hc]
    simp [Dual.params, Dual.inputs]
  · simp only [forward, jvp, mul, hadamard, weights_dual hc, ← sum_add]
    simp [Dual.params, Dual.inputs]
    exact sum_congr fun _ => by grind

end Derivative

/-- The rational stand-in for the hyperbolic tangent is the one that belongs to the stand-in for the exponential. -/
theorem padeTanh_eq (x : Rat) : padeTanh x * (padeExp (2 * x) + 1) = padeExp (2 * x) - 1 := by
  have sq : ∀ a : Rat, 0 ≤ a * a := fun a => by
    by_cases h : 0 ≤ a
    · exact Rat.mul_nonneg h h
    · have := Rat.mul_nonneg (a := -a) (b := -a) (by grind) (by grind); grind
  have h1 : (3 + x * x) ≠ 0 := by have := sq x; grind
  have h2 : (12 - 6 * (2 * x) + 2 * x * (2 * x)) ≠ 0 := by have := sq (2 * x - 3); grind
  rw [padeTanh, padeExp, Rat.div_def, Rat.div_def]
  grind

end AttnSpec.Softcap
