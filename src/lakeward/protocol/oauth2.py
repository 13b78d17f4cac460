# SPDX-License-Identifier: Apache-2.0
"""OAuth2 client credentials: a token that is fetched from an issuer and renewed before it expires."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from lakeward.errors import InvalidConfig, IssuerUnavailable
from lakeward.protocol.token import TokenSource

if TYPE_CHECKING:
    from lakeward.config import Config

log = logging.getLogger(__name__)

PREFIX = "LAKEWARD_CLIENT__OAUTH2__"
"""Prefix of the environment variables of `client.oauth2.*`. Repeated here so that tasks need not load all options."""

_KEY = "client.oauth2.url"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_BYTES, _LIMIT_S, _RETRY_S = 256 * 1024, 10.0, 5.0
_EARLY = 0.25
"""A token is renewed when this part of its life is left, so that a slow issuer is asked several times."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead credentials or the choice of keys elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def check_address(where: str, url: str) -> None:
    """Raises `InvalidConfig` for an address that is neither https nor on this machine."""
    parts = urlsplit(url)
    if not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)) or not parts.netloc:
        raise InvalidConfig(where=where, reason=f"{url[:200]!r} is not an https:// address")


def load_json(url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> Any:
    """The JSON object at this address, at most 256 kB. `form`: sent by POST. Raises `OSError` and `ValueError`."""
    data = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(url, data=data, headers={"Accept": "application/json", **(headers or {})})  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    with opener.open(request, timeout=_LIMIT_S) as answer:
        content = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{url} answers with more than {_MOST_BYTES} bytes")
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError(f"{url} does not answer with a JSON object")
    return value


class ClientCredentials(TokenSource):
    """Threads share it: one of them renews, the others use the token that is still valid."""

    def __init__(self, url: str, client_id: str, secret_file: Path, **parameters: str) -> None:
        """`parameters`: `scope`, `audience`. Nothing is sent yet. Raises `InvalidConfig`."""
        super().__init__()
        check_address(_KEY, url)
        self.url, self.client_id, self.secret_file = url, client_id, secret_file.absolute()
        self.parameters = {key: value for key, value in parameters.items() if value}
        self._expires_at = self._renew_at = 0.0
        self._renewing = threading.Lock()

    @classmethod
    def of_config(cls, config: Config) -> ClientCredentials | None:
        """None where `client.oauth2.url` is not set. Raises `InvalidConfig`."""
        from lakeward.config import options

        variables = {
            PREFIX + "URL": config.get(options.CLIENT_OAUTH2_URL),
            PREFIX + "ID": config.get(options.CLIENT_OAUTH2_ID),
            PREFIX + "SECRET_FILE": config.get(options.CLIENT_OAUTH2_SECRET_FILE),
            PREFIX + "SCOPE": config.get(options.CLIENT_OAUTH2_SCOPE),
            PREFIX + "AUDIENCE": config.get(options.CLIENT_OAUTH2_AUDIENCE),
        }
        return cls.of_variables({name: str(value) for name, value in variables.items() if value is not None})

    @classmethod
    def of_variables(cls, variables: Mapping[str, str]) -> ClientCredentials | None:
        """None where `client.oauth2.url` is not set. Raises `InvalidConfig`."""
        values = {
            name: variables.get(PREFIX + name.upper()) for name in ("url", "id", "secret_file", "scope", "audience")
        }
        if not values["url"]:
            return None
        if not values["id"] or not values["secret_file"]:
            raise InvalidConfig(where=_KEY, reason="set client.oauth2.id and client.oauth2.secret-file too")
        more = {name: values[name] or "" for name in ("scope", "audience")}
        return cls(values["url"], values["id"], Path(values["secret_file"]), **more)

    def share(self, environment: MutableMapping[str, str] | None = None) -> None:
        variables = self._variables(environment)
        values = {"URL": self.url, "ID": self.client_id, "SECRET_FILE": str(self.secret_file)}
        variables.update({PREFIX + name: value for name, value in values.items()})
        variables.update({PREFIX + name.upper(): value for name, value in self.parameters.items()})

    def current(self) -> str | None:
        """The token, renewed when three quarters of its life are over. Raises `IssuerUnavailable` where there is none
        that is valid and the issuer gives none, `InvalidConfig` where it refuses the client."""
        now = time.monotonic()
        if now < self._renew_at:
            return self._secret
        with self._renewing:
            if time.monotonic() >= self._renew_at:
                self._renew()
        return self._secret

    def _renew(self) -> None:
        try:
            secret, life_s = self._fetch()
        except (OSError, ValueError) as error:
            now = time.monotonic()
            if now >= self._expires_at:
                if isinstance(error, urllib.error.HTTPError) and error.code in (400, 401, 403):
                    reason = f"{self.url} refuses client {self.client_id}: {error}"
                    raise InvalidConfig(where="client.oauth2", reason=reason) from error
                raise IssuerUnavailable(address=self.url, reason=str(error), what="a token") from error
            log.warning("%s gives no new token, the last one is used: %s", self.url, error)
            self._renew_at = now + _RETRY_S
            return
        now = time.monotonic()
        self._secret, self._expires_at, self._renew_at = secret, now + life_s, now + life_s * (1 - _EARLY)

    def _fetch(self) -> tuple[str, float]:
        login = f"{quote(self.client_id, safe='')}:{quote(self.secret_file.read_text().strip(), safe='')}"
        answer = load_json(
            self.url,
            {"grant_type": "client_credentials", **self.parameters},
            {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"},
        )
        secret, life_s = answer.get("access_token"), answer.get("expires_in", 300)
        if not isinstance(secret, str) or not secret or isinstance(life_s, bool) or not isinstance(life_s, int | float):
            raise ValueError("the answer holds no access_token")
        return secret, float(life_s)
