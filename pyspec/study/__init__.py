"""Study notes in code, which no verdict rests on: row diagnostics, other normalisers, traces written a second time."""
