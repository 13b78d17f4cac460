# SPDX-License-Identifier: Apache-2.0
"""Logins by an OpenID Connect issuer: a JWT is checked by the issuer's keys; its claims give role and tables."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeward.config import Config, options
from lakeward.errors import InvalidConfig, IssuerUnavailable, Unauthorized
from lakeward.model import BackgroundThread
from lakeward.protocol.auth import RESERVED_NAMES, Token
from lakeward.protocol.oauth2 import check_address, load_json

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Signatures with a key pair. A shared secret (HS256) or `none` would let anyone with the public key sign."""

_RELOAD_PAUSE_S = 10.0
"""Between two loads of the keys: tokens with made-up key names must not make this server call its issuer at will."""

_MOST_CHARACTERS, _MOST_CACHED = 8192, 1024
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@|/+-]{0,199}")
_RULE = re.compile(r"(?P<claim>[^=]+)=(?P<value>.+?):(?P<role>read|write|job|admin)(:(?P<tables>[^:]+))?")


@dataclass(frozen=True)
class ClaimRule:
    """Tokens whose `claim` is, or contains, `value` get the rights of `grant`."""

    claim: str
    value: str
    grant: Token

    @classmethod
    def parse(cls, text: str) -> ClaimRule:
        """`groups=data-eng:write` or `groups=data-eng:write:shop.*+crm.orders`. Raises `InvalidConfig`."""
        match = _RULE.fullmatch(text)
        if match is None:
            reason = (
                f"{text!r}: write claim=value:role, perhaps with :shop.* behind it; roles are read, write, job, admin"
            )
            raise InvalidConfig(where=options.SERVER_OIDC_RULES.key, reason=reason)
        tables = f":{match['tables']}" if match["tables"] else ""
        grant = Token.parse(f"{match['claim'].replace(':', '-')}:{match['role']}:secret{tables}")
        if tables and not grant.tables:
            reason = f"{text!r}: {match['tables']} is not a list of tables such as shop.*+crm.orders"
            raise InvalidConfig(where=options.SERVER_OIDC_RULES.key, reason=reason)
        return cls(match["claim"], match["value"], grant)

    def matches(self, claims: Mapping[str, Any]) -> bool:
        value = _claim(claims, self.claim)
        if isinstance(value, str):
            return value == self.value or (self.claim in ("scope", "scp") and self.value in value.split())
        return isinstance(value, list) and self.value in [each for each in value if isinstance(each, str)]


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, else the one that the name's dots lead to, as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


