"""What an attention kernel must compute, at any precision, with derived error bounds.

Mirrors the Lean specification in spec/ file by file. Needs neither torch nor hypothesis.
"""

from attnspec.pyspec.call import AttentionCall, CallError, Dropout, Layout, Scale, Visibility, make_call
from attnspec.pyspec.call_json import call_from_json, call_to_json
from attnspec.pyspec.compiler import compile_visibility
from attnspec.pyspec.evaluate import TENSORS, evaluate, evaluate_jvp
from attnspec.pyspec.gate import call_from_manifest
from attnspec.pyspec.ledger import Ledger, named_ledgers
from attnspec.pyspec.oracle import Judgement, Oracle, bounds
from attnspec.pyspec.trace import trace

__all__ = [
    "TENSORS",
    "AttentionCall",
    "CallError",
    "Dropout",
    "Judgement",
    "Layout",
    "Ledger",
    "Oracle",
    "Scale",
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
