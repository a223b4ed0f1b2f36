"""Calls handed to others: manifests, the gate that reads them, and dot products in place of other scores."""
