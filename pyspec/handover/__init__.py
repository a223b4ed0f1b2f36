"""Calls as manifests, and the gate that reads them."""
