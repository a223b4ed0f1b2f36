/-! `lake lint`: hands over to `tools/lean/gate.py`, which the fallback checker uses as well. -/

set_option autoImplicit false

/-- Runs the source gate; its exit status is ours. -/
def main (_ : List String) : IO UInt32 := do
  let child ← IO.Process.spawn { cmd := "python3", args := #["tools/lean/gate.py"] }
  child.wait
