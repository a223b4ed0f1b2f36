"""Every divergence in docs/FINDINGS.md is still there, and the suite still finds it."""
