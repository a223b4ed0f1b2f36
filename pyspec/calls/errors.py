"""What is raised when a call breaks its contract."""


class CallError(ValueError):
    """A call breaks its contract; the message names the field, the value, and what was expected."""


class FamilyError(CallError):
    """A score family's parameter, or a call of that family, breaks its contract; the message names field and mend."""
