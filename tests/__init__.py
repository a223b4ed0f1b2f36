"""Tests. A package, so that test folders named like the packages under test never shadow them."""
