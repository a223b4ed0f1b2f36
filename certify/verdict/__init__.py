"""From rows of results to a verdict, its waivers, and what it does not claim."""
