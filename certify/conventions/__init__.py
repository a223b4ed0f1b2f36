"""Calling conventions: how a library is handed a call."""
