module
public import AttnProofs.Attention

/-! The tangent map is the forward-mode derivative: forward over dual numbers. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {l m n nQ nK d dv : Nat}

namespace Dual

/-- Real part of zero. -/
@[simp] theorem re_zero [Zero R] : (0 : Dual R).re = 0 := rfl
/-- Derivative of zero. -/
@[simp] theorem eps_zero [Zero R] : (0 : Dual R).eps = 0 := rfl
/-- Real part of a sum. -/
@[simp] theorem re_add [Add R] (x y : Dual R) : (x + y).re = x.re + y.re := rfl
/-- Derivative of a sum. -/
@[simp] theorem eps_add [Add R] (x y : Dual R) : (x + y).eps = x.eps + y.eps := rfl
/-- Real part of a difference. -/
@[simp] theorem re_sub [Sub R] (x y : Dual R) : (x - y).re = x.re - y.re := rfl
/-- Derivative of a difference. -/
@[simp] theorem eps_sub [Sub R] (x y : Dual R) : (x - y).eps = x.eps - y.eps := rfl
/-- Real part of a product. -/
@[simp] theorem re_mul [Add R] [Mul R] (x y : Dual R) : (x * y).re = x.re * y.re := rfl
/-- Derivative of a product. -/
@[simp] theorem eps_mul [Add R] [Mul R] (x y : Dual R) : (x * y).eps = x.re * y.eps + x.eps * y.re := rfl
/-- Real part of an inverse. -/
@[simp] theorem re_inv [Neg R] [Mul R] [Inv R] (x : Dual R) : x⁻¹.re = x.re⁻¹ := rfl
/-- Derivative of an inverse. -/
@[simp] theorem eps_inv [Neg R] [Mul R] [Inv R] (x : Dual R) :
    x⁻¹.eps = -(x.eps * (x.re⁻¹ * x.re⁻¹)) := rfl
/-- Real part of an exponential. -/
@[simp] theorem re_exp [Mul R] [Exp R] (x : Dual R) : (exp x).re = exp x.re := rfl
/-- Derivative of an exponential. -/
@[simp] theorem eps_exp [Mul R] [Exp R] (x : Dual R) : (exp x).eps = x.eps * exp x.re := rfl
/-- Real part of a constant. -/
@[simp] theorem re_const [Zero R] (a : R) : (const a).re = a := rfl
/-- Derivative of a constant. -/
@[simp] theorem eps_const [Zero R] (a : R) : (const a).eps = 0 := rfl

/-- Real part of a finite sum. -/
@[simp] theorem re_sum [Zero R] [Add R] (f : Vec (Dual R) n) : (sum f).re = sum fun i => (f i).re := by
  induction n with
  | zero => rfl
  | succ n ih => simp only [sum, re_add, ih]

/-- Derivative of a finite sum. -/
@[simp] theorem eps_sum [Zero R] [Add R] (f : Vec (Dual R) n) : (sum f).eps = sum fun i => (f i).eps := by
  induction n with
  | zero => rfl
  | succ n ih => simp only [sum, eps_add, ih]

/-- The inverse of a dual number is one wherever the real part is not zero. -/
theorem mul_inv [Field R] (x : Dual R) (h : x.re ≠ 0) : x * x⁻¹ = ⟨1, 0⟩ := by
  ext
  · simp; grind
  · simp; grind

end Dual

section
variable [CommRing R] [Exp R]

/-- Real part of the numerators. -/
theorem re_numerator (visible : Vec Bool n) (s : Vec (Dual R) n) (j : Fin n) :
    (numerator visible s j).re = numerator visible (fun j => (s j).re) j := by
  simp only [numerator]; split <;> rfl

/-- Derivative of the numerators. -/
theorem eps_numerator (visible : Vec Bool n) (s : Vec (Dual R) n) (j : Fin n) :
    (numerator visible s j).eps = numerator visible (fun j => (s j).re) j * (s j).eps := by
  simp only [numerator]; split
  · simp; grind
  · simp; grind

variable [Inv R]

/-- Real part of the weights. -/
theorem re_softmax (visible : Vec Bool n) (s : Vec (Dual R) n) (j : Fin n) :
    (softmax visible s j).re = softmax visible (fun j => (s j).re) j := by
  simp [softmax, denominator, re_numerator]

/-- The derivative of softmax is centring at its weights. -/
theorem eps_softmax (visible : Vec Bool n) (s : Vec (Dual R) n) (j : Fin n) :
    (softmax visible s j).eps = center (softmax visible fun j => (s j).re) (fun j => (s j).eps) j := by
  have h : dot (softmax visible fun j => (s j).re) (fun j => (s j).eps)
      = (sum fun j => numerator visible (fun j => (s j).re) j * (s j).eps)
        * (denominator visible fun j => (s j).re)⁻¹ := by
    simp only [dot, softmax, sum_mul]; exact sum_congr fun _ => by grind
  simp only [center, h]
  simp [softmax, denominator, re_numerator, eps_numerator]
  grind

variable (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv)

omit [Exp R] [Inv R] in
/-- Scores over dual numbers are scores with their tangent. -/
theorem scores_dual (i : Fin nQ) (j : Fin nK) :
    scores (Dual.params p) (Dual.inputs x dx) i j = ⟨scores p x i j, scoresJvp p x dx i j⟩ := by
  ext
  · simp [scores, mulT, dot, Dual.params, Dual.inputs]
  · simp [scores, scoresJvp, mulT, dot, Dual.params, Dual.inputs, sum_add]
    grind

/-- Weights over dual numbers are weights with their tangent. -/
theorem weights_dual (i : Fin nQ) (j : Fin nK) :
    weights (Dual.params p) (Dual.inputs x dx) i j = ⟨weights p x i j, weightsJvp p x dx i j⟩ := by
  ext
  · simp only [weights, softmaxRows, re_softmax, scores_dual]; rfl
  · simp only [weights, weightsJvp, softmaxRows, centerRows, eps_softmax, scores_dual]; rfl

/-- The output over dual numbers is the output with its tangent. -/
theorem forward_dual (i : Fin nQ) (c : Fin dv) :
    forward (Dual.params p) (Dual.inputs x dx) i c = ⟨forward p x i c, jvp p x dx i c⟩ := by
  ext
  · simp only [forward, mul, consumed, hadamard, weights_dual]
    simp [Dual.params, Dual.inputs]
  · simp only [forward, jvp, mul, consumed, hadamard, weights_dual, ← sum_add]
    simp [Dual.params, Dual.inputs]
    exact sum_congr fun _ => by grind

end
end AttnSpec
