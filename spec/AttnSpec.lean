module
public import AttnSpec.Sum
public import AttnSpec.Matrix
public import AttnSpec.Exp
public import AttnSpec.Softmax
public import AttnSpec.Attention
public import AttnSpec.Visibility
public import AttnSpec.Heads
public import AttnSpec.Dropout
public import AttnSpec.Online
public import AttnSpec.Dual
public import AttnSpec.Scale
public import AttnSpec.Sink
public import AttnSpec.Alibi

/-! The definition of masked attention: what a kernel must compute, executable over any scalar.

One noun a file. Nothing here is proved, and no law of arithmetic is assumed; theorems are in `AttnProofs`. -/
