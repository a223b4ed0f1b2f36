"""A correct attention kernel, planted bugs over it, and the tests that must catch them."""
