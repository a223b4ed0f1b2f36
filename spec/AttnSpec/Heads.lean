module
public import AttnSpec.Attention

/-! Grouped heads: several query heads share one key and value head, as an explicit map from the one to the other says. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {m n hQ hK nQ nK d dv : Nat}

/-- Equal groups: query head `h` reads head `h / (hQ / hK)`. The number of query heads is a multiple of the other. -/
def grouped (hQ hK : Nat) (divides : hK ∣ hQ) : Fin hQ → Fin hK := fun h =>
  ⟨h.1 / (hQ / hK), Nat.div_lt_of_lt_mul (by
    have := Nat.div_mul_cancel divides; have := h.2; omega)⟩

/-- The shared heads written out: one copy for each query head that reads it. -/
def repeatHeads {α : Type u} (headMap : Fin hQ → Fin hK) (heads : Fin hK → α) : Fin hQ → α :=
  fun h => heads (headMap h)

/-- The gradient of a shared head: the sum over the query heads that read it. -/
def groupSum [Zero R] [Add R] (headMap : Fin hQ → Fin hK) (grads : Fin hQ → Mat R m n) : Fin hK → Mat R m n :=
  fun g i j => sum fun h => if headMap h = g then grads h i j else 0

/-- The inputs of all heads. Queries and biases belong to query heads, keys and values to the shared heads. -/
@[ext] structure HeadInputs (R : Type u) (hQ hK nQ nK d dv : Nat) where
  /-- One query matrix a query head. -/
  query : Fin hQ → Mat R nQ d
  /-- One key matrix a shared head. -/
  key : Fin hK → Mat R nK d
  /-- One value matrix a shared head. -/
  value : Fin hK → Mat R nK dv
  /-- One bias matrix a query head. -/
  bias : Fin hQ → Mat R nQ nK

/-- The inputs that query head `h` works on. -/
def HeadInputs.head (headMap : Fin hQ → Fin hK) (x : HeadInputs R hQ hK nQ nK d dv) (h : Fin hQ) :
    Inputs R nQ nK d dv :=
  ⟨x.query h, x.key (headMap h), x.value (headMap h), x.bias h⟩

/-- The inputs with one copy of each shared head for every query head that reads it. -/
def HeadInputs.repeated (headMap : Fin hQ → Fin hK) (x : HeadInputs R hQ hK nQ nK d dv) :
    HeadInputs R hQ hQ nQ nK d dv :=
  ⟨x.query, repeatHeads headMap x.key, repeatHeads headMap x.value, x.bias⟩

namespace Heads
variable [Zero R] [Add R] [Mul R] [Inv R] [Exp R]

/-- The output of every query head. -/
def forward (headMap : Fin hQ → Fin hK) (p : Fin hQ → Params R nQ nK) (x : HeadInputs R hQ hK nQ nK d dv) :
    Fin hQ → Mat R nQ dv :=
  fun h => AttnSpec.forward (p h) (x.head headMap h)

/-- The tangent of every query head's output. -/
def jvp [Sub R] (headMap : Fin hQ → Fin hK) (p : Fin hQ → Params R nQ nK)
    (x dx : HeadInputs R hQ hK nQ nK d dv) : Fin hQ → Mat R nQ dv :=
  fun h => AttnSpec.jvp (p h) (x.head headMap h) (dx.head headMap h)

/-- The gradients of all heads' inputs. -/
def backward [Sub R] (headMap : Fin hQ → Fin hK) (p : Fin hQ → Params R nQ nK)
    (x : HeadInputs R hQ hK nQ nK d dv) (G : Fin hQ → Mat R nQ dv) : HeadInputs R hQ hK nQ nK d dv where
  query := fun h => (AttnSpec.backward (p h) (x.head headMap h) (G h)).query
  key := groupSum headMap fun h => (AttnSpec.backward (p h) (x.head headMap h) (G h)).key
  value := groupSum headMap fun h => (AttnSpec.backward (p h) (x.head headMap h) (G h)).value
  bias := fun h => (AttnSpec.backward (p h) (x.head headMap h) (G h)).bias

end Heads

/-- The inner product of two bundles of heads. -/
def HeadInputs.inner [Zero R] [Add R] [Mul R] (x y : HeadInputs R hQ hK nQ nK d dv) : R :=
  (sum fun h => frob (x.query h) (y.query h)) + (sum fun g => frob (x.key g) (y.key g))
    + (sum fun g => frob (x.value g) (y.value g)) + sum fun h => frob (x.bias h) (y.bias h)

end AttnSpec
