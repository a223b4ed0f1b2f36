import AttnSpec

/-! Exact test vectors: runs the specification over the rationals on calls that it makes up itself, checks the outcome
against the laws that must hold of it, and prints one JSON object a line under a line `@file NAME` for each family.

Rationals print as `"3"` or `"-3/4"`. Inputs are dyadic, so that they are exact in floating point as well. -/

set_option autoImplicit false

namespace Vectors
open AttnSpec AttnSpec.Acc

attribute [local instance] AttnSpec.padeRat AttnSpec.padeTanhRat

/-! ### Printing -/

/-- A rational in quotes. -/
def ratJson (q : Rat) : String :=
  if q.den == 1 then "\"" ++ toString q.num ++ "\"" else "\"" ++ toString q.num ++ "/" ++ toString q.den ++ "\""

/-- A truth value. -/
def boolJson (b : Bool) : String := if b then "true" else "false"

/-- The entries `i`, `i + 1`, … of a list of `n`, with commas between. -/
def entries : (fuel : Nat) → (n i : Nat) → (Nat → String) → String
  | 0, _, _, _ => ""
  | fuel + 1, n, i, f => f i ++ (if i + 1 < n then "," ++ entries fuel n (i + 1) f else "")

/-- A list of `n` entries. -/
def listJson {n : Nat} (f : Fin n → String) : String :=
  "[" ++ entries n n 0 (fun i => if h : i < n then f ⟨i, h⟩ else "") ++ "]"

/-- A vector of rationals. -/
def vecJson {n : Nat} (f : Vec Rat n) : String := listJson fun i => ratJson (f i)

/-- A matrix of rationals, row by row. -/
def matJson {m n : Nat} (A : Mat Rat m n) : String := listJson fun i => vecJson (A i)

/-- A mask, row by row. -/
def maskJson {m n : Nat} (A : Mat Bool m n) : String := listJson fun i => listJson fun j => boolJson (A i j)

/-- A vector of natural numbers. -/
def natsJson {n : Nat} (f : Fin n → Nat) : String := listJson fun i => toString (f i)

/-- A named field and the comma after it. -/
def field (name value : String) : String := "\"" ++ name ++ "\":" ++ value ++ ","

/-- A named field, the last of its object. -/
def last (name value : String) : String := "\"" ++ name ++ "\":" ++ value ++ "}"

/-- A quoted word. -/
def word (s : String) : String := "\"" ++ s ++ "\""

/-! ### Values computed once -/

/-- The entries `i`, `i + 1`, … of a list of `n`, appended to an array. -/
def fill : (fuel : Nat) → (n i : Nat) → (Nat → Rat) → Array Rat → Array Rat
  | 0, _, _, _, a => a
  | fuel + 1, n, i, f, a => if i < n then fill fuel n (i + 1) f (a.push (f i)) else a

/-- A matrix with every entry computed and stored. -/
structure Stored (m n : Nat) where
  /-- The entries, row by row. -/
  data : Array Rat

/-- Computes every entry of a matrix. -/
def store {m n : Nat} (A : Mat Rat m n) : Stored m n :=
  ⟨fill (m * n) (m * n) 0
    (fun t => if h : t / n < m ∧ t % n < n then A ⟨t / n, h.1⟩ ⟨t % n, h.2⟩ else 0) #[]⟩

/-- Reads a stored matrix. -/
def Stored.get {m n : Nat} (s : Stored m n) : Mat Rat m n := fun i j => s.data.getD (i.1 * n + j.1) 0

/-! ### Making calls up -/

/-- Mixes the 64 bits of a number (the finaliser of the SplitMix generator). -/
def mix (x : Nat) : Nat :=
  let a := (x + 0x9E3779B97F4A7C15) % 0x10000000000000000
  let b := (a ^^^ (a >>> 30)) * 0xBF58476D1CE4E5B9 % 0x10000000000000000
  let c := (b ^^^ (b >>> 27)) * 0x94D049BB133111EB % 0x10000000000000000
  c ^^^ (c >>> 31)

/-- A number that depends on its arguments in no simple way. -/
def hash (seed tag i j : Nat) : Nat := mix (mix (mix (mix seed + tag) + i) + j)

/-- Small dyadic numbers, zero among them. -/
def small (h : Nat) : Rat :=
  match h % 7 with
  | 0 => 0
  | 1 => 1
  | 2 => -1
  | 3 => mkRat 1 2
  | 4 => mkRat (-1) 2
  | 5 => 2
  | _ => mkRat 3 2

/-- A matrix of small numbers. -/
def smallMat (seed tag : Nat) {m n : Nat} : Mat Rat m n := fun i j => small (hash seed tag i.1 j.1)

