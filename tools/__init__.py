"""Scripts of the project: not part of any installed package."""
