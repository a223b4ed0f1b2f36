module
public import AttnProofs.Softmax

/-! The rational stand-in for the exponential is positive, and the laws asked of an exponential can be met. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

/-- The rational stand-in is positive everywhere. -/
theorem padeExp_pos (x : Rat) : 0 < padeExp x := by
  have sq : ∀ a : Rat, 0 ≤ a * a := fun a => by
    by_cases h : 0 ≤ a
    · exact Rat.mul_nonneg h h
    · have := Rat.mul_nonneg (a := -a) (b := -a) (by grind) (by grind); grind
  have h1 : 0 < 12 + 6 * x + x * x := by have := sq (x + 3); grind
  have h2 : 0 < 12 - 6 * x + x * x := by have := sq (x - 3); grind
  rw [padeExp, Rat.div_def]
  exact Rat.mul_pos h1 (Rat.inv_pos.2 h2)

/-- The exponential that is one everywhere. -/
@[reducible] def constantExp : Exp Rat := ⟨fun _ => 1⟩

/-- The laws of an exponential hold of it: they ask for nothing impossible. -/
theorem lawful_constantExp : @LawfulExp Rat _ constantExp := by
  letI := constantExp
  exact ⟨rfl, fun a b => by show (1 : Rat) = 1 * 1; grind⟩

end AttnSpec
