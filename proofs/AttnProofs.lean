module
public import AttnProofs.Sum
public import AttnProofs.Matrix
public import AttnProofs.Softmax
public import AttnProofs.Attention
public import AttnProofs.Linear
public import AttnProofs.Locality
public import AttnProofs.Packing
public import AttnProofs.Visibility
public import AttnProofs.Handoff
public import AttnProofs.Heads
public import AttnProofs.Online
public import AttnProofs.Dual
public import AttnProofs.DualRing
public import AttnProofs.Softcap
public import AttnProofs.Order
public import AttnProofs.Exp
public import AttnProofs.Scale
public import AttnProofs.Sink
public import AttnProofs.Alibi
public import AttnProofs.Dropout

/-! The claims, one theorem each. Every size may be zero and every row of a mask may be empty unless a theorem says
otherwise. `R` is any commutative ring or field, and its exponential is any function unless laws are asked for. -/

@[expose] public section

set_option autoImplicit false

namespace AttnProofs
open AttnSpec AttnSpec.Acc Lean.Grind

universe u
variable {R : Type u} {m n nQ nK mQ mK d dv hQ hK : Nat}

/-! ### Rows -/

section Rows
variable [Zero R] [Add R] [Sub R] [Mul R] [Inv R] [Exp R]

omit [Sub R] in
/-- Each query row is normalised against its own row of scores and its own row of the mask, and nothing else. -/
theorem row_separation (visible : Mat Bool nQ nK) (S : Mat R nQ nK) (i : Fin nQ) :
    softmaxRows visible S i = softmax (visible i) (S i) := rfl

omit [Inv R] [Exp R] in
/-- The backward helper acts on each query row on its own. -/
theorem backward_helper_row_separation (P G : Mat R nQ nK) (i : Fin nQ) :
    centerRows P G i = center (P i) (G i) := rfl

end Rows

/-! ### Tangents and gradients -/

section Gradients
variable [CommRing R]

/-- The backward helper is symmetric in the Frobenius inner product, for any weights. -/
theorem backward_helper_symmetric (P X G : Mat R nQ nK) :
    frob (centerRows P X) G = frob X (centerRows P G) := frob_centerRows P X G

variable [Inv R] [Exp R] (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) (G : Mat R nQ dv)

/-- The tangent of the output paired with a gradient is the sum of four terms, one each for query, key, value and bias. -/
theorem jvp_backward_pairing :
    frob (jvp p x dx) G =
      frob dx.query (backward p x G).query + frob dx.key (backward p x G).key
        + frob dx.value (backward p x G).value + frob dx.bias (backward p x G).bias :=
  jvp_backward p x dx G

/-- With the bias held fixed, the pairing of tangent and gradient has three terms: query, key and value. -/
theorem jvp_backward_pairing_without_bias (dQ : Mat R nQ d) (dK : Mat R nK d) (dV : Mat R nK dv) :
    frob (jvp p x ⟨dQ, dK, dV, fun _ _ => 0⟩) G =
      frob dQ (backward p x G).query + frob dK (backward p x G).key + frob dV (backward p x G).value := by
  rw [jvp_backward_pairing]
  have : frob (fun _ _ => (0 : R)) (backward p x G).bias = 0 := frob_zero _
  grind

/-- Forward run over dual numbers gives the output and, as its derivative, the JVP; empty rows are no exception. -/
theorem forward_over_duals (i : Fin nQ) (c : Fin dv) :
    forward (Dual.params p) (Dual.inputs x dx) i c = ⟨forward p x i c, jvp p x dx i c⟩ :=
  forward_dual p x dx i c

/-- Dual numbers nest: over them the same definitions give the tangent of the tangent. -/
theorem forward_over_nested_duals (p : Params (Dual R) nQ nK) (x dx : Inputs (Dual R) nQ nK d dv) (i : Fin nQ)
    (c : Fin dv) :
    forward (Dual.params p) (Dual.inputs x dx) i c = ⟨forward p x i c, jvp p x dx i c⟩ :=
  forward_dual_dual p x dx i c

/-- Backward is the transpose of the derivative of forward: it pairs like it, and nothing else does. -/
theorem backward_is_transpose (y : Inputs R nQ nK d dv) :
    (∀ dx, frob (fun i c => (forward (Dual.params p) (Dual.inputs x dx) i c).eps) G = Inputs.inner dx y)
      ↔ y = backward p x G := by
  simp only [forward_dual]
  exact ⟨backward_unique p x G y, fun h dx => h ▸ jvp_backward p x dx G⟩

