"""Checking the Lean sources and making the exact vectors. Standard library only."""
