module
public import AttnProofs.Dual

/-! Dual numbers over a commutative ring are a commutative ring, so that they nest. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} [CommRing R]

attribute [local instance] Semiring.natCast Ring.intCast

/-- Real part of a negation. -/
@[simp] theorem Dual.re_neg (x : Dual R) : (-x).re = -x.re := rfl
/-- Derivative of a negation. -/
@[simp] theorem Dual.eps_neg (x : Dual R) : (-x).eps = -x.eps := rfl

noncomputable instance (priority := low) : CommRing (Dual R) where
  natCast := ⟨fun n => ⟨(n : R), 0⟩⟩
  ofNat n := ⟨⟨OfNat.ofNat n, 0⟩⟩
  nsmul := ⟨fun n a => ⟨(n : R), 0⟩ * a⟩
  npow := ⟨fun a n => Nat.rec ⟨1, 0⟩ (fun _ b => b * a) n⟩
  intCast := ⟨fun i => ⟨(i : R), 0⟩⟩
  zsmul := ⟨fun i a => ⟨(i : R), 0⟩ * a⟩
  add_zero a := by
    show a + ⟨0, 0⟩ = a
    ext <;> simp <;> grind
  add_comm a b := by ext <;> simp <;> grind
  add_assoc a b c := by ext <;> simp <;> grind
  mul_assoc a b c := by ext <;> simp <;> grind
  mul_comm a b := by ext <;> simp <;> grind
  mul_one a := by
    show a * ⟨1, 0⟩ = a
    ext <;> simp <;> grind
  one_mul a := by
    show ⟨1, 0⟩ * a = a
    ext <;> simp <;> grind
  left_distrib a b c := by ext <;> simp <;> grind
  right_distrib a b c := by ext <;> simp <;> grind
  zero_mul a := by
    show ⟨0, 0⟩ * a = ⟨0, 0⟩
    ext <;> simp <;> grind
  mul_zero a := by
    show a * ⟨0, 0⟩ = ⟨0, 0⟩
    ext <;> simp <;> grind
  pow_zero _ := rfl
  pow_succ _ _ := rfl
  neg_add_cancel a := by
    show -a + a = ⟨0, 0⟩
    ext <;> simp <;> grind
  sub_eq_add_neg a b := by ext <;> simp <;> grind
  ofNat_succ n := by
    show (⟨OfNat.ofNat (n + 1), 0⟩ : Dual R) = ⟨OfNat.ofNat n, 0⟩ + ⟨1, 0⟩
    ext
    · exact Semiring.ofNat_succ n
    · show (0 : R) = 0 + 0; grind
  ofNat_eq_natCast n := by
    exact congrArg (fun a => (⟨a, 0⟩ : Dual R)) (Semiring.ofNat_eq_natCast n)
  neg_zsmul i a := by
    show (⟨((-i : Int) : R), 0⟩ : Dual R) * a = -(⟨(i : R), 0⟩ * a)
    ext <;> simp <;> grind
  zsmul_natCast_eq_nsmul n a := by
    show (⟨((n : Int) : R), 0⟩ : Dual R) * a = ⟨(n : R), 0⟩ * a
    rw [Ring.intCast_natCast]
  intCast_neg i := by
    show (⟨((-i : Int) : R), 0⟩ : Dual R) = -⟨(i : R), 0⟩
    ext <;> simp <;> grind
  intCast_ofNat n := by
    exact congrArg (fun a => (⟨a, 0⟩ : Dual R)) ((Ring.intCast_natCast n).trans (Semiring.ofNat_eq_natCast n).symm)

/-- Dual numbers over dual numbers: the tangent of the tangent comes out of the same definition. -/
theorem forward_dual_dual [Inv R] [Exp R] {nQ nK d dv : Nat} (p : Params (Dual R) nQ nK)
    (x dx : Inputs (Dual R) nQ nK d dv) (i : Fin nQ) (c : Fin dv) :
    forward (Dual.params p) (Dual.inputs x dx) i c = ⟨forward p x i c, jvp p x dx i c⟩ :=
  forward_dual p x dx i c

end AttnSpec