/-- A visibility relation as data. -/
inductive Family where
  /-- `Visibility.full`. -/
  | full
  /-- `Visibility.empty`. -/
  | empty
  /-- Each pair on its own, about half of them visible. -/
  | random (seed : Nat)
  /-- One key visible to each query. -/
  | single (seed : Nat)
  /-- `Visibility.causal`. -/
  | causal (offset : Int)
  /-- `Visibility.upperLeft`. -/
  | upperLeft
  /-- `Visibility.lowerRight`. -/
  | lowerRight
  /-- `Visibility.window`. -/
  | window (offset : Int) (left right : Nat)
  /-- `Visibility.prefix`. -/
  | prefixed (length : Nat) (offset : Int)
  /-- `Visibility.keyPadding` with these keys valid: bit `j` of the number for key `j`. -/
  | padding (bits : Nat)
  /-- `Visibility.segments`, a segment number every `size` positions. -/
  | segments (querySize keySize : Nat)
  /-- `Visibility.compose`. -/
  | compose (a b : Family)

/-- Whether bit `j` is set. -/
def bit (bits j : Nat) : Bool := bits / 2 ^ j % 2 == 1

/-- The relation that the data stands for. -/
def Family.eval {nQ nK : Nat} : Family → Mat Bool nQ nK
  | .full => Visibility.full
  | .empty => Visibility.empty
  | .random seed => fun i j => hash seed 77 i.1 j.1 % 2 == 0
  | .single seed => fun i j => hash seed 78 i.1 0 % nK == j.1
  | .causal offset => Visibility.causal offset
  | .upperLeft => Visibility.upperLeft
  | .lowerRight => Visibility.lowerRight
  | .window offset left right => Visibility.window offset left right
  | .prefixed length offset => Visibility.prefix length offset
  | .padding bits => Visibility.keyPadding fun j => bit bits j.1
  | .segments q k => Visibility.segments (fun i => i.1 / q) (fun j => j.1 / k)
  | .compose a b => Visibility.compose a.eval b.eval

/-- The data as JSON; arguments as the constructor takes them. -/
def Family.json (nQ nK : Nat) : Family → String
  | .full => "{" ++ last "kind" (word "full")
  | .empty => "{" ++ last "kind" (word "empty")
  | .random _ => "{" ++ last "kind" (word "table")
  | .single _ => "{" ++ last "kind" (word "table")
  | .causal offset => "{" ++ field "kind" (word "causal") ++ last "offset" (toString offset)
  | .upperLeft => "{" ++ last "kind" (word "upperLeft")
  | .lowerRight => "{" ++ last "kind" (word "lowerRight")
  | .window offset left right => "{" ++ field "kind" (word "window") ++ field "offset" (toString offset)
      ++ field "left" (toString left) ++ last "right" (toString right)
  | .prefixed length offset => "{" ++ field "kind" (word "prefix") ++ field "length" (toString length)
      ++ last "offset" (toString offset)
  | .padding bits => "{" ++ field "kind" (word "keyPadding")
      ++ last "valid" (listJson fun j : Fin nK => boolJson (bit bits j.1))
  | .segments q k => "{" ++ field "kind" (word "segments")
      ++ field "query_segment" (natsJson fun i : Fin nQ => i.1 / q)
      ++ last "key_segment" (natsJson fun j : Fin nK => j.1 / k)
  | .compose a b => "{" ++ field "kind" (word "compose")
      ++ last "parts" ("[" ++ a.json nQ nK ++ "," ++ b.json nQ nK ++ "]")

/-- A call as data: sizes, mask, and how to fill the rest. -/
structure Call where
  /-- What the call is there for. -/
  note : String
  /-- Fills the tensors. -/
  seed : Nat
  /-- Number of queries. -/
  nQ : Nat
  /-- Number of keys. -/
  nK : Nat
  /-- Width of queries and keys. -/
  d : Nat
  /-- Width of values. -/
  dv : Nat
  /-- The mask. -/
  family : Family
  /-- The scale. -/
  scale : Rat
  /-- Whether the bias differs from zero. -/
  biased : Bool
  /-- Whether weights are dropped. -/
  dropped : Bool
  /-- Whether all queries are zero, so that scores tie. -/
  tied : Bool

/-- The inputs of a call; `tag` tells tensors of one call apart. -/
def Call.inputs (c : Call) (tag : Nat) : Inputs Rat c.nQ c.nK c.d c.dv where
  query := (store (if c.tied then fun _ _ => 0 else smallMat c.seed (tag + 1))).get
  key := (store (smallMat c.seed (tag + 2))).get
  value := (store (smallMat c.seed (tag + 3))).get
  bias := (store (if c.biased then smallMat c.seed (tag + 4) else fun _ _ => 0)).get

/-- The multiplier of a call: ones, or a draw with probability one half. -/
def Call.multiplier (c : Call) : Mat Rat c.nQ c.nK :=
  if c.dropped then AttnSpec.multiplier (fun i j => hash c.seed 5 i.1 j.1 % 3 != 0) (mkRat 1 2) else Dropout.off

