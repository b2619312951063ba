"""``kl-audit backends``: what can be audited here, and why what cannot, cannot."""

from __future__ import annotations

import typer


def command() -> None:
    """Print the back ends with versions, modes, devices, flush-to-zero, and reasons."""
    from kl_audit.backends import BACKENDS, Unavailable
    from kl_audit.formats import FORMATS
    from kl_audit.ftz import flushing

    for backend in BACKENDS.values():
        try:
            versions = ", ".join(f"{n} {v}" for n, v in backend.versions().items())
            devices = backend.devices()
        except Unavailable as reason:
            typer.echo(f"{backend.name}: not available: {reason}")
            continue
        typer.echo(f"{backend.name}: {versions}; devices: {', '.join(devices)}")
        for mode in backend.modes:
            for device in devices:
                states = []
                reason_text = None
                for fmt in FORMATS.values():
                    try:
                        states.append(f"{fmt.short} {flushing(backend, mode.name, device, fmt)}")
                    except Unavailable as reason:
                        reason_text = str(reason)
                where = mode.name if device == "cpu" else f"{mode.name} on {device}"
                text = f"  {where}: {mode.summary}"
                if states:
                    text += f"; subnormals: {', '.join(states)}"
                if reason_text:
                    text += f"; skipped, {reason_text}"
                typer.echo(text)
        if not backend.differentiates:
            typer.echo("  no automatic differentiation: gradients are skipped")
