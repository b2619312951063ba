"""The command line: one thin module per command; what is heavy is imported when a command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kl_audit import __version__
from kl_audit.cli import audit, backends, cases, formulations, repro, schema, sweep
from kl_audit.errors import OracleError, UsageError

app = typer.Typer(
    name="kl-audit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Audit the numerical precision of KL and log-ratio code: how wrong is it, and whose fault?",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kl-audit {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Audit the numerical precision of KL and log-ratio code."""


app.command("sweep")(sweep.command)
app.command("audit")(audit.command)
app.command("repro")(repro.command)
app.add_typer(cases.app, name="cases")
app.command("backends")(backends.command)
app.command("formulations")(formulations.command)
app.command("schema")(schema.command)


def main() -> None:
    """Run kl-audit; whatever cannot be understood is one line on stderr and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False))  # None, or the code of a typer.Exit
    except typer.Abort:
        sys.exit(1)
    except UsageError as error:
        sys.stderr.write(f"kl-audit: {error}\n")
        sys.exit(2)
    except OracleError as error:
        sys.stderr.write(f"kl-audit: the truth could not be certified: {error} [KLA901]\n")
        sys.exit(1)
    except BrokenPipeError:
        # The reader went away (| head); Python must not complain about it while it shuts down.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        # The parser's own errors: of click, or of the copy of it that newer typers carry.
        if not hasattr(error, "format_message"):
            raise
        text = " ".join(error.format_message().split())
        if text:  # without arguments the help was shown instead
            where = getattr(getattr(error, "ctx", None), "command_path", "kl-audit")
            text = f"{text[0].lower()}{text[1:].removesuffix('.')}"
            sys.stderr.write(f"kl-audit: {text}{'' if text[-1] in '?!' else '.'} See {where} --help.\n")
        sys.exit(2)
