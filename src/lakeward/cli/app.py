# SPDX-License-Identifier: Apache-2.0
"""Builds the command line for one call, and turns errors into one paragraph and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lakeward.cli.commands import COMMANDS, Command
from lakeward.cli.plaincall import find_call
from lakeward.config.sources import FILE_VARIABLE
from lakeward.errors import InvalidInput, LakeUnavailable, LakewardError, NotFound, Refused, Unavailable

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 wrong usage or input; 3 not found; 4 refused; "
    "5 no answer, try again; 6 not checked; 130 stopped by Ctrl-C."
)
DEBUG = "LAKEWARD_DEBUG"


def build(arguments: Sequence[str]) -> typer.Typer:
    """The app, with only the called command's module imported; the others are there by name and help line."""
    app = typer.Typer(
        name="lakeward",
        help="Keeps lake tables as fresh as you asked for.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    completing = _is_completing()
    called = next((a for a in arguments if not a.startswith("-")), None)
    for command in COMMANDS:
        if completing or command.name == called:
            importlib.import_module(command.module).register(app)
        else:
            _announce(app, command)
    return app


def run(arguments: Sequence[str]) -> int:
    """Runs one call and returns its exit code. A stack trace appears only with `--debug`."""
    arguments = take_common(arguments, os.environ)
    if arguments[:1] == ["--version"]:
        arguments = ["version", *arguments[1:]]
    try:
        app = build(arguments)
        call = None if _is_completing() else find_call(app, arguments)
        result = _run_app(app, arguments) if call is None else _result(call)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except LakewardError as error:
        return _report(error)
    except ModuleNotFoundError as error:
        return _report_missing(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _end_of_pipe()
    except OSError as error:
        return _report_system(error)
    except Exception as error:  # noqa: BLE001 - people get one paragraph, whatever broke
        return _report_unexpected(error)
    return result if isinstance(result, int) else 0


def _run_app(app: typer.Typer, arguments: Sequence[str]) -> Any:
    command = typer.main.get_command(app)
    show_flags_plainly(command)
    return command(args=list(arguments), prog_name="lakeward", standalone_mode=True)


def show_flags_plainly(command: Any) -> None:
    """A flag takes no value, and its help names no type for one."""
    for param in (*command.params, command.get_help_option(command.context_class(command))):
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        show_flags_plainly(inner)


def take_common(arguments: Sequence[str], environment: MutableMapping[str, str]) -> list[str]:
    """Takes `--debug` and `--config FILE` out, wherever they stand, and hands them on as variables, to child processes
    too.
    """
    rest, waiting = [], iter(arguments)
    for argument in waiting:
        if argument == "--debug":
            environment[DEBUG] = "1"
        elif argument == "--config":
            environment[FILE_VARIABLE] = next(waiting, "")
        elif argument.startswith("--config="):
            environment[FILE_VARIABLE] = argument.partition("=")[2]
        else:
            rest.append(argument)
    return rest


def exit_code(error: LakewardError) -> int:
    for kind, code in ((InvalidInput, 2), (NotFound, 3), (Refused, 4), ((Unavailable, LakeUnavailable), 5)):
        if isinstance(error, kind):
            return code
    return 1


def _report(error: LakewardError) -> int:
    if os.environ.get(DEBUG):
        raise error
    from lakeward.model.logline import as_lines

    print(f"lakeward: {as_lines(str(error))}", file=sys.stderr)
    return exit_code(error)


def _report_missing(error: ModuleNotFoundError) -> int:
    if os.environ.get(DEBUG) or (error.name or "").startswith(("lakeward.", "lakeward_testing.")):
        raise error
    package, extra = ("lakeward-testing", "chaos") if error.name == "lakeward_testing" else (error.name, "all")
    print(f"lakeward: this command needs the package {package}: pip install 'lakeward[{extra}]'", file=sys.stderr)
    return 2


def _report_system(error: OSError) -> int:
    """A file that cannot be read, a port that is taken: the system's own words say which."""
    if os.environ.get(DEBUG):
        raise error
    where = f"{error.filename}: " if error.filename else ""
    print(f"lakeward: {where}{error.strerror or error}", file=sys.stderr)
    return 2


def _report_unexpected(error: Exception) -> int:
    if os.environ.get(DEBUG):
        raise error
    words = " ".join(str(error).split()) or "no more is known"
    print(
        f"lakeward: this should not have happened ({type(error).__name__}: {words}). --debug shows where it was.",
        file=sys.stderr,
    )
    return 1


def _end_of_pipe() -> int:
    """The reader of our output has enough, as with `head`. Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _result(call: Callable[[], object]) -> int:
    """Runs a command as typer does."""
    try:
        call()
    except typer.Exit as exit:
        return exit.exit_code
    except typer.Abort:
        print("Aborted.", file=sys.stderr)
        return 1
    return 0


def _is_completing() -> bool:
    return any(name.startswith("_LAKEWARD_COMPLETE") for name in os.environ)


def _root(
    config: Annotated[Path | None, typer.Option("--config", help="Settings file, in place of ./lakeward.toml.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
) -> None:
    """Keeps lake tables as fresh as you asked for."""
    # Both were taken by `take_common`; they stand here for the help page.


def _announce(app: typer.Typer, command: Command) -> None:
    def placeholder() -> None:
        raise AssertionError(f"{command.name} was called and not loaded")

    app.command(command.name, help=command.help)(placeholder)
