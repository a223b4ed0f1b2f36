module
public import AttnSpec.Matrix

/-! The four places where kernels apply the scale. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec.Scale

universe u
variable {R : Type u} {nQ nK d : Nat} [Zero R] [Add R] [Mul R]

/-- Every entry times `a`. -/
def scaled {m n : Nat} (a : R) (A : Mat R m n) : Mat R m n := fun i j => a * A i j

/-- The scale applied to the products: `scale · (Q Kᵀ)`. -/
def onScores (scale : R) (query : Mat R nQ d) (key : Mat R nK d) : Mat R nQ nK := scaled scale (mulT query key)

/-- The scale applied to the queries: `(scale · Q) Kᵀ`. -/
def onQuery (scale : R) (query : Mat R nQ d) (key : Mat R nK d) : Mat R nQ nK := mulT (scaled scale query) key

/-- The scale applied to the keys: `Q (scale · K)ᵀ`. -/
def onKey (scale : R) (query : Mat R nQ d) (key : Mat R nK d) : Mat R nQ nK := mulT query (scaled scale key)

/-- A factor on each side: `(a · Q) (b · K)ᵀ`; the scale is `a · b`, usually its square root twice. -/
def split (a b : R) (query : Mat R nQ d) (key : Mat R nK d) : Mat R nQ nK := mulT (scaled a query) (scaled b key)

end AttnSpec.Scale
