"""The call as data: the record, its contract, its JSON, its number formats, and its masks."""
