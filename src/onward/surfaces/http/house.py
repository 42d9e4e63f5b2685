"""The house: what all requests to one server share.

The store, who is told when something is written, the tokens that are valid for this start only, and what was put to sleep
lately. A platform is made for each request, on the account of its token (invariant A1).
"""

from __future__ import annotations

import asyncio
import functools
import hmac
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec

from onward.core.records import Token
from onward.errors import Unauthorized
from onward.runner.desk import uninterrupted
from onward.service import resolving, tokens
from onward.service.dispatching import BEAT_SECONDS, REMOTE_LEASE
from onward.service.hinting import Hints, hinting
from onward.service.platform import Platform
from onward.surfaces.http.awaited import Awaited
from onward.surfaces.http.carried import Carried
from onward.surfaces.http.live_hub import Live
from onward.surfaces.http.measuring import Meters
from onward.surfaces.http.oidc import SignIn
from onward.surfaces.http.signing_in import Doors

READERS: Final = 6
"""Threads for requests that only read."""
T = TypeVar("T")
_REMEMBERED: Final = 100


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened by itself and that a person may want to know; the sessions' logs have it too."""

    at: int
    """Microseconds since 1970."""
    text: str
    sessions: tuple[str, ...] = ()


class House:
    """What all requests share. ``platform`` is that of the account that owns the store."""

    def __init__(
        self, platform: Platform, *, lease: float = REMOTE_LEASE, beat: float = BEAT_SECONDS
    ) -> None:
        self.hints = Hints()
        self.lease, self.beat = lease, beat
        """Seconds: how long a run of another machine stays its own, and how often its runner says something."""
        self._own = msgspec.structs.replace(platform, store=hinting(platform.store, self.hints))
        self.closing = asyncio.Event()
        """The server is about to go: whoever waits for something is answered that there is nothing yet."""
        self.doors = Doors(platform.clock)
        """The links that let a browser into the console."""
        self.awaited = Awaited()
        """Where people were asked for something."""
        self.carried = Carried(platform.clock)
        """What people have written and not sent, on its way from one page to another."""
        self.outside = ""
        """The address under which people reach this server, where it is known."""
        self.oidc: SignIn | None = None
        """How people sign in with a provider, where they can."""
        self.live = Live(self._own, self.hints, self.closing, self.holds)
        """Those who follow sessions as they go on."""
        self.meters = Meters()
        """How long requests took."""
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="onward-read")
        self._passing: dict[str, Token] = {}
        self._notifications: dict[str, deque[Notification]] = {}

    async def reading(self, verb: Callable[..., T], *args: Any) -> T:
        """Call what only reads in a thread: where others wait to write, in however many threads, it is not held up."""
        call = functools.partial(verb, *args)
        return await uninterrupted(asyncio.get_running_loop().run_in_executor(self._readers, call))

    @property
    def platform(self) -> Platform:
        """The platform of the account that owns the store."""
        return self._own

    def platform_of(self, account_id: str) -> Platform:
        """Return the platform of an account.

        Only whoever runs the server, alone, may have files of this machine read by citing them: a session is about whatever
        folder it says, so for anybody else that would be any file that the server can read.
        """
        platform = msgspec.structs.replace(self._own, account_id=account_id)
        if account_id == self._own.account_id and self.oidc is None:
            return platform
        return msgspec.structs.replace(platform, resolvers=resolving.without_files(platform))

    def admit(self, token: Token) -> None:
        """Let a token in that no store has, for as long as this process lives."""
        self._passing[token.digest] = token

    def token(self, secret: str) -> Token:
        """Return the token behind a secret. Raises Unauthorized."""
        if not secret:
            raise Unauthorized(why="there was none")
        wanted = tokens.digest(secret)
        for digest, token in self._passing.items():
            if hmac.compare_digest(digest, wanted):
                return token
        return tokens.authenticate(self._own.store, secret, self._own.clock())

    def holds(self, token: Token, scope: str = "read") -> bool:
        """Whether a token that was let in before would be let in now, for this."""
        if token.digest in self._passing:
            return True
        now = self._own.store.token_by_digest(token.digest)
        if now is None or now.revoked_at is not None:
            return False
        return (now.expires_at is None or now.expires_at > self._own.clock()) and tokens.allows(now, scope)

    def close(self) -> None:
        """Let everybody go who waits for something."""
        self.closing.set()

    def notify(self, account_id: str, text: str, sessions: Sequence[str]) -> None:
        """Remember something for those who ask; the oldest are forgotten."""
        told = Notification(at=self._own.clock(), text=text, sessions=tuple(sessions))
        self._notifications.setdefault(account_id, deque(maxlen=_REMEMBERED)).append(told)

    def notifications(self, account_id: str) -> tuple[Notification, ...]:
        """Return what was remembered for an account, newest first."""
        return tuple(reversed(self._notifications.get(account_id, ())))
