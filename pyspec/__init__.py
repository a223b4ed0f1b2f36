"""What an attention kernel must compute, at any precision, with derived error bounds.

Mirrors the Lean specification in spec/ file by file. Needs neither torch nor hypothesis.
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