/-- Gradients are linear in the output gradient. -/
theorem backward_linear (a : R) (G' : Mat R nQ dv) :
    backward p x (fun i c => a * G i c + G' i c) = Inputs.combine a (backward p x G) (backward p x G') :=
  backward_combine p x a G G'

/-- Tangents are linear in the direction. -/
theorem jvp_linear (a : R) (dx' : Inputs R nQ nK d dv) :
    jvp p x (Inputs.combine a dx dx') = fun i c => a * jvp p x dx i c + jvp p x dx' i c :=
  jvp_combine p x a dx dx'

/-- The output is linear in the values. -/
theorem forward_linear_in_values (a : R) (V V' : Mat R nK dv) :
    forward p { x with value := fun j c => a * V j c + V' j c }
      = fun i c => a * forward p { x with value := V } i c + forward p { x with value := V' } i c :=
  forward_combine_value p x a V V'

omit p x dx G in
/-- The derivative of a row of softmax is weighted centring at its weights: the Jacobian is `diag(p) - p pᵀ`. -/
theorem softmax_derivative_is_centring (visible : Vec Bool n) (s : Vec (Dual R) n) (j : Fin n) :
    softmax visible s j = ⟨softmax visible (fun j => (s j).re) j,
      center (softmax visible fun j => (s j).re) (fun j => (s j).eps) j⟩ :=
  Dual.ext (re_softmax visible s j) (eps_softmax visible s j)

/-- The inner product of weights with their gradient is that of the output with its gradient. -/
theorem delta_contraction (i : Fin nQ) :
    dot (weights p x i) (weightsGrad p x G i) = dot (G i) (forward p x i) :=
  dot_weights_weightsGrad p x G i

/-- The score gradient may be computed from the output, as kernels do. -/
theorem score_gradient_from_output (i : Fin nQ) (j : Fin nK) :
    scoresGrad p x G i j = weights p x i j * (weightsGrad p x G i j - dot (G i) (forward p x i)) :=
  scoresGrad_eq p x G i j

/-- The bias gradient is the score gradient. -/
theorem bias_gradient_is_score_gradient : (backward p x G).bias = scoresGrad p x G := rfl

/-- Value gradients summed over keys are the output gradients, each times the mass of its row. -/
theorem value_gradient_conserved (c : Fin dv) :
    (sum fun j => (backward p x G).value j c) = sum fun i => sum (consumed p x i) * G i c :=
  sum_backward_value p x G c

omit [Inv R] [Exp R] in
/-- Dropout with a realised multiplier is its own adjoint. -/
theorem dropout_adjoint (A Z B : Mat R nQ nK) : frob (hadamard A Z) B = frob A (hadamard Z B) :=
  frob_hadamard_left A Z B

/-! ### Hidden keys and empty rows -/

variable {p} {i : Fin nQ} {j : Fin nK}

/-- A hidden key has weight zero, whatever its score, bias or multiplier. -/
theorem masked_weight_zero (h : p.visible i j = false) : weights p x i j = 0 ∧ consumed p x i j = 0 :=
  ⟨weights_hidden x h, consumed_hidden x h⟩

/-- The score of a hidden key has gradient zero. -/
theorem masked_score_gradient_zero (h : p.visible i j = false) : scoresGrad p x G i j = 0 :=
  scoresGrad_hidden x G h

/-- A key that no query sees receives zero key and value gradients. -/
theorem masked_key_gradients_zero (h : ∀ i, p.visible i j = false) :
    (backward p x G).key j = (fun _ => 0) ∧ (backward p x G).value j = fun _ => 0 :=
  ⟨backward_key_hidden x G h, backward_value_hidden x G h⟩

/-- A query that sees no key has all weights zero. -/
theorem empty_row_weights_zero (h : ∀ j, p.visible i j = false) : weights p x i = fun _ => 0 :=
  weights_empty x h

/-- A query that sees no key has a zero output and a zero tangent. -/
theorem empty_row_output_zero (h : ∀ j, p.visible i j = false) :
    forward p x i = (fun _ => 0) ∧ jvp p x dx i = fun _ => 0 :=
  ⟨forward_empty x h, jvp_empty x dx h⟩

/-- A query that sees no key receives a zero gradient, and so does its row of scores. -/
theorem empty_row_gradient_zero (h : ∀ j, p.visible i j = false) :
    (backward p x G).query i = (fun _ => 0) ∧ scoresGrad p x G i = fun _ => 0 :=
  ⟨backward_query_empty x G h, scoresGrad_empty x G h⟩

/-- With no keys at all, every output is zero. -/
theorem no_keys_output_zero (p : Params R nQ 0) (x : Inputs R nQ 0 d dv) : forward p x = fun _ _ => 0 := rfl

/-- With no queries at all, every key and value gradient is zero. -/
theorem no_queries_gradients_zero (p : Params R 0 nK) (x : Inputs R 0 nK d dv) (G : Mat R 0 dv) :
    (backward p x G).key = (fun _ _ => 0) ∧ (backward p x G).value = fun _ _ => 0 :=
  ⟨funext fun _ => backward_key_hidden x G fun i => i.elim0,
   funext fun _ => backward_value_hidden x G fun i => i.elim0⟩

/-! ### Locality -/

section Locality
variable {p' : Params R nQ nK} {x' : Inputs R nQ nK d dv}
  (scale : p.scale = p'.scale) (visible : p.visible i = p'.visible i) (query : x.query i = x'.query i)
  (multiplier : ∀ j, p.visible i j → p.multiplier i j = p'.multiplier i j)
  (bias : ∀ j, p.visible i j → x.bias i j = x'.bias i j)
  (key : ∀ j, p.visible i j → x.key j = x'.key j) (value : ∀ j, p.visible i j → x.value j = x'.value j)
include scale visible query multiplier bias key value

/-- An output row depends only on its own query, mask row, bias, multiplier and the keys and values that it sees. -/
theorem locality_forward : forward p x i = forward p' x' i :=
  (RowMatch.of_agree scale visible query multiplier bias key value).forward

/-- The gradients of a query and of its scores depend on nothing else either, save its own output gradient. -/
theorem locality_backward (G G' : Mat R nQ dv) (hG : G i = G' i) :
    (backward p x G).query i = (backward p' x' G').query i ∧ scoresGrad p x G i = scoresGrad p' x' G' i :=
  have row := RowMatch.of_agree scale visible query multiplier bias key value
  ⟨row.backward_query hG, funext fun j => row.scoresGrad hG j⟩

end Locality

/-- Keys, values and biases that no query sees change neither the output nor any gradient. -/
theorem masked_keys_inert {x x' : Inputs R nQ nK d dv} (query : x.query = x'.query)
    (bias : ∀ i j, p.visible i j → x.bias i j = x'.bias i j)
    (key : ∀ i j, p.visible i j → x.key j = x'.key j)
    (value : ∀ i j, p.visible i j → x.value j = x'.value j) :
    forward p x = forward p x' ∧ backward p x G = backward p x' G :=
  masked_inert p query bias key value G

/-- Queries are independent: choosing, repeating or reordering queries does the same to output rows. -/
theorem queries_independent (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (rows : Fin mQ → Fin nQ) (i : Fin mQ) :
    forward (p.select rows id) (x.select rows id) i = forward p x (rows i) :=
  forward_select p x rows (.id _)

/-- Reordering queries reorders outputs and query gradients and leaves key and value gradients unchanged. -/
theorem query_permutation_equivariance (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv)
    {κ : Fin mQ → Fin nQ} {π : Fin nQ → Fin mQ} (left : ∀ i, π (κ i) = i) (right : ∀ i, κ (π i) = i) :
    (∀ i, forward (p.select κ id) (x.select κ id) i = forward p x (κ i))
      ∧ backward (p.select κ id) (x.select κ id) (fun i => G (κ i)) = (backward p x G).select κ id :=
  ⟨fun _ => forward_select p x κ (.id _), backward_permute_queries p x G left right⟩

/-- Reordering keys leaves outputs and query gradients unchanged and reorders the other gradients alike. -/
theorem key_permutation_equivariance (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv)
    {ι : Fin mK → Fin nK} {π : Fin nK → Fin mK} (left : ∀ i, π (ι i) = i) (right : ∀ j, ι (π j) = j) :
    forward (p.select id ι) (x.select id ι) = forward p x
      ∧ backward (p.select id ι) (x.select id ι) G = (backward p x G).select id ι :=
  ⟨forward_permute p x left right, backward_permute p x G left right⟩

/-! ### Packing and padding -/

/-- Two problems packed end to end give their separate outputs. -/
theorem packed_equals_separate (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (p' : Params R mQ mK)
    (x' : Inputs R mQ mK d dv) (scale : p.scale = p'.scale) :
    forward (p.pack p') (x.pack x') = append (forward p x) (forward p' x') :=
  forward_pack p x p' x' scale

/-- Two problems packed end to end give their separate gradients. -/
theorem packed_gradients_equal_separate (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (p' : Params R mQ mK)
    (x' : Inputs R mQ mK d dv) (scale : p.scale = p'.scale) (G : Mat R nQ dv) (G' : Mat R mQ dv) :
    backward (p.pack p') (x.pack x') (append G G') = (backward p x G).pack (backward p' x' G') :=
  backward_pack p x p' x' scale G G'

/-- Under a segment mask, the rows of a segment are attention over that segment alone. -/
theorem segments_equal_separate (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {sq : Vec Nat nQ} {sk : Vec Nat nK}
    {inner : Mat Bool nQ nK} (hm : p.visible = Visibility.compose (Visibility.segments sq sk) inner)
    {rows : Fin mQ → Fin nQ} {columns : Fin mK → Fin nK} {t : Nat} (own : ∀ i, sq (rows i) = t)
    (once : ∀ {j j'}, columns j = columns j' → j = j') (all : ∀ j, sk j = t → ∃ j', columns j' = j) (i : Fin mQ) :
    forward p x (rows i) = forward (p.select rows columns) (x.select rows columns) i :=
  forward_segments p x hm own once all i

/-- Padded keys may be cut off: the output is that over the valid keys alone. -/
theorem padding_may_be_cut_off (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (len : mK ≤ nK)
    {inner : Mat Bool nQ nK}
    (hm : p.visible = Visibility.compose (Visibility.keyPadding fun j => decide (j.1 < mK)) inner) :
    forward p x = forward (p.select id (Fin.castLE len)) (x.select id (Fin.castLE len)) :=
  forward_padding p x len hm

/-- A row over exactly the keys that it sees, in any order, is its row of the whole. -/
theorem row_over_visible_keys (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (rows : Fin mQ → Fin nQ)
    {columns : Fin mK → Fin nK} (i : Fin mQ) (once : ∀ {j j'}, columns j = columns j' → j = j')
    (all : ∀ j, p.visible (rows i) j = true → ∃ j', columns j' = j) :
    forward (p.select rows columns) (x.select rows columns) i = forward p x (rows i) :=
  forward_visible_only p x rows i once all

/-- What a row with a zero output gradient sees does not matter to any gradient: a borrowed key leaves no trace. -/
theorem unused_rows_leave_no_trace {p p' : Params R nQ nK} (x : Inputs R nQ nK d dv) {G : Mat R nQ dv}
    (scale : p.scale = p'.scale)
    (same : ∀ i, (∀ c, G i c = 0) ∨ (p.visible i = p'.visible i ∧ p.multiplier i = p'.multiplier i)) :
    backward p x G = backward p' x G := backward_zero_rows x scale same

/-! ### Causal masks -/

/-- A causal row never reads the keys, values and biases after its position. -/
theorem causal_rows_never_read_ahead {p : Params R nQ nK} {offset : Int} (hp : p.visible = Visibility.causal offset)
    {x x' : Inputs R nQ nK d dv} {i : Fin nQ} (query : x.query i = x'.query i)
    (bias : ∀ j : Fin nK, (j.1 : Int) ≤ i.1 + offset → x.bias i j = x'.bias i j)
    (key : ∀ j : Fin nK, (j.1 : Int) ≤ i.1 + offset → x.key j = x'.key j)
    (value : ∀ j : Fin nK, (j.1 : Int) ≤ i.1 + offset → x.value j = x'.value j) :
    forward p x i = forward p x' i :=
  forward_causal hp query bias key value

/-- Decoding with cached keys: the last queries alone, aligned to the lower right, give the last rows of the whole. -/
theorem cached_decoding_equals_full {p : Params R (nQ + mQ) nK} {p' : Params R mQ nK}
    {x : Inputs R (nQ + mQ) nK d dv} {x' : Inputs R mQ nK d dv} (hp : p.visible = Visibility.lowerRight)
    (hp' : p'.visible = Visibility.lowerRight) (scale : p.scale = p'.scale)
    (multiplier : ∀ i, p.multiplier (Fin.natAdd nQ i) = p'.multiplier i)
    (bias : ∀ i, x.bias (Fin.natAdd nQ i) = x'.bias i) (query : ∀ i, x.query (Fin.natAdd nQ i) = x'.query i)
    (key : x.key = x'.key) (value : x.value = x'.value) (i : Fin mQ) :
    forward p x (Fin.natAdd nQ i) = forward p' x' i :=
  forward_decode hp hp' scale multiplier bias query key value i

end Gradients

section Visibility
open Visibility

/-- A pair is visible under a composition exactly when every part lets it through, in any order and grouping. -/
theorem visibility_composition (a b c : Mat Bool nQ nK) (i : Fin nQ) (j : Fin nK) :
    (compose a b i j = true ↔ a i j = true ∧ b i j = true) ∧ compose a b = compose b a
      ∧ compose (compose a b) c = compose a (compose b c) ∧ compose a full = a ∧ compose a empty = empty :=
  ⟨compose_iff a b i j, compose_comm a b, compose_assoc a b c, compose_full a, compose_empty a⟩

/-- Later queries of a causal mask are a causal mask whose offset is larger by the number of queries before them. -/
theorem causal_offset_shift (offset : Int) (i : Fin mQ) (j : Fin nK) :
    (causal offset : Mat Bool (nQ + mQ) nK) (Fin.natAdd nQ i) j = causal (offset + nQ) i j :=
  causal_rest offset i j

/-- Upper left and lower right alignment coincide exactly when there are as many queries as keys. -/
theorem upper_left_eq_lower_right_iff (hQ : 0 < nQ) (hK : 0 < nK) :
    (upperLeft : Mat Bool nQ nK) = lowerRight ↔ nQ = nK := upperLeft_eq_lowerRight_iff hQ hK

/-- Under lower right alignment the last query sees every key. -/
theorem lower_right_last_query_sees_all (i : Fin nQ) (h : i.1 + 1 = nQ) (j : Fin nK) : lowerRight i j = true :=
  lowerRight_last i h j

/-- Under lower right alignment a query sees a key exactly when `nQ ≤ i + nK`; the queries before see none. -/
theorem lower_right_empty_rows (i : Fin nQ) : (∃ j : Fin nK, lowerRight i j = true) ↔ nQ ≤ i.1 + nK :=
  lowerRight_sees i

/-- A window that reaches far enough back and not ahead is the causal mask. -/
theorem window_is_causal (offset : Int) (left : Nat) (h : (nQ : Int) + offset ≤ left + 1) :
    (window offset left 0 : Mat Bool nQ nK) = causal offset := window_causal offset left h

/-- A window sees exactly the keys at most `left` back and at most `right` ahead, and a wider one sees no less. -/
theorem window_law (offset : Int) (left right : Nat) (i : Fin nQ) (j : Fin nK) :
    (window offset left right i j = true ↔
      (i.1 : Int) + offset - left ≤ j.1 ∧ (j.1 : Int) ≤ i.1 + offset + right)
      ∧ ∀ {left' right'}, left ≤ left' → right ≤ right' →
        window offset left right i j = true → window offset left' right' i j = true :=
  ⟨window_iff offset left right i j, fun hl hr h => window_mono offset hl hr i j h⟩

/-- A prefix is seen whole by every query; of length zero it is the causal mask, of full length the full mask. -/
theorem prefix_law (length : Nat) (offset : Int) :
    (∀ (i : Fin nQ) (j : Fin nK), j.1 < length → Visibility.prefix length offset i j = true)
      ∧ (Visibility.prefix 0 offset : Mat Bool nQ nK) = causal offset
      ∧ (nK ≤ length → (Visibility.prefix length offset : Mat Bool nQ nK) = full) :=
  ⟨prefix_sees length offset, prefix_zero offset, prefix_all offset⟩

/-- Under a segment mask a query sees exactly the keys of its own segment. -/
theorem segments_law (sq : Vec Nat nQ) (sk : Vec Nat nK) (i : Fin nQ) (j : Fin nK) :
    segments sq sk i j = true ↔ sq i = sk j := segments_iff sq sk i j

/-- A query inside the prefix sees the prefix, one behind it its past; a causal mask beside it takes the prefix away. -/
theorem prefix_is_a_causal_region (length : Nat) (offset : Int) :
    (∀ (i : Fin nQ) (j : Fin nK), Visibility.prefix length offset i j = true ↔
      ((i.1 : Int) + offset < length ∧ j.1 < length) ∨ ((length : Int) ≤ i.1 + offset ∧ (j.1 : Int) ≤ i.1 + offset))
      ∧ (compose (Visibility.prefix length offset) (causal offset) : Mat Bool nQ nK) = causal offset :=
  ⟨prefix_two_regions length offset, prefix_with_causal length offset⟩

/-- In the other polarity masks compose by OR: an edge is blocked where at least one of them blocks it. -/
theorem blocked_masks_compose_by_or (a b : Mat Bool nQ nK) (i : Fin nQ) (j : Fin nK) :
    (!compose a b i j) = either (fun i j => !a i j) (fun i j => !b i j) i j := blocked_composition a b i j

/-- The sum of additive masks and the conjunction of boolean ones show the same edges. -/
theorem additive_masks_compose [Add R] (a b : Mat (Option R) nQ nK) :
    shown (plus a b) = compose (shown a) (shown b) := additive_composition a b

end Visibility

/-! ### Softcapped scores -/

section Softcap
variable [CommRing R] [Inv R] [Exp R] [Tanh R] (c : R) (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv)
  (G : Mat R nQ dv)

/-- Under a softcap, tangent and gradient pair, in one term each for query, key, value and bias. -/
theorem softcap_jvp_backward_pairing :
    frob (Softcap.jvp c p x dx) G =
      frob dx.query (Softcap.backward c p x G).query + frob dx.key (Softcap.backward c p x G).key
        + frob dx.value (Softcap.backward c p x G).value + frob dx.bias (Softcap.backward c p x G).bias :=
  Softcap.jvp_backward c p x dx G

/-- Under a softcap, nothing but the gradient map is the transpose of the tangent map. -/
theorem softcap_backward_is_transpose (y : Inputs R nQ nK d dv) :
    (∀ dx, frob (Softcap.jvp c p x dx) G = Inputs.inner dx y) ↔ y = Softcap.backward c p x G :=
  ⟨Softcap.backward_unique c p x G y, fun h dx => h ▸ Softcap.jvp_backward c p x dx G⟩

omit dx in
/-- A softcap comes before the mask: a hidden key keeps weight zero and score gradient zero. -/
theorem softcap_masked_weight_zero {i : Fin nQ} {j : Fin nK} (h : p.visible i j = false) :
    Softcap.weights c p x i j = 0 ∧ Softcap.scoresGrad c p x G i j = 0 :=
  ⟨Softcap.weights_hidden c x h, Softcap.scoresGrad_hidden c x G h⟩

omit dx G in
/-- Under a softcap, a query that sees no key has a zero output. -/
theorem softcap_empty_row_output_zero {i : Fin nQ} (h : ∀ j, p.visible i j = false) :
    Softcap.forward c p x i = fun _ => 0 := Softcap.forward_empty c x h

end Softcap

/-- Forward with a softcap over dual numbers gives the output and, as its derivative, the JVP. -/
theorem softcap_forward_over_duals [Field R] [Exp R] [Tanh R] {c : R} (hc : c ≠ 0) (p : Params R nQ nK)
    (x dx : Inputs R nQ nK d dv) (i : Fin nQ) (k : Fin dv) :
    Softcap.forward (Dual.const c) (Dual.params p) (Dual.inputs x dx) i k
      = ⟨Softcap.forward c p x i k, Softcap.jvp c p x dx i k⟩ := Softcap.forward_dual hc p x dx i k

/-! ### The attention sink -/

section Sink
variable [CommRing R] [Inv R] [Exp R] (logit : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv)

/-- With a sink, a real key's weight and the sink's are their exponentials over a denominator that the sink's has joined. -/
theorem sink_joins_denominator (i : Fin nQ) (j : Fin nK) :
    weights p.extended (x.extended logit) i (Sink.real j)
        = numerator (p.visible i) (scores p x i) j * (denominator (p.visible i) (scores p x i) + exp logit)⁻¹
      ∧ weights p.extended (x.extended logit) i Sink.column
        = exp logit * (denominator (p.visible i) (scores p x i) + exp logit)⁻¹ :=
  ⟨Sink.weights_real logit p x i j, Sink.weights_column logit p x i⟩

/-- With a sink, the output is a sum over the real keys alone: the sink carries no value. -/
theorem sink_output_over_real_keys (i : Fin nQ) (c : Fin dv) :
    forward p.extended (x.extended logit) i c
      = sum fun j => consumed p.extended (x.extended logit) i (Sink.real j) * x.value j c :=
  Sink.forward_extended logit p x i c

/-- With a sink, a row that sees no real key has output and query gradient zero, and the sink's exponential as denominator. -/
theorem sink_empty_row_output_zero (G : Mat R nQ dv) {i : Fin nQ} (h : ∀ j, p.visible i j = false) :
    forward p.extended (x.extended logit) i = (fun _ => 0)
      ∧ (backward p.extended (x.extended logit) G).query i = (fun _ => 0)
      ∧ denominator (p.extended.visible i) (scores p.extended (x.extended logit) i) = exp logit :=
  ⟨Sink.forward_empty logit p x h, Sink.backward_query_empty logit p x h G, Sink.denominator_empty logit p x h⟩

/-- The gradient of the sink's score is minus its weight times the inner product of the output with its gradient. -/
theorem sink_gradient_is_minus_mass_times_delta (G : Mat R nQ dv) (i : Fin nQ) :
    scoresGrad p.extended (x.extended logit) G i Sink.column
      = -(weights p.extended (x.extended logit) i Sink.column * dot (G i) (forward p.extended (x.extended logit) i)) :=
  Sink.scoresGrad_column logit p x i G

end Sink

/-- With a sink, the weights of the real keys sum to one less the sink's, where the denominator is not zero. -/
theorem sink_takes_mass [Field R] [Exp R] (logit : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ)
    (h : denominator (p.visible i) (scores p x i) + exp logit ≠ 0) :
    (sum fun j => weights p.extended (x.extended logit) i (Sink.real j))
      = 1 - weights p.extended (x.extended logit) i Sink.column := Sink.sum_weights_real logit p x i h

/-! ### ALiBi -/

section Alibi
variable [CommRing R] (slope move : R)

omit move in
/-- ALiBi is a bias: after scale and softcap, every score loses the slope times its distance, and nothing else changes. -/
theorem alibi_is_a_bias [Tanh R] [Inv R] (c : R) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ)
    (j : Fin nK) :
    scores p (x.sloped slope) i j = scores p x i j - Alibi.multiple (Alibi.distance i j) slope
      ∧ Softcap.scores c p (x.sloped slope) i j
        = Softcap.scores c p x i j - Alibi.multiple (Alibi.distance i j) slope := by
  simp only [scores, Softcap.scores, Softcap.softcap, Softcap.scaledScores, Inputs.sloped, Inputs.addBias,
    Alibi.slopeBias]
  constructor <;> grind

omit slope move in
/-- A query that decodes over cached keys is as far from each of them as it is among all the queries. -/
theorem alibi_cached_distances (i : Fin mQ) (j : Fin nK) :
    Alibi.distance (Fin.natAdd nQ i) j = Alibi.distance i j := Alibi.distance_last i j

variable [Inv R] [Exp R] (p : Params R nQ nK) (x dx : Inputs R nQ nK d dv) (G : Mat R nQ dv)

omit slope move dx in
/-- A slope of zero is plain attention, forward and backward. -/
theorem alibi_zero_slope_is_plain_attention :
    forward p (x.sloped 0) = forward p x ∧ backward p (x.sloped 0) G = backward p x G := by
  rw [Alibi.sloped_zero]; exact ⟨rfl, rfl⟩

/-- The gradient of the slope, minus the sum of distance times score gradient, pairs with the slope's tangent as the
output's tangent does with its gradient. -/
theorem alibi_slope_gradient_is_weighted_score_gradient :
    frob (jvp p (x.sloped slope) (dx.sloped move)) G
      = Inputs.inner dx (backward p (x.sloped slope) G)
        + move * -(sum fun i => sum fun j =>
            Alibi.multiple (Alibi.distance i j) (scoresGrad p (x.sloped slope) G i j)) := by
  rw [jvp_backward, Alibi.inner_sloped]; rfl

/-- The pairing of the slope's gradient holds under a softcap, which the slope comes after. -/
theorem alibi_slope_gradient_under_softcap [Tanh R] (c : R) :
    frob (Softcap.jvp c p (x.sloped slope) (dx.sloped move)) G
      = Inputs.inner dx (Softcap.backward c p (x.sloped slope) G)
        + move * Alibi.slopeGrad (Softcap.scoresGrad c p (x.sloped slope) G) := by
  rw [Softcap.jvp_backward, Alibi.inner_sloped]; rfl

omit G in
/-- Forward with a moving slope, over dual numbers, gives the output and, as its derivative, the JVP. -/
theorem alibi_forward_over_duals (i : Fin nQ) (c : Fin dv) :
    forward (Dual.params p) ((Dual.inputs x dx).sloped ⟨slope, move⟩) i c
      = ⟨forward p (x.sloped slope) i c, jvp p (x.sloped slope) (dx.sloped move) i c⟩ := by
  rw [Alibi.sloped_dual, forward_dual]

end Alibi

/-- Where no query sees a key after its own position, the slope may multiply key indices instead of distances, and so
may its gradient: in each row the two differ by one number. -/
theorem alibi_may_count_from_the_first_key [Field R] [Exp R] [LawfulExp R] (p : Params R nQ nK)
    (x : Inputs R nQ nK d dv) (slope : R) (G : Mat R nQ dv)
    (before : ∀ i j, p.visible i j = true → (j.1 : Int) ≤ i.1 + (nK - nQ)) :
    forward p (x.addBias (Alibi.keyBias slope)) = forward p (x.sloped slope)
      ∧ backward p (x.addBias (Alibi.keyBias slope)) G = backward p (x.sloped slope) G
      ∧ Alibi.keyGrad (scoresGrad p (x.sloped slope) G) = Alibi.slopeGrad (scoresGrad p (x.sloped slope) G) :=
  ⟨Alibi.forward_keyBias p x slope before, Alibi.backward_keyBias p x slope G before,
   Alibi.keyGrad_scoresGrad p (x.sloped slope) G before⟩

/-! ### Bilinear scores -/

/-- A bilinear score is a score of dot products: the metric may be moved into the queries, or into the keys. -/
theorem bilinear_reduces_to_dot [CommRing R] (query : Mat R nQ m) (metric : Mat R m n) (key : Mat R nK n) :
    mulT (mul query metric) key = mulT query (mulT key metric) := mulT_mul query metric key

/-! ### Heads and scale -/

section Heads
variable [CommRing R] [Inv R] [Exp R] (headMap : Fin hQ → Fin hK) (p : Fin hQ → Params R nQ nK)
  (x dx : HeadInputs R hQ hK nQ nK d dv) (G : Fin hQ → Mat R nQ dv)

/-- Grouped heads give the output of repeated heads. -/
theorem grouped_heads_equal_repeated :
    Heads.forward headMap p x = Heads.forward id p (x.repeated headMap) := rfl

/-- Gradients over grouped heads are those over repeated heads, keys' and values' summed over each group. -/
theorem grouped_head_gradients_sum_over_groups :
    Heads.backward headMap p x G =
      ⟨(Heads.backward id p (x.repeated headMap) G).query,
       groupSum headMap (Heads.backward id p (x.repeated headMap) G).key,
       groupSum headMap (Heads.backward id p (x.repeated headMap) G).value,
       (Heads.backward id p (x.repeated headMap) G).bias⟩ := Heads.backward_repeated headMap p x G

/-- Tangent and gradient pair over grouped heads too, all heads together. -/
theorem grouped_jvp_backward_pairing :
    (sum fun h => frob (Heads.jvp headMap p x dx h) (G h)) = HeadInputs.inner dx (Heads.backward headMap p x G) :=
  Heads.jvp_backward headMap p x dx G

omit [Inv R] [Exp R] in
/-- The scale on the queries, on the keys, split over both or on the scores gives the same scores. -/
theorem scale_placements_equal (a b : R) (query : Mat R nQ d) (key : Mat R nK d) :
    Scale.onQuery (a * b) query key = Scale.onScores (a * b) query key
      ∧ Scale.onKey (a * b) query key = Scale.onScores (a * b) query key
      ∧ Scale.split a b query key = Scale.onScores (a * b) query key :=
  ⟨Scale.onQuery_eq _ query key, Scale.onKey_eq _ query key, Scale.split_eq a b query key⟩

/-- The scale may be applied to the queries beforehand, and attention then run with scale one. -/
theorem scale_moves_into_queries (p : Params R nQ nK) (x : Inputs R nQ nK d dv) :
    forward p x = forward { p with scale := 1 } { x with query := Scale.scaled p.scale x.query } :=
  Scale.forward_scaled_query p x

end Heads

/-! ### Normalisation -/

section Normalised
variable [Field R] [Exp R] (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (G : Mat R nQ dv)

/-- The score gradients of a row sum to zero, whether or not the row sees a key. -/
theorem score_gradient_row_sum_zero (i : Fin nQ) : sum (scoresGrad p x G i) = 0 := sum_scoresGrad p x G i

omit p x G in
/-- Visible keys with equal scores have equal weights. -/
theorem ties_share_equally (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {i : Fin nQ} {j k : Fin nK}
    (hj : p.visible i j) (hk : p.visible i k) (h : scores p x i j = scores p x i k) :
    weights p x i j = weights p x i k := softmax_tie hj hk h

/-- Where all visible scores of a row are equal and nothing is dropped, the output is the plain average of visible values. -/
theorem equal_scores_average_values {i : Fin nQ} {a : R} (h : ∀ j, p.visible i j → scores p x i j = a)
    (one : ∀ j, p.visible i j → p.multiplier i j = 1)
    (hd : denominator (p.visible i) (scores p x i) ≠ 0) (c : Fin dv) :
    (sum fun j => if p.visible i j then (1 : R) else 0) * forward p x i c
      = sum fun j => if p.visible i j then x.value j c else 0 := forward_uniform p x h one hd c

/-- A query that sees one key copies its value, times the multiplier. -/
theorem singleton_copies_value {i : Fin nQ} {j : Fin nK} (only : ∀ k, p.visible i k = true ↔ k = j)
    (h : exp (scores p x i j) ≠ 0) (c : Fin dv) :
    forward p x i c = p.multiplier i j * x.value j c := forward_singleton p x only h c

/-- With dropout off, the values meet the weights themselves. -/
theorem dropout_off_is_identity (h : p.multiplier = Dropout.off) : consumed p x = weights p x := consumed_off h x

omit [Exp R] p x G in
/-- The dropout multiplier averages to one over keeping and dropping. -/
theorem dropout_multiplier_mean_one {q : R} (h : 1 - q ≠ 0) (i : Fin nQ) (j : Fin nK) :
    (1 - q) * multiplier (fun _ _ => true) q i j + q * multiplier (fun _ _ => false) q i j = 1 :=
  multiplier_mean h i j

omit p x G in
/-- Multiplying every visible numerator of a row by one factor that is not zero changes no weight. -/
theorem common_factor_cancels {visible : Vec Bool n} {s t : Vec R n} {e : R} (he : e ≠ 0)
    (h : ∀ j, visible j → exp (t j) = exp (s j) * e) : softmax visible t = softmax visible s :=
  softmax_scale he h

end Normalised

section Lawful
variable [Field R] [Exp R] [LawfulExp R]

/-- Subtracting one number from all scores of a row changes no weight. -/
theorem shift_invariance (visible : Vec Bool n) (s : Vec R n) (c : R) :
    softmax visible (fun j => s j - c) = softmax visible s := softmax_shift visible s c

/-- Subtracting one number from all biases of each row changes neither the output nor any gradient. -/
theorem bias_row_shift_invariance (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (c : Vec R nQ) (G : Mat R nQ dv) :
    forward p (x.shiftBias c) = forward p x ∧ backward p (x.shiftBias c) G = backward p x G :=
  ⟨forward_shiftBias p x c, backward_shiftBias p x c G⟩

/-- Any disjoint blocks that make up the visible keys, in any order and with any shifts, merge to the output row. -/
theorem online_merge_equals_direct (p : Params R nQ nK) (x : Inputs R nQ nK d dv) (i : Fin nQ)
    (blocks : List (R × Vec Bool nK)) (r : R)
    (disjoint : (blocks.map (·.2)).Pairwise fun a b => ∀ j, ¬ (a j ∧ b j))
    (cover : ∀ j, blocks.any (·.2 j) = p.visible i j) :
    finish (fold (scores p x i) (fun j c => p.multiplier i j * x.value j c)
        (block r (fun _ => false) (scores p x i) fun j c => p.multiplier i j * x.value j c) blocks)
      = forward p x i := fold_forward p x i blocks r disjoint cover

/-- Merging is commutative and associative, whatever the shifts in between: any tree of splits gives the same. -/
theorem online_merge_any_tree (r s t : R) (a b c : Acc R dv) :
    merge r a b = merge r b a ∧ merge r (merge s a b) c = merge r a (merge t b c) :=
  ⟨merge_comm r a b, merge_assoc r s t a b c⟩

/-- Weights may be recomputed from a stored log-sum-exp, as the backward pass of a kernel does. -/
theorem weights_from_log_sum_exp (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {i : Fin nQ} {L : R}
    (h : exp L = denominator (p.visible i) (scores p x i)) (j : Fin nK) :
    weights p x i j = numerator (p.visible i) (fun j => scores p x i j - L) j := softmax_of_logsumexp h j

end Lawful

/-! ### Positive exponentials -/

section Ordered
variable [Field R] [LE R] [LT R] [Std.LawfulOrderLT R] [Std.IsLinearOrder R] [OrderedRing R] [Exp R]
  (pos : ∀ a : R, 0 < exp a) (p : Params R nQ nK) (x : Inputs R nQ nK d dv) {i : Fin nQ} {j : Fin nK}
include pos

/-- The weights of a row that sees a key sum to one. -/
theorem visible_row_sums_to_one (hj : p.visible i j) : sum (weights p x i) = 1 :=
  sum_softmax_of_visible pos hj _

/-- Weights lie between zero and one, and those of visible keys are positive. -/
theorem weights_between_zero_and_one (k : Fin nK) :
    0 ≤ weights p x i k ∧ weights p x i k ≤ 1 ∧ (p.visible i k → 0 < weights p x i k) :=
  ⟨softmax_nonneg pos _ _ k, softmax_le_one pos _ _ k, fun h => softmax_pos pos h _⟩

/-- Values that are one at every visible key give an output of one, where nothing is dropped. -/
theorem unit_values_give_one (hj : p.visible i j) (one : ∀ j, p.visible i j → p.multiplier i j = 1) {c : Fin dv}
    (h : ∀ j, p.visible i j → x.value j c = 1) : forward p x i c = 1 := by
  rw [forward_unit_value p x h, consumed_of_multiplier_one p x one]
  exact sum_softmax_of_visible pos hj _

/-- Where nothing is dropped, an output lies between the least and the greatest visible value. -/
theorem output_in_convex_hull (hj : p.visible i j) (one : ∀ j, p.visible i j → p.multiplier i j = 1) {c : Fin dv} {lo hi : R}
    (h : ∀ j, p.visible i j → lo ≤ x.value j c ∧ x.value j c ≤ hi) :
    lo ≤ forward p x i c ∧ forward p x i c ≤ hi :=
  ⟨le_forward pos p x hj one fun j hj => (h j hj).1, forward_le pos p x hj one fun j hj => (h j hj).2⟩

end Ordered

/-- The rational stand-in for the exponential, over which exact vectors are computed, is positive everywhere. -/
theorem pade_exp_positive (x : Rat) : 0 < padeExp x := padeExp_pos x

/-- The rational stand-in for the hyperbolic tangent belongs to that for the exponential: `(e - 1) / (e + 1)`. -/
theorem pade_tanh_matches_pade_exp (x : Rat) : padeTanh x * (padeExp (2 * x) + 1) = padeExp (2 * x) - 1 :=
  Softcap.padeTanh_eq x

/-- The laws asked of an exponential can be met: they do not contradict each other. -/
theorem exponential_laws_consistent : @LawfulExp Rat _ constantExp := lawful_constantExp

end AttnProofs
