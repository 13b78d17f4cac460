# SPDX-License-Identifier: Apache-2.0
"""The command line's frame: one module per call, errors as one paragraph with an exit code, and `config` and
`version`.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from lakeward import __version__
from lakeward.cli import app, commands
from lakeward.errors import (
    CommitUnknown,
    Forbidden,
    InvalidRequest,
    LakeUnavailable,
    LakewardError,
    ServerUnavailable,
    TableNotFound,
)


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda c: c.name)
def test_every_command_registers_itself_and_explains_itself(
    command: commands.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(importlib.import_module(command.module).register)
    assert app.run([command.name, "--help"]) == 0
    assert "Usage: lakeward " + command.name in capsys.readouterr().out


def test_flags_name_no_type(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["pause", "--help"], ["table", "create", "--help"], ["--help"]):
        assert app.run(arguments) == 0
        assert "<bool>" not in capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command.name in shown for command in commands.COMMANDS)


@pytest.mark.parametrize(
    "command", ["status", "jobs", "rounds", "explain t.x", "tier-now t.x", "maintain t.x", "verify"]
)
def test_what_a_fluss_cluster_has_not_is_refused_beside_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    beside = ["--server http://127.0.0.1:1", *([] if command in ("status", "jobs") else ["--lake main"])]
    for option in beside:
        assert app.run(f"{command} --fluss 127.0.0.1:1 {option}".split()) == 2
        assert f"{option.split()[0]}: not together with --fluss" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"lakeward {__version__}\n")
    assert app.run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lakeward"] == __version__


def test_config_shows_value_and_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEWARD_TABLE__DATALAKE__FRESHNESS", "10 s")
    (tmp_path / "lakeward.toml").write_text('server.host = "::1"')
    assert app.run(["config", "table.datalake.freshness"]) == 0
    assert (
        "table.datalake.freshness = 10 s  (from: environment LAKEWARD_TABLE__DATALAKE__FRESHNESS)"
        in capsys.readouterr().out
    )
    assert app.run(["config", "--json"]) == 0
    shown = {row["key"]: (row["value"], row["from"]) for row in json.loads(capsys.readouterr().out)}
    assert shown["server.host"] == ("::1", "file lakeward.toml")
    assert shown["server.port"] == ("9050", "default")


def test_an_error_is_one_paragraph_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["config", "server.prot"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lakeward: ")
    assert "did you mean 'server.port'" in shown
    assert "Traceback" not in shown


def test_a_settings_file_may_be_named_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEWARD_CONFIG", "")
    (tmp_path / "mine.toml").write_text("server.port = 7")
    for arguments in (
        ["--config", f"{tmp_path}/mine.toml", "config", "server.port"],
        ["config", "server.port", f"--config={tmp_path}/mine.toml"],
    ):
        assert app.run(arguments) == 0
        assert f"server.port = 7  (from: file {tmp_path}/mine.toml)" in capsys.readouterr().out
    assert app.run(["config", "--config", f"{tmp_path}/none.toml"]) == 2
    assert "none.toml" in capsys.readouterr().err


def test_debug_shows_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(app.DEBUG, "")
    with pytest.raises(LakewardError):
        app.run(["--debug", "config", "server.prot"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest(what="w", reason="r"), 2),
        (TableNotFound(table="t"), 3),
        (Forbidden(token_name="n", role="read", what="w", needed="admin"), 4),
        (ServerUnavailable(address="a", reason="r"), 5),
        (LakeUnavailable(lake="l", what="w", reason="r"), 5),
        (CommitUnknown(table="t", round_id="r", reason="x"), 1),
    ],
    ids=lambda e: getattr(e, "code", e),
)
def test_exit_codes(error: LakewardError, code: int) -> None:
    assert app.exit_code(error) == code


def groups_of(name: str) -> list[list[str]]:
    made = app.build([name])
    found = [
        [name, str(c.name)]
        for g in made.registered_groups
        if g.name == name and g.typer_instance
        for c in g.typer_instance.registered_commands
    ]
    return found or [[name]]


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda c: c.name)
def test_every_help_page_has_an_example_and_every_command_speaks_json(
    command: commands.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    for call in groups_of(command.name):
        assert app.run([*call, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"Example: lakeward {' '.join(call)}" in shown, call
        assert "--json" in shown, call


def test_a_broken_disk_or_a_bug_is_one_paragraph_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(app.DEBUG, "")
    assert app.run(["table", "create", "--file", "/does/not/exist"]) == 2
    assert capsys.readouterr().err == "lakeward: /does/not/exist: No such file or directory\n"