/-- The constants of a call. -/
def Call.params (c : Call) : Params Rat c.nQ c.nK := ⟨c.scale, c.family.eval, c.multiplier⟩

/-- Input tensors as fields. -/
def inputsJson {nQ nK d dv : Nat} (x : Inputs Rat nQ nK d dv) : String :=
  "{" ++ field "query" (matJson x.query) ++ field "key" (matJson x.key) ++ field "value" (matJson x.value)
    ++ last "bias" (matJson x.bias)

/-- Sizes, mask and constants of a call as fields. -/
def Call.headJson (c : Call) : String :=
  field "note" (word c.note) ++ field "sizes" ("{" ++ field "nQ" (toString c.nQ) ++ field "nK" (toString c.nK)
    ++ field "d" (toString c.d) ++ last "dv" (toString c.dv))
  ++ field "visibility" (c.family.json c.nQ c.nK)
  ++ field "visible" (maskJson c.params.visible)
  ++ field "scale" (ratJson c.scale) ++ field "multiplier" (matJson c.params.multiplier)

/-- Fails the run where two numbers that a theorem makes equal are not. -/
def demand (claim : String) (a b : Rat) : IO Unit :=
  if a == b then pure () else throw (IO.userError ("law broken by the executable: " ++ claim))

/-- Runs a check on the numbers below `n`. -/
def forAll : (n : Nat) → (Nat → IO Unit) → IO Unit
  | 0, _ => pure ()
  | n + 1, f => do forAll n f; f n

/-- Fails the run where two matrices that a theorem makes equal differ. -/
def demandMat (claim : String) {m n : Nat} (A B : Mat Rat m n) : IO Unit :=
  forAll m fun i => forAll n fun j =>
    if h : i < m ∧ j < n then demand claim (A ⟨i, h.1⟩ ⟨j, h.2⟩) (B ⟨i, h.1⟩ ⟨j, h.2⟩) else pure ()

/-- One call of one head: everything that the specification says of it. -/
def Call.emit (c : Call) : IO Unit := do
  let p := c.params
  let x := c.inputs 10
  let dx := c.inputs 20
  let G : Mat Rat c.nQ c.dv := (store (smallMat c.seed 30)).get
  let out := (store (forward p x)).get
  let tangent := (store (jvp p x dx)).get
  let g := backward p x G
  let gb := (store g.bias).get
  let gv := (store g.value).get
  let gq := (store g.query).get
  let gk := (store g.key).get
  demand "jvp_backward_pairing" (frob tangent G)
    (frob dx.query gq + frob dx.key gk + frob dx.value gv + frob dx.bias gb)
  if c.nQ * c.nK ≤ 8 then
    demandMat "forward_over_duals" tangent fun i k => (forward (Dual.params p) (Dual.inputs x dx) i k).eps
  IO.println ("{" ++ c.headJson ++ field "inputs" (inputsJson x) ++ field "tangent" (inputsJson dx)
    ++ field "output_gradient" (matJson G)
    ++ field "scores" (matJson (scores p x)) ++ field "weights" (matJson (weights p x))
    ++ field "output" (matJson out) ++ field "output_tangent" (matJson tangent)
    ++ last "gradient" (inputsJson ⟨gq, gk, gv, gb⟩))

/-! ### One head -/

/-- Runs a list of actions. -/
def runAll : List (IO Unit) → IO Unit
  | [] => pure ()
  | a :: as => do a; runAll as

/-- One call over each family of masks that fits its sizes. -/
def families (nQ nK d dv seed : Nat) (scale : Rat) (biased dropped : Bool) : List Call :=
  let c (note : String) (k : Nat) (f : Family) : Call :=
    ⟨note, seed * 100 + k, nQ, nK, d, dv, f, scale, biased, dropped, false⟩
  [c "full" 1 .full, c "no query sees a key" 2 .empty, c "any pairs" 3 (.random seed),
   c "one key a query" 4 (.single seed), c "causal" 5 (.causal 0), c "causal, one ahead" 6 (.causal 1),
   c "causal, one behind: the first row is empty" 7 (.causal (-1)), c "upper left" 8 .upperLeft,
   c "lower right" 9 .lowerRight, c "window" 10 (.window 0 1 0), c "window, both sides" 11 (.window 1 1 1),
   c "prefix" 12 (.prefixed 1 0), c "padded keys" 13 (.padding 5), c "segments" 14 (.segments 2 2),
   c "causal over padded keys" 15 (.compose (.causal 1) (.padding 6)),
   c "lower right within segments" 16 (.compose .lowerRight (.segments 1 2))]

