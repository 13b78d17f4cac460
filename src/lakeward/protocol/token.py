# SPDX-License-Identifier: Apache-2.0
"""The secret that a process shows to its server: a fixed one, or a file's, read again whenever the file has changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from lakeward.errors import InvalidConfig

TOKEN_VARIABLE = "LAKEWARD_TOKEN"  # noqa: S105 - the name of a variable
FILE_VARIABLE = "LAKEWARD_CLIENT__TOKEN_FILE"
OAUTH2_VARIABLE = "LAKEWARD_CLIENT__OAUTH2__URL"
"""The variables of `client.token`, `client.token-file` and `client.oauth2.url`. Written out here: tasks need not load
all options for them."""

_KNOWN: dict[str, TokenSource] = {}
_AUTHORITIES: dict[str, str] = {}


class TokenSource:
    """Threads share it. A file that cannot be read for a moment, as while it is being replaced, leaves the last secret
    in force.
    """

    def __init__(self, secret: str | None = None, file: Path | None = None) -> None:
        self.file = file
        self._secret = secret
        self._seen: tuple[int, int, int] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, secret: str | None, file: Path | None) -> TokenSource:
        """`client.token`, else what is in `client.token-file`. Raises `InvalidConfig` for a
        file that cannot be read.
        """
        if secret is not None or file is None:
            return cls(secret)
        source = cls(file=file.absolute())
        try:
            source._read(source._stamp())
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(where="client.token-file", reason=str(error)) from error
        return source

    @classmethod
    def of_process(cls, environment: Mapping[str, str] | None = None) -> TokenSource:
        """The token with which this process was started. A token file that does not exist, as on another machine's
        executor, counts as no token."""
        variables = os.environ if environment is None else environment
        file = variables.get(FILE_VARIABLE)
        if OAUTH2_VARIABLE in variables and TOKEN_VARIABLE not in variables and file is None:
            from lakeward.protocol.oauth2 import ClientCredentials

            return ClientCredentials.of_variables(variables) or cls()
        return cls(variables.get(TOKEN_VARIABLE), None if file is None or TOKEN_VARIABLE in variables else Path(file))

    def share(self, environment: MutableMapping[str, str] | None = None) -> None:
        """Every connection of this process, and of processes that it starts, takes its token from here."""
        variables = self._variables(environment)
        if self.file is not None:
            variables.pop(TOKEN_VARIABLE, None)
            variables[FILE_VARIABLE] = str(self.file)
        elif self._secret:
            variables[TOKEN_VARIABLE] = self._secret

    @staticmethod
    def _variables(environment: MutableMapping[str, str] | None) -> MutableMapping[str, str]:
        return os.environ if environment is None else environment

    def use_for(self, uri: str, ca: str | None = None) -> None:
        """The catalog that a server keeps under this address is shown the server's token, which never travels with a
        plan. `ca`: the file with certificates that the server's own is checked by.
        """
        _KNOWN[uri.rstrip("/")] = self
        if ca is not None:
            _AUTHORITIES[uri.rstrip("/")] = ca

    @staticmethod
    def find_ca(uri: str) -> str | None:
        """None: the system's."""
        return _AUTHORITIES.get(uri.rstrip("/"))

    @classmethod
    def find_for(cls, uri: str) -> TokenSource:
        """The token for this address: the one set by `use_for`, else the one with which this process was started."""
        return _KNOWN.get(uri.rstrip("/")) or cls.of_process()

    def current(self) -> str | None:
        """None or empty: there is no token to show. A look at the file's stamp, and a read when it is another."""
        if self.file is None:
            return self._secret
        with self._lock, suppress(OSError, UnicodeDecodeError):
            stamp = self._stamp()
            if stamp != self._seen:
                self._read(stamp)
        return self._secret

    def _stamp(self) -> tuple[int, int, int]:
        assert self.file is not None
        stat = self.file.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self, stamp: tuple[int, int, int]) -> None:
        """The stamp is from before: a file that changes while it is read is read again. An empty one is about to be
        written.
        """
        assert self.file is not None
        secret = self.file.read_text().strip()
        if secret:
            self._secret, self._seen = secret, stamp
