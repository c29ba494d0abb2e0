"""Why figures miss, as far as it was found out: for each study (regular expression on "method measure", reason)."""

__all__ = ["REASONS"]

REASONS: dict[str, tuple[tuple[str, str], ...]] = {}
