"""The oracle: ledgers, derived error bounds, rigorous enclosures, judgements, and traces."""
