"""What an attention kernel must compute, at any precision, with derived error bounds.

The files of this folder are the spec. These mirror spec/AttnSpec, file by file:

    arrays        sums, matrices and exp in any number system    Sum, Matrix, Exp
    softmax       softmax of rows over visible keys, centring    Softmax
    attention     forward, its derivative, and the transpose     Attention
    visibility    which query may attend to which key            Visibility
    heads         grouped heads                                  Heads
    scale         the four places of the scale                   Scale
    dropout       the multiplier of weights                      Dropout
    sink          an extra logit that takes mass                 Sink
    online        attention in pieces, and their merge           Online
    dual          dual numbers                                   Dual

and these say what Lean leaves open or does for one head:

    domain        what the spec needs of a number system
    scores        the families of scores beside dot products; lengths: which vectors have no direction
    evaluate      a whole call, all heads at once

Beside the spec stand calls/ (the call as data, formats, masks), domains/ (number systems), oracle/ (ledgers, bounds,
enclosures, judgements, traces), handover/ (manifests, and calls handed to other kernels) and study/ (notes in code
that no verdict rests on). Nothing here needs torch or hypothesis.
"""

from attnspec.pyspec.calls.call import AttentionCall, CallError, Dropout, Layout, Visibility, make_call
from attnspec.pyspec.calls.json import call_from_json, call_to_json
from attnspec.pyspec.calls.masks.compiler import compile_visibility
from attnspec.pyspec.evaluate import TENSORS, evaluate, evaluate_jvp
from attnspec.pyspec.handover.gate import call_from_manifest
from attnspec.pyspec.oracle.judgement import Judgement, Oracle, bounds
from attnspec.pyspec.oracle.ledger import Ledger, named_ledgers
from attnspec.pyspec.oracle.trace import trace

__all__ = [
    "TENSORS",
    "AttentionCall",
    "CallError",
    "Dropout",
    "Judgement",
    "Layout",
    "Ledger",
    "Oracle",
    "Visibility",
    "bounds",
    "call_from_json",
    "call_from_manifest",
    "call_to_json",
    "compile_visibility",
    "evaluate",
    "evaluate_jvp",
    "make_call",
    "named_ledgers",
    "trace",
]
