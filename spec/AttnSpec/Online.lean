module
public import AttnSpec.Softmax

/-! Online softmax: attention over blocks of keys, each relative to its own shift, merged afterwards.

Blocks are masks and not slices, so that any division of the visible keys is a block split. An empty block has mass
zero; no infinity appears. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec

universe u
variable {R : Type u} {n dv : Nat}

/-- Partial sums over the keys seen so far. -/
structure Acc (R : Type u) (dv : Nat) where
  /-- The score that the partial sums are relative to; kernels take the running maximum. -/
  shift : R
  /-- The sum of `exp (s j - shift)` over the keys seen. -/
  mass : R
  /-- The sum of `exp (s j - shift)` times the value row of key `j` over the keys seen. -/
  out : Vec R dv

namespace Acc

variable [Zero R] [Add R] [Sub R] [Mul R] [Inv R] [Exp R]

/-- The partial sums of one block of keys, relative to `shift`. -/
def block (shift : R) (visible : Vec Bool n) (s : Vec R n) (v : Mat R n dv) : Acc R dv where
  shift := shift
  mass := denominator visible fun j => s j - shift
  out := fun c => sum fun j => numerator visible (fun j => s j - shift) j * v j c

/-- Two partial sums over different keys brought to a common shift and added. -/
def merge (shift : R) (a b : Acc R dv) : Acc R dv where
  shift := shift
  mass := a.mass * exp (a.shift - shift) + b.mass * exp (b.shift - shift)
  out := fun c => a.out c * exp (a.shift - shift) + b.out c * exp (b.shift - shift)

/-- The output row: sums over mass. -/
def finish (a : Acc R dv) : Vec R dv := fun c => a.out c * a.mass⁻¹

/-- Merges blocks into `a` one after the other; each is its visible keys and the shift to use from there on. -/
def fold (s : Vec R n) (v : Mat R n dv) (a : Acc R dv) : List (R × Vec Bool n) → Acc R dv
  | [] => a
  | b :: bs => fold s v (merge b.1 a (block b.1 b.2 s v)) bs

end Acc

end AttnSpec
