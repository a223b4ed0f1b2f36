module
public import AttnSpec.Attention

/-! ALiBi: a penalty on the score of each pair, its distance times a slope that belongs to the query head.

It is one more bias: added after scale and softcap. The slope is an input like any other, with a tangent and a gradient. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {nQ nK d dv : Nat}

namespace Alibi

/-- How far key `j` is from query `i`, before or after it, when both sequences end together: `|i + nK - nQ - j|`. -/
def distance (i : Fin nQ) (j : Fin nK) : Nat := ((i.1 : Int) + (nK - nQ) - j.1).natAbs

/-- The sum of `n` copies of `a`, which is `n · a`. -/
def multiple [Zero R] [Add R] : Nat → R → R
  | 0, _ => 0
  | n + 1, a => multiple n a + a

/-- What the slope adds to the scores: minus the slope times the distance. It is linear in the slope. -/
def slopeBias [Zero R] [Add R] [Neg R] (slope : R) : Mat R nQ nK := fun i j => -multiple (distance i j) slope

/-- The gradient of the slope from that of the bias: minus the sum over all pairs of distance times gradient. -/
def slopeGrad [Zero R] [Add R] [Neg R] (biasGrad : Mat R nQ nK) : R :=
  -sum fun i => sum fun j => multiple (distance i j) (biasGrad i j)

/-- The same penalty counted from the first key: the slope times the key's index, whatever the query. -/
def keyBias [Zero R] [Add R] (slope : R) : Mat R nQ nK := fun _ j => multiple j.1 slope

/-- The gradient of the slope counted from the first key: the sum over all pairs of the key's index times gradient. -/
def keyGrad [Zero R] [Add R] (biasGrad : Mat R nQ nK) : R :=
  sum fun i => sum fun j => multiple j.1 (biasGrad i j)

end Alibi

/-- The inputs with one more bias added to the bias. -/
def Inputs.addBias [Add R] (more : Mat R nQ nK) (x : Inputs R nQ nK d dv) : Inputs R nQ nK d dv :=
  { x with bias := fun i j => x.bias i j + more i j }

/-- The inputs with a slope, as inputs without one: the slope's bias is added to theirs. Of tangents it makes the
tangent in which the slope moves as well. -/
def Inputs.sloped [Zero R] [Add R] [Neg R] (slope : R) (x : Inputs R nQ nK d dv) : Inputs R nQ nK d dv :=
  x.addBias (Alibi.slopeBias slope)

end AttnSpec
