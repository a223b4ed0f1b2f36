"""The campaign: from a request over search, reduction and audit to rows of results."""
