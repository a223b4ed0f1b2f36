module
public import AttnSpec.Softmax

/-! One attention head: forward map, its tangent map (JVP) and its gradient map (backward).

Query and key lengths are independent, the value width differs from the query width, any length may be zero, and a
query may see no key at all. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {nQ nK mQ mK d dv : Nat}

/-- What attention is differentiated by. -/
@[ext] structure Inputs (R : Type u) (nQ nK d dv : Nat) where
  /-- One row of width `d` a query. -/
  query : Mat R nQ d
  /-- One row of width `d` a key. -/
  key : Mat R nK d
  /-- One row of width `dv` a key. -/
  value : Mat R nK dv
  /-- Added to the score of each pair. -/
  bias : Mat R nQ nK

/-- What is held constant. -/
structure Params (R : Type u) (nQ nK : Nat) where
  /-- Factor of the scores, usually `d` to the power -1/2. -/
  scale : R
  /-- True where a query may attend to a key. -/
  visible : Mat Bool nQ nK
  /-- The realised dropout multiplier of each weight; 1 everywhere when dropout is off. -/
  multiplier : Mat R nQ nK

section Forward
variable [Zero R] [Add R] [Mul R] [Inv R] [Exp R]

/-- The scores `scale · Q Kᵀ + bias`. -/
def scores (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ nK :=
  fun i j => p.scale * mulT x.query x.key i j + x.bias i j

/-- The attention weights: softmax of the scores over the visible keys. -/
def weights (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ nK :=
  softmaxRows p.visible (scores p x)

/-- The weights as the values meet them: after dropout. -/
def consumed (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ nK :=
  hadamard (weights p x) p.multiplier

/-- The output of attention. -/
def forward (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ dv :=
  mul (consumed p x) x.value

variable [Sub R]

/-- The tangent of the scores in the direction `dx`. -/
def scoresJvp (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) : Mat R nQ nK :=
  fun i j => p.scale * (mulT dx.query x.key i j + mulT x.query dx.key i j) + dx.bias i j

/-- The tangent of the weights in the direction `dx`. -/
def weightsJvp (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) : Mat R nQ nK :=
  centerRows (weights p x) (scoresJvp p x dx)

/-- The tangent of the output in the direction `dx`. -/
def jvp (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) : Mat R nQ dv := fun i c =>
  mul (hadamard (weightsJvp p x dx) p.multiplier) x.value i c + mul (consumed p x) dx.value i c

/-- The gradient with respect to the weights, of the output paired with `G`. -/
def weightsGrad (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) : Mat R nQ nK :=
  hadamard p.multiplier (mulT G x.value)

/-- The gradient with respect to the scores, of the output paired with `G`. -/
def scoresGrad (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) : Mat R nQ nK :=
  centerRows (weights p x) (weightsGrad p x G)

/-- The gradients with respect to every input, of the output paired with `G`. -/
def backward (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) :
    Inputs R nQ nK d dv where
  query := fun i a => p.scale * mul (scoresGrad p x G) x.key i a
  key := fun j a => p.scale * tMul (scoresGrad p x G) x.query j a
  value := tMul (consumed p x) G
  bias := scoresGrad p x G

end Forward

/-! ### Softcapped scores -/

namespace Softcap
variable [Zero R] [Add R] [Mul R] [Inv R] [Exp R] [Tanh R]

/-- Softcapping with cap `c`: `c · tanh (A / c)` entry by entry, which never exceeds `c` in size. -/
def softcap (c : R) (A : Mat R nQ nK) : Mat R nQ nK := fun i j => c * tanh (A i j * c⁻¹)

/-- The scaled products `scale · Q Kᵀ`, which the cap acts on. -/
def scaledScores (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ nK :=
  fun i j => p.scale * mulT x.query x.key i j

/-- The scores under a cap: capped before the bias is added and before the mask. -/
def scores (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ nK :=
  fun i j => softcap c (scaledScores p x) i j + x.bias i j

/-- The weights under a cap. -/
def weights (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ nK :=
  softmaxRows p.visible (scores c p x)

/-- The output under a cap. -/
def forward (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) : Mat R nQ dv :=
  mul (hadamard (weights c p x) p.multiplier) x.value

variable [One R] [Sub R]

/-- The slope of `softcap`: `1 - tanh² (A / c)`. -/
def slope (c : R) (A : Mat R nQ nK) : Mat R nQ nK :=
  fun i j => 1 - tanh (A i j * c⁻¹) * tanh (A i j * c⁻¹)

/-- The tangent of the capped scores: the cap's slope on the products, none on the bias. -/
def scoresJvp (c : R) (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) : Mat R nQ nK := fun i j =>
  slope c (scaledScores p x) i j * (p.scale * (mulT dx.query x.key i j + mulT x.query dx.key i j)) + dx.bias i j

/-- The tangent of the weights under a cap. -/
def weightsJvp (c : R) (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) : Mat R nQ nK :=
  centerRows (weights c p x) (scoresJvp c p x dx)

/-- The tangent of the output under a cap. -/
def jvp (c : R) (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) : Mat R nQ dv := fun i k =>
  mul (hadamard (weightsJvp c p x dx) p.multiplier) x.value i k
    + mul (hadamard (weights c p x) p.multiplier) dx.value i k

/-- The gradient with respect to the capped scores, bias included. -/
def scoresGrad (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) : Mat R nQ nK :=
  centerRows (weights c p x) (weightsGrad p x G)

/-- The gradients under a cap: query and key take the score gradient times the slope, the bias takes it as it is. -/
def backward (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv) :
    Inputs R nQ nK d dv where
  query := fun i a => p.scale * mul (hadamard (slope c (scaledScores p x)) (scoresGrad c p x G)) x.key i a
  key := fun j a => p.scale * tMul (hadamard (slope c (scaledScores p x)) (scoresGrad c p x G)) x.query j a
  value := tMul (hadamard (weights c p x) p.multiplier) G
  bias := scoresGrad c p x G

end Softcap

/-- The inner product of two bundles of inputs: the sum over query, key, value and bias. -/
def Inputs.inner [Zero R] [Add R] [Mul R] (x y : Inputs R nQ nK d dv) : R :=
  frob x.query y.query + frob x.key y.key + frob x.value y.value + frob x.bias y.bias

/-- The constants of the problem that has query `rows i` as its query `i` and key `columns j` as its key `j`. -/
def Params.select (rows : Fin mQ → Fin nQ) (columns : Fin mK → Fin nK) (p : Params R nQ nK) :
    Params R mQ mK where
  scale := p.scale
  visible := fun i j => p.visible (rows i) (columns j)
  multiplier := fun i j => p.multiplier (rows i) (columns j)

/-- The inputs of the problem that has query `rows i` as its query `i` and key `columns j` as its key `j`. -/
def Inputs.select (rows : Fin mQ → Fin nQ) (columns : Fin mK → Fin nK) (x : Inputs R nQ nK d dv) :
    Inputs R mQ mK d dv where
  query := fun i => x.query (rows i)
  key := fun j => x.key (columns j)
  value := fun j => x.value (columns j)
  bias := fun i j => x.bias (rows i) (columns j)

/-- The constants of two problems laid end to end: no query of one sees a key of the other. -/
def Params.pack [Zero R] (p : Params R nQ nK) (p' : Params R mQ mK) : Params R (nQ + mQ) (nK + mK) where
  scale := p.scale
  visible := blockDiagonal false p.visible p'.visible
  multiplier := blockDiagonal 0 p.multiplier p'.multiplier

/-- The inputs of two problems laid end to end. -/
def Inputs.pack [Zero R] (x : Inputs R nQ nK d dv) (x' : Inputs R mQ mK d dv) :
    Inputs R (nQ + mQ) (nK + mK) d dv where
  query := append x.query x'.query
  key := append x.key x'.key
  value := append x.value x'.value
  bias := blockDiagonal 0 x.bias x'.bias

end AttnSpec