/-- Calls of one head that no family list makes. -/
def special : List Call :=
  [⟨"all scores equal", 901, 3, 4, 2, 2, .full, 1, false, false, true⟩,
   ⟨"all visible scores equal, some hidden", 902, 3, 4, 2, 2, .random 9, 1, false, false, true⟩,
   ⟨"ties broken by the bias alone", 903, 2, 3, 2, 2, .full, 1, true, false, true⟩,
   ⟨"scale zero", 904, 2, 3, 2, 2, .full, 0, false, false, false⟩,
   ⟨"negative scale", 905, 2, 3, 2, 1, .full, mkRat (-1) 2, true, false, false⟩,
   ⟨"large scores", 906, 2, 3, 2, 2, .full, 32, false, false, false⟩,
   ⟨"no queries", 907, 0, 3, 2, 2, .full, 1, true, false, false⟩,
   ⟨"no keys", 908, 3, 0, 2, 2, .full, 1, true, false, false⟩,
   ⟨"width zero", 909, 2, 3, 0, 2, .full, 1, true, false, false⟩,
   ⟨"value width zero", 910, 2, 3, 2, 0, .full, 1, true, false, false⟩,
   ⟨"one query, many keys", 911, 1, 6, 2, 2, .lowerRight, mkRat 1 2, false, false, false⟩,
   ⟨"many queries, one key", 912, 5, 1, 2, 3, .random 4, mkRat 1 2, true, true, false⟩,
   ⟨"one of everything", 913, 1, 1, 1, 1, .full, 1, true, false, false⟩,
   ⟨"everything dropped at random", 914, 3, 3, 2, 2, .causal 0, mkRat 1 2, true, true, false⟩]

/-- Emits a list of calls. -/
def emitCalls : List Call → IO Unit
  | [] => pure ()
  | c :: cs => do c.emit; emitCalls cs

/-- The family `attention`. -/
def attentionFile : IO Unit := do
  IO.println "@file attention"
  emitCalls (families 2 3 2 1 1 (mkRat 1 2) false false)
  emitCalls (families 3 2 1 2 2 1 true false)
  emitCalls (families 3 3 2 2 3 (mkRat 1 2) false true)
  emitCalls (families 3 4 2 3 4 (mkRat 1 2) true true)
  emitCalls (families 2 5 2 1 5 (mkRat 1 2) true false)
  emitCalls (families 4 3 1 2 6 (mkRat (-1) 2) false true)
  emitCalls special

/-! ### Softcap -/

/-- One call of one head with its scores capped. -/
def softcapCase (cap : Rat) (c : Call) : IO Unit := do
  let p := c.params
  let x := c.inputs 10
  let dx := c.inputs 20
  let G : Mat Rat c.nQ c.dv := (store (smallMat c.seed 30)).get
  let tangent := (store (Softcap.jvp cap p x dx)).get
  let g := Softcap.backward cap p x G
  let gb := (store g.bias).get
  let gv := (store g.value).get
  let gq := (store g.query).get
  let gk := (store g.key).get
  demand "softcap_jvp_backward_pairing" (frob tangent G)
    (frob dx.query gq + frob dx.key gk + frob dx.value gv + frob dx.bias gb)
  demandMat "softcap_forward_over_duals" tangent fun i k =>
    (Softcap.forward (Dual.const cap) (Dual.params p) (Dual.inputs x dx) i k).eps
  IO.println ("{" ++ c.headJson ++ field "softcap" (ratJson cap) ++ field "inputs" (inputsJson x)
    ++ field "tangent" (inputsJson dx) ++ field "output_gradient" (matJson G)
    ++ field "scores" (matJson (Softcap.scores cap p x)) ++ field "weights" (matJson (Softcap.weights cap p x))
    ++ field "output" (matJson (Softcap.forward cap p x)) ++ field "output_tangent" (matJson tangent)
    ++ last "gradient" (inputsJson ⟨gq, gk, gv, gb⟩))

/-- Caps a list of calls. -/
def softcapCases (cap : Rat) : List Call → IO Unit
  | [] => pure ()
  | c :: cs => do softcapCase cap c; softcapCases cap cs

/-- The family `softcap`. -/
def softcapFile : IO Unit := do
  IO.println "@file softcap"
  softcapCases 2 (families 2 3 2 1 7 1 true false)
  softcapCases (mkRat 1 2) (families 2 2 1 2 8 2 true true)

/-! ### The attention sink -/

/-- One call of one head beside a sink: its extension, and what the extension gives. -/
def sinkCase (logit : Rat) (c : Call) : IO Unit := do
  let p := c.params.extended
  let x := (c.inputs 10).extended logit
  let G : Mat Rat c.nQ c.dv := (store (smallMat c.seed 30)).get
  let w := (store (weights p x)).get
  let out := (store (forward p x)).get
  let g := backward p x G
  let gb := (store g.bias).get
  demandMat "sink_output_over_real_keys" out fun i k =>
    sum fun j : Fin c.nK => consumed p x i (Sink.real j) * (c.inputs 10).value j k
  demandMat "sink_takes_mass" (fun i (_ : Fin 1) => sum fun j : Fin c.nK => w i (Sink.real j)) fun i _ =>
    1 - w i Sink.column
  demandMat "sink_gradient_is_minus_mass_times_delta" (fun i (_ : Fin 1) => gb i Sink.column) fun i _ =>
    -(w i Sink.column * dot (G i) (out i))
  IO.println ("{" ++ c.headJson ++ field "logit" (ratJson logit) ++ field "inputs" (inputsJson (c.inputs 10))
    ++ field "output_gradient" (matJson G)
    ++ field "extended" ("{" ++ field "visible" (maskJson p.visible) ++ field "multiplier" (matJson p.multiplier)
      ++ last "inputs" (inputsJson x))
    ++ field "weights" (matJson w) ++ field "output" (matJson out)
    ++ last "gradient" (inputsJson ⟨(store g.query).get, (store g.key).get, (store g.value).get, gb⟩))

