module
public import AttnProofs.Softcap
public import AttnProofs.DualRing

/-! ALiBi: what a slope does to the scores, its gradient, its tangent, and where the distance may be counted from. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec.Alibi
open Lean.Grind

universe u
variable {R : Type u} {m n nQ mQ nK d dv : Nat}

/-! ### Distances -/

/-- A key at or before the query's position and the distance to it make up that position. -/
theorem distance_add {i : Fin nQ} {j : Fin nK} (h : (j.1 : Int) ≤ i.1 + (nK - nQ)) :
    distance i j + j.1 = ((i.1 : Int) + (nK - nQ)).toNat := by unfold distance; omega

/-- The last queries alone are as far from every key as they are among all queries. -/
theorem distance_last (i : Fin mQ) (j : Fin nK) : distance (Fin.natAdd nQ i) j = distance i j := by
  unfold distance; simp only [Fin.val_natAdd]; omega

/-! ### Multiples -/

section Multiples
variable [CommRing R]

/-- A multiple of zero is zero. -/
theorem multiple_zero (n : Nat) : multiple n (0 : R) = 0 := by
  induction n with grind [multiple]

/-- Multiples add up. -/
theorem multiple_add (m n : Nat) (a : R) : multiple (m + n) a = multiple m a + multiple n a := by
  induction n with
  | zero => simp only [Nat.add_zero, multiple]; grind
  | succ n ih => simp only [multiple]; grind

/-- In a product it does not matter which factor is multiplied. -/
theorem multiple_mul (n : Nat) (a b : R) : multiple n a * b = a * multiple n b := by
  induction n with
  | zero => simp only [multiple]; grind
  | succ n ih => simp only [multiple]; grind

/-- Pairing with the bias of a slope is pairing the slope with its gradient. -/
theorem frob_slopeBias (slope : R) (B : Mat R nQ nK) : frob (slopeBias slope) B = slope * slopeGrad B := by
  simp only [frob, dot, slopeBias, slopeGrad, ← sum_neg, mul_sum]
  refine sum_congr fun i => sum_congr fun j => ?_
  have := multiple_mul (distance i j) slope (B i j)
  grind

/-- A slope of zero leaves the inputs as they are. -/
theorem sloped_zero (x : Inputs R nQ nK d dv) : x.sloped 0 = x := by
  ext
  all_goals simp only [Inputs.sloped, Inputs.addBias, slopeBias, multiple_zero]
  grind

/-- The slope's pairing joins those of the other inputs. -/
theorem inner_sloped (slope : R) (dx y : Inputs R nQ nK d dv) :
    Inputs.inner (dx.sloped slope) y = Inputs.inner dx y + slope * slopeGrad y.bias := by
  simp only [Inputs.inner, Inputs.sloped, Inputs.addBias]
  rw [frob_add_left, frob_slopeBias]
  grind

end Multiples

/-! ### Dual numbers -/

section Duals
variable [CommRing R]

/-- Multiples of a dual number are taken part by part. -/
theorem multiple_dual (n : Nat) (a b : R) : multiple n (⟨a, b⟩ : Dual R) = ⟨multiple n a, multiple n b⟩ := by
  induction n with
  | zero => rfl
  | succ n ih => simp only [multiple, ih]; rfl

/-- A slope that moves, over dual numbers, is the slope with its tangent. -/
theorem sloped_dual (slope move : R) (x dx : Inputs R nQ nK d dv) :
    (Dual.inputs x dx).sloped ⟨slope, move⟩ = Dual.inputs (x.sloped slope) (dx.sloped move) := by
  ext
  all_goals simp [Inputs.sloped, Inputs.addBias, slopeBias, multiple_dual, Dual.inputs]

end Duals

/-! ### Counting from the first key -/

section Shift
variable [Field R] [Exp R] (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (slope : R) (G : Mat R nQ dv)
  (before : ∀ i j, p.visible i j = true → (j.1 : Int) ≤ i.1 + (nK - nQ))
include before

/-- Where no query sees a key after its position, weights do not tell distances from key indices. -/
theorem weights_keyBias [LawfulExp R] : weights p (x.addBias (keyBias slope)) = weights p (x.sloped slope) := by
  funext i
  let c : R := multiple ((i.1 : Int) + (nK - nQ)).toNat slope
  have shift : weights p (x.addBias (keyBias slope)) i
      = softmax (p.visible i) fun j => scores p (x.addBias (keyBias slope)) i j - c :=
    (softmax_shift _ _ c).symm
  rw [shift]
  refine softmax_congr fun j hj => ?_
  have hc : c = multiple (distance i j) slope + multiple j.1 slope := by
    rw [← multiple_add, distance_add (before i j hj)]
  simp only [scores, Inputs.addBias, Inputs.sloped, keyBias, slopeBias, hc]
  grind

/-- Where no query sees a key after its position, the output does not tell distances from key indices. -/
theorem forward_keyBias [LawfulExp R] : forward p (x.addBias (keyBias slope)) = forward p (x.sloped slope) := by
  unfold forward consumed
  rw [weights_keyBias p x slope before]; rfl

/-- Where no query sees a key after its position, gradients do not tell distances from key indices. -/
theorem backward_keyBias [LawfulExp R] :
    backward p (x.addBias (keyBias slope)) G = backward p (x.sloped slope) G := by
  have hs : scoresGrad p (x.addBias (keyBias slope)) G = scoresGrad p (x.sloped slope) G := by
    unfold scoresGrad; rw [weights_keyBias p x slope before]; rfl
  unfold backward consumed
  rw [hs, weights_keyBias p x slope before]; rfl

/-- Where no query sees a key after its position, the gradient of a slope may be summed over key indices. -/
theorem keyGrad_scoresGrad : keyGrad (scoresGrad p x G) = slopeGrad (scoresGrad p x G) := by
  simp only [keyGrad, slopeGrad, ← sum_neg]
  refine sum_congr fun i => ?_
  let c : R := multiple ((i.1 : Int) + (nK - nQ)).toNat 1
  have whole : (sum fun j => c * scoresGrad p x G i j) = 0 := by
    rw [← mul_sum, sum_scoresGrad]; grind
  have term (j : Fin nK) : multiple j.1 (scoresGrad p x G i j)
      = c * scoresGrad p x G i j + -multiple (distance i j) (scoresGrad p x G i j) := by
    by_cases hj : p.visible i j
    · have hc : c = multiple (distance i j) 1 + multiple j.1 1 := by
        rw [← multiple_add, distance_add (before i j hj)]
      have h1 := multiple_mul (distance i j) 1 (scoresGrad p x G i j)
      have h2 := multiple_mul j.1 1 (scoresGrad p x G i j)
      grind
    · rw [scoresGrad_hidden x G (by simpa using hj), multiple_zero, multiple_zero]; grind
  rw [sum_congr term, sum_add, whole]
  grind

end Shift
end AttnSpec.Alibi
