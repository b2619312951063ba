"""The two ways in which kl-audit says no."""


class UsageError(Exception):
    """The reader asked for something that cannot be done; one line, shown as it is, exit code 2."""


class OracleError(Exception):
    """The exact value could not be certified; never replaced by a guess (KLA9xx)."""


def unknown(kind: str, name: str, known: list[str], more: str = "") -> UsageError:
    """Build the error for a name that is not in a list: what was said, what is known."""
    return UsageError(f"unknown {kind} '{name}'. Known: {', '.join(known)}{more}.")