/-- A sink beside each of a list of calls. -/
def sinkCases (logit : Rat) : List Call → IO Unit
  | [] => pure ()
  | c :: cs => do sinkCase logit c; sinkCases logit cs

/-- The family `sink`. -/
def sinkFile : IO Unit := do
  IO.println "@file sink"
  sinkCases (mkRat 3 2) (families 2 3 2 1 15 1 true false)
  sinkCases (-2) (families 3 2 1 2 16 (mkRat 1 2) true true)

/-! ### ALiBi -/

/-- One call of one head with a slope, capped or not; the slope moves along with the other inputs. -/
def alibiCase (cap : Option Rat) (slope move : Rat) (c : Call) : IO Unit := do
  let p := c.params
  let plain := c.inputs 10
  let along := c.inputs 20
  let x := { plain with bias := (store (plain.sloped slope).bias).get }
  let dx := { along with bias := (store (along.sloped move).bias).get }
  let G : Mat Rat c.nQ c.dv := (store (smallMat c.seed 30)).get
  let s := (store (match cap with | none => scores p x | some cap => Softcap.scores cap p x)).get
  let w := (store (softmaxRows p.visible s)).get
  let out := (store (match cap with | none => forward p x | some cap => Softcap.forward cap p x)).get
  let tangent := (store (match cap with | none => jvp p x dx | some cap => Softcap.jvp cap p x dx)).get
  let g := match cap with | none => backward p x G | some cap => Softcap.backward cap p x G
  let gb := (store g.bias).get
  let gv := (store g.value).get
  let gq := (store g.query).get
  let gk := (store g.key).get
  let gs := Alibi.slopeGrad gb
  demand "alibi_slope_gradient_is_weighted_score_gradient" (frob tangent G)
    (frob along.query gq + frob along.key gk + frob along.value gv + frob along.bias gb + move * gs)
  if cap.isNone && c.nQ * c.nK ≤ 6 then
    demandMat "alibi_forward_over_duals" tangent fun i k =>
      (forward (Dual.params p) ((Dual.inputs plain along).sloped ⟨slope, move⟩) i k).eps
  IO.println ("{" ++ c.headJson ++ (match cap with | none => "" | some cap => field "softcap" (ratJson cap))
    ++ field "slope" (ratJson slope) ++ field "slope_tangent" (ratJson move)
    ++ field "distances" (listJson fun i : Fin c.nQ => natsJson fun j : Fin c.nK => Alibi.distance i j)
    ++ field "inputs" (inputsJson plain) ++ field "tangent" (inputsJson along)
    ++ field "output_gradient" (matJson G) ++ field "sloped_bias" (matJson x.bias)
    ++ field "scores" (matJson s) ++ field "weights" (matJson w)
    ++ field "output" (matJson out) ++ field "output_tangent" (matJson tangent)
    ++ field "gradient" (inputsJson ⟨gq, gk, gv, gb⟩) ++ last "slope_gradient" (ratJson gs))

/-- A slope for each of a list of calls. -/
def alibiCases (cap : Option Rat) (slope move : Rat) : List Call → IO Unit
  | [] => pure ()
  | c :: cs => do alibiCase cap slope move c; alibiCases cap slope move cs

/-- The family `alibi`. -/
def alibiFile : IO Unit := do
  IO.println "@file alibi"
  alibiCases none (mkRat 1 2) 1 (families 2 3 2 1 17 1 true false)
  alibiCases none 1 (mkRat (-3) 2) (families 3 2 1 2 18 (mkRat 1 2) true true)
  alibiCases (some 2) (mkRat 1 4) (mkRat 1 2) (families 2 2 1 2 19 1 true false)
  alibiCases none (-1) 2
    [⟨"no queries", 921, 0, 3, 2, 2, .full, 1, true, false, false⟩,
     ⟨"no keys", 922, 3, 0, 2, 2, .full, 1, true, false, false⟩,
     ⟨"one query, many keys", 923, 1, 6, 2, 2, .lowerRight, mkRat 1 2, false, false, false⟩,
     ⟨"many queries, one key", 924, 5, 1, 2, 3, .random 4, mkRat 1 2, true, true, false⟩]

/-! ### Visibility -/

