module
public import AttnSpec.Sum

/-! Dropout as data: the multiplier that a draw of the mask turns into. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {m n : Nat}

/-- The realised multiplier: `1 / (1 - probability)` where the weight is kept, zero where it is dropped. -/
def multiplier [Zero R] [One R] [Sub R] [Inv R] (keep : Mat Bool m n) (probability : R) : Mat R m n :=
  fun i j => if keep i j then (1 - probability)⁻¹ else 0

/-- The multiplier of evaluation mode: 1 everywhere. -/
def Dropout.off [One R] : Mat R m n := fun _ _ => 1

end AttnSpec