class Issuer:
    """Thread-safe, and never waits for the issuer: its keys are loaded in the background, regularly and when a token
    names an unknown one."""

    def __init__(
        self,
        url: str,
        audience: str,
        rules: Sequence[ClaimRule],
        *,
        name_claim: str = "sub",
        skew_s: float = 30.0,
        refresh_s: float = 300.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises `InvalidConfig`: without the extra `oidc`, and for an address that is neither https nor loopback."""
        try:
            import joserfc  # noqa: F401
        except ImportError as error:
            reason = "checking tokens of an issuer needs a further package: pip install 'lakeward[oidc]'"
            raise InvalidConfig(where=options.SERVER_OIDC_ISSUER.key, reason=reason) from error
        check_address(options.SERVER_OIDC_ISSUER.key, url)
        self.url, self.audience, self.rules = url, audience, tuple(rules)
        self._name_claim, self._skew_s, self._now = name_claim, skew_s, now
        self._keys: Any = None
        self._key_ids: frozenset[str] = frozenset()
        self._cache: OrderedDict[str, Token] = OrderedDict()
        self._lock = threading.Lock()
        self._loaded_at, self._refresh_s = float("-inf"), refresh_s
        self._is_asked, self._reload_pause_s = False, min(_RELOAD_PAUSE_S, refresh_s)
        self.thread = BackgroundThread("oidc-keys", self._load_when_due, min(0.5, refresh_s))

    @classmethod
    def of(cls, config: Config) -> Issuer | None:
        """None where no issuer is configured. Raises `InvalidConfig`."""
        url = config.get(options.SERVER_OIDC_ISSUER)
        if url is None:
            return None
        audience, rules = config.get(options.SERVER_OIDC_AUDIENCE), config.get(options.SERVER_OIDC_RULES)
        if audience is None or not rules:
            reason = (
                "set server.oidc.audience and server.oidc.rules too: without them no token of the issuer is accepted"
            )
            raise InvalidConfig(where=options.SERVER_OIDC_ISSUER.key, reason=reason)
        return cls(
            url,
            audience,
            [ClaimRule.parse(rule) for rule in rules],
            name_claim=config.get(options.SERVER_OIDC_NAME_CLAIM),
            skew_s=config.get(options.SERVER_OIDC_SKEW).total_seconds(),
            refresh_s=config.get(options.SERVER_OIDC_KEYS_REFRESH).total_seconds(),
        )

    def _load_when_due(self) -> None:
        if self._is_asked or time.monotonic() - self._loaded_at >= self._refresh_s:
            self._is_asked = False
            self.load_keys()

    def load_keys(self) -> None:
        """Asks the issuer. Keys that it no longer lists are refused from here on; a failure leaves the last ones."""
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        self._loaded_at = time.monotonic()
        try:
            discovery = load_json(self.url.rstrip("/") + "/.well-known/openid-configuration")
            if discovery.get("issuer") != self.url:
                raise ValueError(f"it calls itself {str(discovery.get('issuer'))[:200]!r}")
            check_address("jwks_uri", str(discovery.get("jwks_uri")))
            listed = load_json(str(discovery["jwks_uri"])).get("keys", [])
            usable = [k for k in listed if k.get("kty") in ("RSA", "EC", "OKP") and k.get("use", "sig") == "sig"]
            keys = KeySet.import_key_set({"keys": usable})
            ids = frozenset(str(key.kid) for key in keys.keys if key.kid)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, JoseError, InvalidConfig) as error:
            log.warning("the keys of %s cannot be loaded, the last ones stay in force: %s", self.url, error)
            return
        with self._lock:
            if ids != self._key_ids:
                log.info("%s signs by %d keys", self.url, len(keys.keys))
            self._keys, self._key_ids = keys, ids
            self._cache.clear()

    def identify(self, secret: str, what: str) -> Token | None:
        """None for what is not a JWT. Raises `Unauthorized` with the reason, and `IssuerUnavailable`, which is retried,
        while the keys are being loaded."""
        if len(secret) > _MOST_CHARACTERS or not _JWT.fullmatch(secret):
            return None
        with self._lock:
            token = self._cache.get(secret)
        if token is None:
            token = self._verified(secret, what)
            with self._lock:
                self._cache[secret] = token
                while len(self._cache) > _MOST_CACHED:
                    self._cache.popitem(last=False)
        assert token.expires_at_s is not None
        if self._now() >= token.expires_at_s:
            raise Unauthorized(what=what, reason=f"the token expired {self._now() - token.expires_at_s:.0f} s ago")
        return token

    def _verified(self, secret: str, what: str) -> Token:
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            self._check_key(secret, what)
            decoded = jwt.decode(secret, self._keys, algorithms=list(ALGORITHMS))
            return self._token(decoded.claims)
        except JoseError as error:
            reason = f"the token's signature is not valid ({error.error})"
        except (ValueError, TypeError, KeyError) as error:
            reason = str(error) or "the token cannot be read"
        raise Unauthorized(what=what, reason=reason)

    def _check_key(self, secret: str, what: str) -> None:
        """The token names a key of the issuer. An unknown name has the keys loaded again, at most every 10 s."""
        from joserfc.jws import extract_compact

        header = extract_compact(secret.encode()).headers()
        if header.get("alg") not in ALGORITHMS:
            raise ValueError(f"the token is signed by {str(header.get('alg'))[:40]!r}, which is not accepted")
        key = header.get("kid")
        if self._keys is not None and (key is None or key in self._key_ids):
            return
        self._is_asked = self._is_asked or time.monotonic() - self._loaded_at > self._reload_pause_s
        if self._keys is None or self._is_asked:
            raise IssuerUnavailable(address=self.url, reason="its keys are being loaded", what=what)
        raise ValueError("the token names a key that its issuer does not list")

    def _token(self, claims: Mapping[str, Any]) -> Token:
        """Raises `ValueError` for claims that do not hold, or that no rule maps to a role."""
        now = self._now()
        if claims.get("iss") != self.url:
            raise ValueError("the token is of another issuer")
        audiences = claims.get("aud")
        if self.audience not in (audiences if isinstance(audiences, list) else [audiences]):
            raise ValueError(f"the token is not for audience {self.audience}")
        expires_at, begins_at = _seconds(claims, "exp"), _seconds(claims, "nbf", 0.0)
        if now >= expires_at + self._skew_s:
            raise ValueError(f"the token expired {now - expires_at:.0f} s ago")
        if now < max(begins_at, _seconds(claims, "iat", 0.0)) - self._skew_s:
            raise ValueError("the token is not valid yet; compare the clocks of issuer and server")
        name = _claim(claims, self._name_claim)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED_NAMES:
            raise ValueError(f"the token's claim {self._name_claim} is missing, or is not a usable name")
        for rule in self.rules:
            if rule.matches(claims):
                grant = rule.grant
                return Token(
                    name=name, role=grant.role, secret="", tables=grant.tables, expires_at_s=expires_at + self._skew_s
                )
        raise ValueError(f"no rule of {options.SERVER_OIDC_RULES.key} gives a role to {name}")


def _seconds(claims: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the token's claim {name} is missing, or is not a time")
    return float(value)