/-- One relation on its own. -/
def visibilityCase (nQ nK : Nat) (f : Family) : IO Unit :=
  IO.println ("{" ++ field "nQ" (toString nQ) ++ field "nK" (toString nK) ++ field "visibility" (f.json nQ nK)
    ++ last "visible" (maskJson (f.eval : Mat Bool nQ nK)))

/-- Every constructor on one shape. -/
def visibilityCases (nQ nK : Nat) : IO Unit :=
  runAll [visibilityCase nQ nK .full, visibilityCase nQ nK .empty, visibilityCase nQ nK (.causal 0),
    visibilityCase nQ nK (.causal 2), visibilityCase nQ nK (.causal (-2)), visibilityCase nQ nK .upperLeft,
    visibilityCase nQ nK .lowerRight, visibilityCase nQ nK (.window 0 0 0), visibilityCase nQ nK (.window (-1) 1 2),
    visibilityCase nQ nK (.window 2 2 0), visibilityCase nQ nK (.prefixed 0 0), visibilityCase nQ nK (.prefixed 2 (-1)),
    visibilityCase nQ nK (.prefixed 9 0), visibilityCase nQ nK (.padding 0), visibilityCase nQ nK (.padding 11),
    visibilityCase nQ nK (.segments 2 3), visibilityCase nQ nK (.compose (.window 1 2 1) (.padding 29)),
    visibilityCase nQ nK (.compose (.segments 2 2) (.causal 0))]

/-- The family `visibility`. -/
def visibilityFile : IO Unit := do
  IO.println "@file visibility"
  runAll [visibilityCases 2 5, visibilityCases 5 2, visibilityCases 4 4, visibilityCases 1 3, visibilityCases 0 2]

/-! ### Heads -/

/-- The inputs of all heads, made up like those of one. -/
def headInputs (seed tag hQ hK nQ nK d dv : Nat) : HeadInputs Rat hQ hK nQ nK d dv where
  query := fun h => smallMat seed (tag + 10 * h.1 + 1)
  key := fun h => smallMat seed (tag + 10 * h.1 + 2)
  value := fun h => smallMat seed (tag + 10 * h.1 + 3)
  bias := fun h => smallMat seed (tag + 10 * h.1 + 4)

/-- All heads' tensors as fields. -/
def headInputsJson {hQ hK nQ nK d dv : Nat} (x : HeadInputs Rat hQ hK nQ nK d dv) : String :=
  "{" ++ field "query" (listJson fun h => matJson (x.query h)) ++ field "key" (listJson fun h => matJson (x.key h))
    ++ field "value" (listJson fun h => matJson (x.value h)) ++ last "bias" (listJson fun h => matJson (x.bias h))

/-- One call over several heads. -/
def headsCase (note : String) (seed hQ hK nQ nK d dv : Nat) (family : Family) (headMap : Fin hQ → Fin hK) :
    IO Unit := do
  let p : Fin hQ → Params Rat nQ nK := fun _ => ⟨mkRat 1 2, family.eval, Dropout.off⟩
  let x := headInputs seed 100 hQ hK nQ nK d dv
  let dx := headInputs seed 200 hQ hK nQ nK d dv
  let G : Fin hQ → Mat Rat nQ dv := fun h => smallMat seed (300 + h.1)
  let g := Heads.backward headMap p x G
  IO.println ("{" ++ field "note" (word note) ++ field "query_heads" (toString hQ) ++ field "key_heads" (toString hK)
    ++ field "sizes" ("{" ++ field "nQ" (toString nQ) ++ field "nK" (toString nK)
      ++ field "d" (toString d) ++ last "dv" (toString dv))
    ++ field "head_map" (natsJson fun h => (headMap h).1)
    ++ field "visibility" (family.json nQ nK) ++ field "visible" (maskJson (family.eval : Mat Bool nQ nK))
    ++ field "scale" (ratJson (mkRat 1 2))
    ++ field "inputs" (headInputsJson x) ++ field "tangent" (headInputsJson dx)
    ++ field "output_gradient" (listJson fun h => matJson (G h))
    ++ field "output" (listJson fun h => matJson (Heads.forward headMap p x h))
    ++ field "output_tangent" (listJson fun h => matJson (Heads.jvp headMap p x dx h))
    ++ last "gradient" (headInputsJson g))

/-- The family `heads`. -/
def headsFile : IO Unit := do
  IO.println "@file heads"
  headsCase "one shared head" 1 2 1 2 2 1 2 .full (grouped 2 1 ⟨2, rfl⟩)
  headsCase "two groups of two" 2 4 2 2 2 1 1 (.causal 0) (grouped 4 2 ⟨2, rfl⟩)
  headsCase "two groups of three" 3 6 2 1 2 2 1 .full (grouped 6 2 ⟨3, rfl⟩)
  headsCase "a head of its own each" 4 3 3 2 3 1 2 .lowerRight (grouped 3 3 ⟨1, rfl⟩)
  headsCase "unequal groups" 5 3 2 2 2 2 1 (.random 3) (fun h => if h.1 < 1 then 0 else 1)
  headsCase "heads out of order" 6 4 2 1 3 1 2 .full (fun h => if h.1 % 2 == 0 then 1 else 0)
  headsCase "a shared head that nothing reads" 7 2 3 2 2 1 1 .full (fun _ => 1)
  headsCase "empty rows" 8 4 2 2 3 1 1 (.causal (-1)) (grouped 4 2 ⟨2, rfl⟩)

