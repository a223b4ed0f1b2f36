module
public import AttnSpec.Attention

/-! The attention sink: a logit that takes mass in every row and carries no value, as one more key. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {nQ nK d dv : Nat}

/-- The constants of the problem with one more key, the last: every query sees it, and dropout leaves it alone. -/
def Params.extended [One R] (p : Params R nQ nK) : Params R nQ (nK + 1) where
  scale := p.scale
  visible := fun i => append (p.visible i) fun _ => true
  multiplier := fun i => append (p.multiplier i) fun _ => 1

/-- The inputs of the problem with one more key, the last: key and value are zero, and its bias is the logit. -/
def Inputs.extended [Zero R] (logit : R) (x : Inputs R nQ nK d dv) : Inputs R nQ (nK + 1) d dv where
  query := x.query
  key := append x.key fun _ _ => 0
  value := append x.value fun _ _ => 0
  bias := fun i => append (x.bias i) fun _ => logit

namespace Sink

/-- Where a key of the problem stands in its extension. -/
def real (j : Fin nK) : Fin (nK + 1) := Fin.castAdd 1 j

/-- The added key. -/
def column : Fin (nK + 1) := Fin.natAdd nK 0

end Sink
end AttnSpec
