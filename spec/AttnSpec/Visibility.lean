module
public import AttnSpec.Sum

/-! Which query may attend to which key. True means visible, everywhere.

The position of a query among the keys is its own index plus an offset: 0 when the two sequences start together,
`nK - nQ` when they end together. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec.Visibility

variable {nQ nK : Nat}

/-- Every query sees every key. -/
def full : Mat Bool nQ nK := fun _ _ => true

/-- No query sees any key. -/
def empty : Mat Bool nQ nK := fun _ _ => false

/-- Visible only where both masks say so. -/
def compose (a b : Mat Bool nQ nK) : Mat Bool nQ nK := fun i j => a i j && b i j

/-- Visible where at least one of the masks says so. -/
def either (a b : Mat Bool nQ nK) : Mat Bool nQ nK := fun i j => a i j || b i j

/-- Query `i` sees key `j` when `j ≤ i + offset`: its own position and everything before it. -/
def causal (offset : Int) : Mat Bool nQ nK := fun i j => decide ((j.1 : Int) ≤ i.1 + offset)

/-- Causal with both sequences starting together: query 0 sees key 0 only. -/
def upperLeft : Mat Bool nQ nK := causal 0

/-- Causal with both sequences ending together: the last query sees every key. -/
def lowerRight : Mat Bool nQ nK := causal (nK - nQ)

/-- Query `i`, at position `i + offset`, sees at most `left` keys back and `right` keys ahead of that position. -/
def window (offset : Int) (left right : Nat) : Mat Bool nQ nK := fun i j =>
  decide ((i.1 : Int) + offset - left ≤ j.1) && decide ((j.1 : Int) ≤ i.1 + offset + right)

/-- The first `length` keys are visible to every query, the others causally. -/
def «prefix» (length : Nat) (offset : Int) : Mat Bool nQ nK :=
  either (fun _ j => decide (j.1 < length)) (causal offset)

/-- A key is visible to every query or to none, as `valid` says. -/
def keyPadding (valid : Vec Bool nK) : Mat Bool nQ nK := fun _ j => valid j

/-- A query sees the keys of its own segment only. -/
def segments (querySegment : Vec Nat nQ) (keySegment : Vec Nat nK) : Mat Bool nQ nK :=
  fun i j => querySegment i == keySegment j

end AttnSpec.Visibility