/-! ### Online -/

/-- Partial sums as fields. -/
def accJson {dv : Nat} (a : Acc Rat dv) : String :=
  "{" ++ field "shift" (ratJson a.shift) ++ field "mass" (ratJson a.mass) ++ last "out" (vecJson a.out)

/-- One split of a row of `nK` keys: key `j` belongs to block `part j`; blocks are merged in the order of numbers. -/
def onlineCase (note : String) (seed nK dv blocks : Nat) (shared : Bool) (part : Nat → Nat) : IO Unit := do
  let s : Vec Rat nK := fun j => small (hash seed 1 0 j.1)
  let v : Mat Rat nK dv := smallMat seed 2
  let seen : Vec Bool nK := fun j => hash seed 3 0 j.1 % 4 != 0
  let shiftOf (t : Nat) : Rat := if shared then mkRat 1 2 else small (hash seed 4 0 t)
  let mask (t : Nat) : Vec Bool nK := fun j => seen j && part j.1 == t
  let first := block (shiftOf 0) (mask 0) s v
  let rest : List (Rat × Vec Bool nK) :=
    match blocks with
    | 0 => []
    | 1 => []
    | 2 => [(shiftOf 1, mask 1)]
    | 3 => [(shiftOf 1, mask 1), (shiftOf 2, mask 2)]
    | _ => [(shiftOf 1, mask 1), (shiftOf 2, mask 2), (shiftOf 3, mask 3)]
  let total := fold s v first rest
  let alone (t : Nat) : Acc Rat dv := block (shiftOf t) (mask t) s v
  IO.println ("{" ++ field "note" (word note) ++ field "scores" (vecJson s) ++ field "value" (matJson v)
    ++ field "visible" (listJson fun j => boolJson (seen j))
    ++ field "blocks" ("[" ++ entries blocks blocks 0 (fun t => "{" ++ field "shift" (ratJson (shiftOf t))
        ++ field "visible" (listJson fun j => boolJson (mask t j)) ++ last "acc" (accJson (alone t))) ++ "]")
    ++ field "merged" (accJson total)
    ++ field "merged_pair" (accJson (merge (shiftOf 7) (alone 0) (alone 1)))
    ++ field "merged_pair_shift" (ratJson (shiftOf 7))
    ++ last "output" (vecJson (finish total)))

/-- The splits of one row. -/
def onlineCases (nK dv seed : Nat) : IO Unit := do
  onlineCase "all keys in one block" (seed + 1) nK dv 1 true (fun _ => 0)
  onlineCase "two halves, one shift" (seed + 2) nK dv 2 true (fun j => if j < nK / 2 then 0 else 1)
  onlineCase "two halves, a shift each" (seed + 3) nK dv 2 false (fun j => if j < nK / 2 then 0 else 1)
  onlineCase "every other key" (seed + 4) nK dv 2 false (fun j => j % 2)
  onlineCase "last keys first" (seed + 5) nK dv 3 false (fun j => 2 - j % 3)
  onlineCase "first block empty" (seed + 6) nK dv 2 false (fun _ => 1)
  onlineCase "three blocks, the middle one empty" (seed + 7) nK dv 3 false (fun j => if j < 2 then 0 else 2)
  onlineCase "four blocks" (seed + 8) nK dv 4 false (fun j => j % 4)

/-- The family `online`. -/
def onlineFile : IO Unit := do
  IO.println "@file online"
  runAll [onlineCases 4 2 0, onlineCases 5 1 10, onlineCases 1 2 20, onlineCases 6 1 30]

/-! ### Packing -/

