"""Study notes in code, which no verdict rests on: diagnostics of rows, other normalisers, dropout, scale manifests."""
