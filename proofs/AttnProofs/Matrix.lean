module
public import AttnProofs.Sum

/-! Adjoints of the three matrix products, and of scaling and masking, in the Frobenius inner product. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {k l m n : Nat} [CommRing R]

/-- The inner product is symmetric. -/
theorem dot_comm (u v : Vec R n) : dot u v = dot v u := sum_congr fun _ => by grind

/-- The Frobenius inner product is symmetric. -/
theorem frob_comm (A B : Mat R m n) : frob A B = frob B A := sum_congr fun _ => dot_comm _ _

/-- The adjoint of `A ↦ A B` is `G ↦ G Bᵀ`. -/
theorem frob_mul_left (A : Mat R l m) (B : Mat R m n) (G : Mat R l n) :
    frob (mul A B) G = frob A (mulT G B) := by
  simp only [frob, mul, mulT, dot, sum_mul, mul_sum]
  refine sum_congr fun i => ?_
  rw [sum_comm]
  exact sum_congr fun _ => sum_congr fun _ => by grind

/-- The adjoint of `B ↦ A B` is `G ↦ Aᵀ G`. -/
theorem frob_mul_right (A : Mat R l m) (B : Mat R m n) (G : Mat R l n) :
    frob (mul A B) G = frob B (tMul A G) := by
  simp only [frob, mul, tMul, dot, sum_mul, mul_sum]
  rw [sum_congr fun i => sum_comm _, sum_comm]
  refine sum_congr fun j => ?_
  rw [sum_comm]
  exact sum_congr fun _ => sum_congr fun _ => by grind

/-- The adjoint of `A ↦ A Bᵀ` is `G ↦ G B`. -/
theorem frob_mulT_left (A : Mat R l m) (B : Mat R n m) (G : Mat R l n) :
    frob (mulT A B) G = frob A (mul G B) := by
  rw [frob_comm A, frob_mul_left, frob_comm]

/-- The adjoint of `B ↦ A Bᵀ` is `G ↦ Gᵀ A`. -/
theorem frob_mulT_right (A : Mat R l m) (B : Mat R n m) (G : Mat R l n) :
    frob (mulT A B) G = frob B (tMul G A) := by
  rw [frob_mulT_left, frob_comm, frob_mul_right]

/-- A product moves from the left of `A Bᵀ` to the right, transposed: `(A M) Bᵀ = A (B Mᵀ)ᵀ`. -/
theorem mulT_mul (A : Mat R k l) (M : Mat R l m) (B : Mat R n m) : mulT (mul A M) B = mulT A (mulT B M) := by
  funext i j
  simp only [mulT, mul, dot, sum_mul, mul_sum]
  rw [sum_comm]
  exact sum_congr fun _ => sum_congr fun _ => by grind

/-- The Frobenius inner product is additive on the left. -/
theorem frob_add_left (A B C : Mat R m n) : frob (fun i j => A i j + B i j) C = frob A C + frob B C := by
  simp only [frob, dot, ← sum_add]
  exact sum_congr fun _ => sum_congr fun _ => by grind

/-- The Frobenius inner product is additive on the right. -/
theorem frob_add_right (A B C : Mat R m n) : frob A (fun i j => B i j + C i j) = frob A B + frob A C := by
  rw [frob_comm, frob_add_left, frob_comm B, frob_comm C]

/-- Multiplying by a fixed matrix entry by entry is its own adjoint. -/
theorem frob_hadamard_left (A Z G : Mat R m n) : frob (hadamard A Z) G = frob A (hadamard Z G) :=
  sum_congr fun _ => sum_congr fun _ => by simp only [hadamard]; grind

/-- A factor moves out of the left of the Frobenius inner product. -/
theorem frob_smul_left (a : R) (A B : Mat R m n) : frob (fun i j => a * A i j) B = a * frob A B := by
  simp only [frob, dot, mul_sum]
  exact sum_congr fun _ => sum_congr fun _ => by grind

/-- A factor moves out of the right of the Frobenius inner product. -/
theorem frob_smul_right (a : R) (A B : Mat R m n) : frob A (fun i j => a * B i j) = a * frob A B := by
  rw [frob_comm, frob_smul_left, frob_comm]

/-- Nothing pairs with the zero matrix. -/
theorem frob_zero (A : Mat R m n) : frob (fun _ _ => 0) A = 0 :=
  sum_eq_zero fun _ => sum_eq_zero fun _ => by grind

/-- The matrix with one entry 1 and the others 0. -/
def basis (i : Fin m) (j : Fin n) : Mat R m n := fun i' j' => if i' = i ∧ j' = j then 1 else 0

/-- Pairing with a basis matrix reads one entry. -/
theorem frob_basis (i : Fin m) (j : Fin n) (A : Mat R m n) : frob (basis i j) A = A i j := by
  simp only [frob, dot, basis]
  rw [sum_single _ i fun i' hi => sum_eq_zero fun j' => by grind, sum_single _ j fun j' hj => by grind]
  grind

/-- The first part of two joined vectors. -/
@[simp] theorem append_left {α : Type u} (f : Fin m → α) (g : Fin n → α) (i : Fin m) :
    append f g (Fin.castAdd n i) = f i := by simp [append]

/-- The second part of two joined vectors. -/
@[simp] theorem append_right {α : Type u} (f : Fin m → α) (g : Fin n → α) (i : Fin n) :
    append f g (Fin.natAdd m i) = g i := by simp [append]; intro h; omega

end AttnSpec
