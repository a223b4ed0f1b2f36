module
public import AttnSpec.Attention

/-! Dual numbers `a + b ε` with `ε² = 0`: running a definition over them computes its derivative (forward mode). -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {nQ nK d dv : Nat}

/-- A number and its derivative. -/
@[ext] structure Dual (R : Type u) where
  /-- The number. -/
  re : R
  /-- Its derivative: the coefficient of ε. -/
  eps : R

namespace Dual

instance [Zero R] : Zero (Dual R) := ⟨⟨0, 0⟩⟩
instance [Add R] : Add (Dual R) := ⟨fun x y => ⟨x.re + y.re, x.eps + y.eps⟩⟩
instance [Neg R] : Neg (Dual R) := ⟨fun x => ⟨-x.re, -x.eps⟩⟩
instance [Sub R] : Sub (Dual R) := ⟨fun x y => ⟨x.re - y.re, x.eps - y.eps⟩⟩
instance [Add R] [Mul R] : Mul (Dual R) := ⟨fun x y => ⟨x.re * y.re, x.re * y.eps + x.eps * y.re⟩⟩
instance [Neg R] [Mul R] [Inv R] : Inv (Dual R) := ⟨fun x => ⟨x.re⁻¹, -(x.eps * (x.re⁻¹ * x.re⁻¹))⟩⟩
instance [Mul R] [Exp R] : Exp (Dual R) := ⟨fun x => ⟨exp x.re, x.eps * exp x.re⟩⟩
instance [One R] [Sub R] [Mul R] [Tanh R] : Tanh (Dual R) :=
  ⟨fun x => ⟨tanh x.re, x.eps * (1 - tanh x.re * tanh x.re)⟩⟩

/-- A number that does not vary. -/
def const [Zero R] (a : R) : Dual R := ⟨a, 0⟩

/-- Constants that do not vary. -/
def params [Zero R] (p : Params R nQ nK) : Params (Dual R) nQ nK where
  scale := const p.scale
  visible := p.visible
  multiplier := fun i j => const (p.multiplier i j)

/-- The inputs `x + ε dx`. -/
def inputs (x dx : Inputs R nQ nK d dv) : Inputs (Dual R) nQ nK d dv where
  query := fun i a => ⟨x.query i a, dx.query i a⟩
  key := fun j a => ⟨x.key j a, dx.key j a⟩
  value := fun j c => ⟨x.value j c, dx.value j c⟩
  bias := fun i j => ⟨x.bias i j, dx.bias i j⟩

end Dual
end AttnSpec
