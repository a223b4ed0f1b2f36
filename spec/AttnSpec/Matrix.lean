module
public import AttnSpec.Sum

/-! Inner products, the three matrix products that attention needs, and joining of matrices. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {l m n : Nat}

section Products
variable [Zero R] [Add R] [Mul R]

/-- The inner product of two vectors. -/
def dot (u v : Vec R n) : R := sum fun j => u j * v j

/-- The Frobenius inner product of two matrices: the sum of all products of corresponding entries. -/
def frob (A B : Mat R m n) : R := sum fun i => dot (A i) (B i)

/-- The matrix product `A B`. -/
def mul (A : Mat R l m) (B : Mat R m n) : Mat R l n := fun i c => sum fun j => A i j * B j c

/-- The matrix product `A Bᵀ`: entry `(i, j)` is the inner product of row `i` of `A` with row `j` of `B`. -/
def mulT (A : Mat R l m) (B : Mat R n m) : Mat R l n := fun i j => dot (A i) (B j)

/-- The matrix product `Aᵀ B`. -/
def tMul (A : Mat R l m) (B : Mat R l n) : Mat R m n := fun j c => sum fun i => A i j * B i c

end Products

/-- The entrywise product. -/
def hadamard [Mul R] (A B : Mat R m n) : Mat R m n := fun i j => A i j * B i j

/-- Two vectors one after the other. -/
def append {α : Type u} (f : Fin m → α) (g : Fin n → α) : Fin (m + n) → α :=
  fun i => if h : i.1 < m then f ⟨i.1, h⟩ else g ⟨i.1 - m, by omega⟩

/-- The matrix with `A` in its upper left corner, `B` in its lower right corner, and `z` elsewhere. -/
def blockDiagonal {α : Type u} {k : Nat} (z : α) (A : Mat α k l) (B : Mat α m n) :
    Mat α (k + m) (l + n) :=
  append (fun i => append (A i) fun _ => z) fun i => append (fun _ => z) (B i)

end AttnSpec