/-- Two problems, and the two laid end to end. -/
def packingCase (a b : Call) (hd : b.d = a.d) (hv : b.dv = a.dv) : IO Unit := do
  let x : Inputs Rat a.nQ a.nK a.d a.dv := a.inputs 10
  let x' : Inputs Rat b.nQ b.nK a.d a.dv := hd ▸ hv ▸ b.inputs 10
  let G : Mat Rat a.nQ a.dv := smallMat a.seed 30
  let G' : Mat Rat b.nQ a.dv := smallMat b.seed 30
  let p := a.params.pack b.params
  let y := x.pack x'
  let H := append G G'
  let out := (store (forward p y)).get
  demandMat "packed_equals_separate" out (append (forward a.params x) (forward b.params x'))
  IO.println ("{" ++ field "note" (word (a.note ++ " then " ++ b.note))
    ++ field "query_lengths" ("[" ++ toString a.nQ ++ "," ++ toString b.nQ ++ "]")
    ++ field "key_lengths" ("[" ++ toString a.nK ++ "," ++ toString b.nK ++ "]")
    ++ field "scale" (ratJson a.scale)
    ++ field "visible" (maskJson p.visible) ++ field "multiplier" (matJson p.multiplier)
    ++ field "inputs" (inputsJson y) ++ field "output_gradient" (matJson H)
    ++ field "output" (matJson out) ++ last "gradient" (inputsJson (backward p y H)))

/-- A small call for packing. -/
def part (note : String) (seed nQ nK : Nat) (family : Family) (dropped : Bool) : Call :=
  ⟨note, seed, nQ, nK, 1, 2, family, mkRat 1 2, true, dropped, false⟩

/-- The family `packing`. -/
def packingFile : IO Unit := do
  IO.println "@file packing"
  packingCase (part "full" 1 2 2 .full false) (part "full" 2 1 3 .full false) rfl rfl
  packingCase (part "causal" 3 2 2 .upperLeft false) (part "causal" 4 2 2 .upperLeft false) rfl rfl
  packingCase (part "lower right" 5 1 3 .lowerRight true) (part "lower right" 6 2 1 .lowerRight false) rfl rfl
  packingCase (part "empty" 7 2 2 .empty false) (part "full" 8 2 2 .full true) rfl rfl
  packingCase (part "no queries" 9 0 2 .full false) (part "full" 10 2 2 .full false) rfl rfl
  packingCase (part "full" 11 2 2 .full false) (part "no keys" 12 1 0 .full false) rfl rfl

/-! ### Dropout, scale, dual numbers, the stand-in -/

/-- The family `dropout`. -/
def dropoutFile : IO Unit := do
  IO.println "@file dropout"
  forAll 6 fun t => do
    let probability : Rat :=
      match t with
      | 0 => 0
      | 1 => mkRat 1 2
      | 2 => mkRat 3 4
      | 3 => mkRat 7 8
      | 4 => mkRat 1 2
      | _ => mkRat 15 16
    let keep : Mat Bool 2 3 := fun i j => hash t 6 i.1 j.1 % 3 != 0
    IO.println ("{" ++ field "probability" (ratJson probability) ++ field "keep" (maskJson keep)
      ++ last "multiplier" (matJson (multiplier keep probability)))

/-- The family `scale`. -/
def scaleFile : IO Unit := do
  IO.println "@file scale"
  forAll 6 fun t => do
    let a := small (t + 1)
    let b : Rat := mkRat 1 2
    let query : Mat Rat 2 2 := smallMat t 1
    let key : Mat Rat 3 2 := smallMat t 2
    IO.println ("{" ++ field "left" (ratJson a) ++ field "right" (ratJson b) ++ field "query" (matJson query)
      ++ field "key" (matJson key) ++ field "on_scores" (matJson (Scale.onScores (a * b) query key))
      ++ field "on_query" (matJson (Scale.onQuery (a * b) query key))
      ++ field "on_key" (matJson (Scale.onKey (a * b) query key))
      ++ last "split" (matJson (Scale.split a b query key)))

/-- A dual number as fields. -/
def dualJson (x : Dual Rat) : String := "{" ++ field "re" (ratJson x.re) ++ last "eps" (ratJson x.eps)

/-- The family `dual`. -/
def dualFile : IO Unit := do
  IO.println "@file dual"
  forAll 24 fun t => do
    let x : Dual Rat := ⟨small (hash t 1 0 0), small (hash t 2 0 0)⟩
    let y : Dual Rat := ⟨small (hash t 3 0 0), small (hash t 4 0 0)⟩
    IO.println ("{" ++ field "x" (dualJson x) ++ field "y" (dualJson y) ++ field "add" (dualJson (x + y))
      ++ field "sub" (dualJson (x - y)) ++ field "mul" (dualJson (x * y)) ++ field "inv" (dualJson x⁻¹)
      ++ last "exp" (dualJson (Exp.exp x)))

/-- The family `exp`. -/
def expFile : IO Unit := do
  IO.println "@file exp"
  forAll 24 fun t => do
    let x : Rat := mkRat ((t : Int) * 3 - 30) 4
    IO.println ("{" ++ field "x" (ratJson x) ++ field "exp" (ratJson (padeExp x)) ++ last "tanh" (ratJson (padeTanh x)))

/-- Prints every family. -/
def all : IO Unit := do
  attentionFile
  softcapFile
  sinkFile
  alibiFile
  visibilityFile
  headsFile
  onlineFile
  packingFile
  dropoutFile
  scaleFile
  dualFile
  expFile
  IO.println "@end"

end Vectors

/-- Prints every family; the run fails where a law is broken. -/
def main : IO Unit := Vectors.all
