module
public import AttnProofs.Attention

/-! What a row depends on: one notion of matching rows behind locality, permutation, packing and padding. -/

@[expose] public section

set_option autoImplicit false

namespace AttnSpec
open Lean.Grind

universe u
variable {R : Type u} {m n nQ nK mQ mK d dv : Nat} [CommRing R] [Inv R] [Exp R]

/-- Row `i` of one problem and row `i'` of another have the same query, scale and mask, and agree on everything at
visible keys; `ι` takes a key of the second problem to the key of the first that it stands for. -/
structure RowMatch (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ)
    (p' : Params R mQ mK) (x' : Inputs R mQ mK d dv) (i' : Fin mQ) (ι : Fin mK → Fin nK) : Prop where
  /-- Every visible key of the first row is listed once. -/
  covers : Covers ι (p.visible i)
  /-- The scales agree. -/
  scale : p.scale = p'.scale
  /-- The queries agree. -/
  query : x.query i = x'.query i'
  /-- The masks agree. -/
  visible : ∀ j, p.visible i (ι j) = p'.visible i' j
  /-- The dropout multipliers agree at visible keys. -/
  multiplier : ∀ j, p'.visible i' j → p.multiplier i (ι j) = p'.multiplier i' j
  /-- The biases agree at visible keys. -/
  bias : ∀ j, p'.visible i' j → x.bias i (ι j) = x'.bias i' j
  /-- The visible keys agree. -/
  key : ∀ j, p'.visible i' j → x.key (ι j) = x'.key j
  /-- The values of visible keys agree. -/
  value : ∀ j, p'.visible i' j → x.value (ι j) = x'.value j

section Row
variable {p : Params R nQ nK} {x : Inputs R nQ nK d dv} {i : Fin nQ}
  {p' : Params R mQ mK} {x' : Inputs R mQ mK d dv} {i' : Fin mQ} {ι : Fin mK → Fin nK}

/-- Matching rows have the same weights. -/
theorem RowMatch.weights (h : RowMatch p x i p' x' i' ι) (j : Fin mK) :
    weights p x i (ι j) = weights p' x' i' j := by
  have hm : (fun j => p.visible i (ι j)) = p'.visible i' := funext h.visible
  simp only [AttnSpec.weights, softmaxRows]
  rw [softmax_covers h.covers, hm]
  refine congrFun (softmax_congr fun j hj => ?_) j
  simp only [scores, mulT, h.scale, h.query, h.key j hj, h.bias j hj]

/-- Matching rows have the same weights after dropout. -/
theorem RowMatch.consumed (h : RowMatch p x i p' x' i' ι) (j : Fin mK) :
    consumed p x i (ι j) = consumed p' x' i' j := by
  by_cases hj : p'.visible i' j
  · simp only [AttnSpec.consumed, hadamard, h.weights, h.multiplier j hj]
  · rw [consumed_hidden x' (by simpa using hj), consumed_hidden x (by rw [h.visible]; simpa using hj)]

/-- Matching rows have the same output. -/
theorem RowMatch.forward (h : RowMatch p x i p' x' i' ι) : forward p x i = forward p' x' i' := by
  funext c
  simp only [AttnSpec.forward, mul]
  rw [sum_covers h.covers _ fun j hj => by rw [consumed_hidden x hj]; grind]
  refine sum_congr fun j => ?_
  rw [h.consumed]
  by_cases hj : p'.visible i' j
  · rw [h.value j hj]
  · rw [consumed_hidden x' (by simpa using hj)]; grind

/-- Matching rows with the same output gradient have the same score gradients. -/
theorem RowMatch.scoresGrad (h : RowMatch p x i p' x' i' ι) {G : Mat R nQ dv} {G' : Mat R mQ dv}
    (hG : G i = G' i') (j : Fin mK) : scoresGrad p x G i (ι j) = scoresGrad p' x' G' i' j := by
  rw [scoresGrad_eq, scoresGrad_eq, h.weights, h.forward, hG]
  by_cases hj : p'.visible i' j
  · simp only [weightsGrad, hadamard, mulT, h.multiplier j hj, h.value j hj, hG]
  · rw [weights_hidden x' (by simpa using hj)]; grind

/-- Matching rows with the same output gradient have the same query gradient. -/
theorem RowMatch.backward_query (h : RowMatch p x i p' x' i' ι) {G : Mat R nQ dv} {G' : Mat R mQ dv}
    (hG : G i = G' i') : (backward p x G).query i = (backward p' x' G').query i' := by
  funext a
  simp only [backward, mul, h.scale]
  rw [sum_covers h.covers _ fun j hj => by rw [scoresGrad_hidden x G hj]; grind]
  congr 1
  refine sum_congr fun j => ?_
  rw [h.scoresGrad hG]
  by_cases hj : p'.visible i' j
  · rw [h.key j hj]
  · rw [scoresGrad_hidden x' G' (by simpa using hj)]; grind

end Row

/-- All rows of the second problem match rows of the first, and its keys are seen from no other row. -/
structure BlockMatch (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (p' : Params R mQ mK)
    (x' : Inputs R mQ mK d dv) (κ : Fin mQ → Fin nQ) (ι : Fin mK → Fin nK) : Prop where
  /-- Row `κ i` of the first problem matches row `i` of the second. -/
  row : ∀ i, RowMatch p x (κ i) p' x' i ι
  /-- Every query that sees key `ι j` is listed once. -/
  column : ∀ j, Covers κ fun i => p.visible i (ι j)

section Block
variable {p : Params R nQ nK} {x : Inputs R nQ nK d dv} {p' : Params R mQ mK} {x' : Inputs R mQ mK d dv}
  {κ : Fin mQ → Fin nQ} {ι : Fin mK → Fin nK} (h : BlockMatch p x p' x' κ ι)
  {G : Mat R nQ dv} {G' : Mat R mQ dv} (hG : ∀ i, G (κ i) = G' i)
include h hG

/-- Matching blocks have the same key gradients. -/
theorem BlockMatch.backward_key (scale : p.scale = p'.scale) (j : Fin mK) :
    (backward p x G).key (ι j) = (backward p' x' G').key j := by
  funext a
  simp only [backward, tMul, scale]
  rw [sum_covers (h.column j) _ fun i hi => by rw [scoresGrad_hidden x G hi]; grind]
  congr 1
  exact sum_congr fun i => by rw [(h.row i).scoresGrad (hG i), (h.row i).query]

/-- Matching blocks have the same value gradients. -/
theorem BlockMatch.backward_value (j : Fin mK) : (backward p x G).value (ι j) = (backward p' x' G').value j := by
  funext c
  simp only [backward, tMul]
  rw [sum_covers (h.column j) _ fun i hi => by rw [consumed_hidden x hi]; grind]
  exact sum_congr fun i => by rw [(h.row i).consumed, hG i]

end Block

section Select

omit [CommRing R] [Inv R] [Exp R] in
/-- A selection of queries and keys matches the problem it was taken from, where it covers the visible keys. -/
theorem RowMatch.of_select (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (κ : Fin mQ → Fin nQ)
    {ι : Fin mK → Fin nK} {i : Fin mQ} (h : Covers ι (p.visible (κ i))) :
    RowMatch p x (κ i) (p.select κ ι) (x.select κ ι) i ι where
  covers := h
  scale := rfl
  query := rfl
  visible _ := rfl
  multiplier _ _ := rfl
  bias _ _ := rfl
  key _ _ := rfl
  value _ _ := rfl

/-- Leaving out keys that a row does not see leaves the output of the row unchanged. -/
theorem forward_select (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (κ : Fin mQ → Fin nQ)
    {ι : Fin mK → Fin nK} {i : Fin mQ} (h : Covers ι (p.visible (κ i))) :
    forward (p.select κ ι) (x.select κ ι) i = forward p x (κ i) :=
  (RowMatch.of_select p x κ h).forward.symm

variable (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv)
  {ι : Fin mK → Fin nK} {π : Fin nK → Fin mK} (h : ∀ i, π (ι i) = i) (h' : ∀ j, ι (π j) = j)
include h h'

/-- The order of the keys does not matter to the output. -/
theorem forward_permute : forward (p.select id ι) (x.select id ι) = forward p x :=
  funext fun _ => forward_select p x id (.of_inverse h h' _)

/-- Reordering the keys reorders key, value and bias gradients alike and leaves query gradients unchanged. -/
theorem backward_permute : backward (p.select id ι) (x.select id ι) G = (backward p x G).select id ι := by
  have b : BlockMatch p x (p.select id ι) (x.select id ι) id ι :=
    ⟨fun i => RowMatch.of_select p x id (.of_inverse h h' _), fun j => .id _⟩
  have hq := fun i => (b.row i).backward_query (G := G) (G' := G) rfl
  have hk := b.backward_key (G := G) (G' := G) (fun _ => rfl) rfl
  have hv := b.backward_value (G := G) (G' := G) (fun _ => rfl)
  have hb := fun i j => (b.row i).scoresGrad (G := G) (G' := G) rfl j
  ext i j
  · exact congrFun (hq i).symm j
  · exact congrFun (hk i).symm j
  · exact congrFun (hv i).symm j
  · exact (hb i j).symm

omit h h' in
/-- Reordering the queries reorders query and bias gradients alike and leaves key and value gradients unchanged. -/
theorem backward_permute_queries {κ : Fin mQ → Fin nQ} {π : Fin nQ → Fin mQ} (h : ∀ i, π (κ i) = i)
    (h' : ∀ i, κ (π i) = i) :
    backward (p.select κ id) (x.select κ id) (fun i => G (κ i)) = (backward p x G).select κ id := by
  have b : BlockMatch p x (p.select κ id) (x.select κ id) κ id :=
    ⟨fun i => RowMatch.of_select p x κ (.id _), fun j => .of_inverse h h' _⟩
  have hq := fun i => (b.row i).backward_query (G := G) (G' := fun i => G (κ i)) rfl
  have hk := b.backward_key (G := G) (G' := fun i => G (κ i)) (fun _ => rfl) rfl
  have hv := b.backward_value (G := G) (G' := fun i => G (κ i)) (fun _ => rfl)
  have hb := fun i j => (b.row i).scoresGrad (G := G) (G' := fun i => G (κ i)) rfl j
  ext i j
  · exact congrFun (hq i).symm j
  · exact congrFun (hk i).symm j
  · exact congrFun (hv i).symm j
  · exact (hb i j).symm

end Select

section Same
variable {p p' : Params R nQ nK} {x x' : Inputs R nQ nK d dv} {i : Fin nQ}
  (scale : p.scale = p'.scale) (visible : p.visible i = p'.visible i) (query : x.query i = x'.query i)
  (multiplier : ∀ j, p.visible i j → p.multiplier i j = p'.multiplier i j)
  (bias : ∀ j, p.visible i j → x.bias i j = x'.bias i j)
  (key : ∀ j, p.visible i j → x.key j = x'.key j) (value : ∀ j, p.visible i j → x.value j = x'.value j)
include scale visible query multiplier bias key value

omit [CommRing R] [Inv R] [Exp R] in
/-- Two problems of one shape that agree on everything a row may look at match at that row. -/
theorem RowMatch.of_agree : RowMatch p x i p' x' i id :=
  ⟨.id _, scale, query, fun j => congrFun visible j, visible ▸ multiplier, visible ▸ bias, visible ▸ key,
    visible ▸ value⟩

end Same

/-- Keys and values that no query sees change neither the output nor any gradient. -/
theorem masked_inert (p : Params R nQ nK) {x x' : Inputs R nQ nK d dv} (query : x.query = x'.query)
    (bias : ∀ i j, p.visible i j → x.bias i j = x'.bias i j)
    (key : ∀ i j, p.visible i j → x.key j = x'.key j)
    (value : ∀ i j, p.visible i j → x.value j = x'.value j) (G : Mat R nQ dv) :
    forward p x = forward p x' ∧ backward p x G = backward p x' G := by
  have row : ∀ i, RowMatch p x i p x' i id := fun i =>
    .of_agree rfl rfl (congrFun query i) (fun _ _ => rfl) (bias i) (key i) (value i)
  have b : BlockMatch p x p x' id id := ⟨row, fun _ => .id _⟩
  refine ⟨funext fun i => (row i).forward, ?_⟩
  ext i j
  · exact congrFun ((row i).backward_query (G := G) (G' := G) rfl) j
  · exact congrFun (b.backward_key (G := G) (G' := G) (fun _ => rfl) rfl i) j
  · exact congrFun (b.backward_value (G := G) (G' := G) (fun _ => rfl) i) j
  · exact (row i).scoresGrad (G := G) (G' := G) rfl j

end AttnSpec
