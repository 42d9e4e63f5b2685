"""Signing: who stands for a manifest, checkable by anybody with the public key.

A signature is detached. It is Ed25519 over a short statement that names the manifest and the digest of its stored bytes:

    onward-manifest-v1⏎man_…⏎sha256:<hex>⏎

and is kept as an event of the successor, ``session`` / ``signed``. So signing changes neither the manifest nor the digest
that it signs, several people can sign, signing later is possible, and the chain holds the signature in its place (decision
record 6). A manifest holds the digest of the projection, and ``onward verify`` holds the log: what was signed covers what
the successor was told.

The private key belongs to the user: a PEM file that only they can read, made by ``onward key new FILE`` or by openssl. It
is read when something is signed and kept nowhere. Nothing here decides whom to trust: a signature that checks says that
the holder of that key signed these bytes, no more.

``cryptography`` is imported when the first key is touched (extra ``signing``).
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from onward.core.bodies import SessionChange, Signature
from onward.core.codec import body_of
from onward.core.digests import content_digest
from onward.core.events import PERSON, Event, NewEvent
from onward.core.records import StoredManifest
from onward.errors import InvalidInput, MissingExtra, NotFound
from onward.service.platform import Platform
from onward.store.contract import Append, Batch

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_VARIABLE: Final = "ONWARD_SIGNING_KEY"
"""Names the key file that signs every manifest when it is made."""
MAX_KEY_FILE: Final = 64 * 1024
_RAW: Final = 32


class Signer(Protocol):
    """Something that holds a private key and signs with it."""

    @property
    def public_key(self) -> str:
        """The public key: 32 bytes in base64."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the signature of these bytes."""
        ...


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of checking the signatures of a manifest."""

    manifest: str
    digest: str
    """Of the bytes that are stored now, worked out anew."""
    signatures: tuple[SignatureState, ...]
    ok: bool
    """At least one signature by the key that was asked for holds; without a key, at least one and every one holds."""
    why: str = ""


class SignatureState(msgspec.Struct, frozen=True, kw_only=True):
    """One signature and whether it holds."""

    event: str
    at: int
    public_key: str
    value: str
    ok: bool


class KeyFile:
    """A signer whose private key is in a PEM file. The file is read when the first thing is signed.

    Using it raises InvalidInput for a file that is not there, that others may read or that holds no such key, and
    MissingExtra without the extra.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._loaded: Any = None

    @property
    def public_key(self) -> str:
        """The public key in base64."""
        return _spelled(self._key().public_key())

    def sign(self, data: bytes) -> bytes:
        """Return the 64 bytes of the signature."""
        signature: bytes = self._key().sign(data)
        return signature

    def _key(self) -> Any:
        if self._loaded is None:
            self._loaded = _private_key(self.path)
        return self._loaded


def statement(manifest_id: str, digest: str) -> bytes:
    """Return the bytes that are signed for a manifest."""
    return f"onward-manifest-v1\n{manifest_id}\n{digest}\n".encode()


def from_environment(environment: Mapping[str, str] | None = None) -> Signer | None:
    """Return the signer that ``ONWARD_SIGNING_KEY`` names; None when it names none.

    What it raises when it is used stops what was to be signed: whoever wants everything signed does not want it unsigned
    because a file is gone.
    """
    path = (os.environ if environment is None else environment).get(KEY_VARIABLE)
    return KeyFile(os.path.expanduser(path)) if path else None


def new_key(path: str) -> str:
    """Write a new private key to a file that its owner alone can read. Return the public key.

    Raises InvalidInput when the file is there already: a key is never overwritten.
    """
    crypto = _crypto()
    key = crypto.Ed25519PrivateKey.generate()
    pem: bytes = key.private_bytes(
        crypto.serialization.Encoding.PEM,
        crypto.serialization.PrivateFormat.PKCS8,
        crypto.serialization.NoEncryption(),
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(what=f"key file {path}", why="it exists; a key is never overwritten") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return _spelled(key.public_key())


def public_pem(given: str) -> str:
    """Return a public key, given as for ``check``, as PEM: the form that openssl reads."""
    crypto = _crypto()
    key = crypto.Ed25519PublicKey.from_public_bytes(public_key(given))
    pem: bytes = key.public_bytes(
        crypto.serialization.Encoding.PEM, crypto.serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem.decode("ascii")


def public_key(given: str) -> bytes:
    """Return the 32 bytes of a public key: given in base64, or as a file with that, a public PEM or a private one.

    Raises InvalidInput for anything else.
    """
    if (raw := _unspelled(given)) is not None:
        return raw
    if not os.path.exists(given):
        raise InvalidInput(what="the public key", why=f"{given!r} is neither a file nor 32 bytes in base64")
    data = _file(given)
    if (raw := _unspelled(data.decode("ascii", "replace"))) is not None:
        return raw
    crypto = _crypto()
    if b"PRIVATE KEY" in data:
        return base64.b64decode(_spelled(_private_key(given).public_key()))
    try:
        key = crypto.serialization.load_pem_public_key(data)
    except ValueError:
        raise InvalidInput(what=f"public key {given}", why="it holds no PEM and no base64 of a key") from None
    if not isinstance(key, crypto.Ed25519PublicKey):
        raise InvalidInput(what=f"public key {given}", why="it is not an Ed25519 key")
    return base64.b64decode(_spelled(key))


def spelled_public_key(given: str) -> str:
    """Return a public key, given as for ``check``, in base64."""
    return base64.b64encode(public_key(given)).decode("ascii")


def listed(platform: Platform, stored: StoredManifest) -> list[tuple[Event, Signature]]:
    """Return the signatures of a manifest with the events that hold them, oldest first. They are not checked."""
    out: list[tuple[Event, Signature]] = []
    after = 0
    while page := platform.store.events(stored.to_session, after=after, limit=1000, kinds=("session",)):
        for event in page:
            body = body_of(event)
            if not isinstance(body, SessionChange) or body.change != "signed" or body.signature is None:
                continue
            if body.signature.manifest == stored.id:
                out.append((event, body.signature))
        after = page[-1].seq
    return out


def sign(platform: Platform, stored: StoredManifest, signer: Signer) -> Event:
    """Sign a manifest now. A key signs a manifest once: asking again returns the event that holds its signature."""
    digest = content_digest(stored.body)
    if digest != stored.digest:
        raise InvalidInput(
            what=f"manifest {stored.id}", why=f"its bytes have the digest {digest}, not {stored.digest}"
        )
    for event, signature in listed(platform, stored):
        if signature.public_key == signer.public_key and signature.digest == digest:
            return event
    made = signed(platform, stored, signer)
    written = platform.store.commit(Batch(appends=(Append(session_id=stored.to_session, events=(made,)),)))
    return written.events[0]


def signed(platform: Platform, stored: StoredManifest, signer: Signer) -> NewEvent:
    """Return the event that holds a new signature of a manifest. Nothing is written."""
    value = signer.sign(statement(stored.id, stored.digest))
    signature = Signature(
        manifest=stored.id,
        digest=stored.digest,
        public_key=signer.public_key,
        value=base64.b64encode(value).decode("ascii"),
    )
    change = SessionChange(change="signed", link=stored.link_id, signature=signature)
    return platform.event("session", change, "user", source=PERSON)


def check(platform: Platform, stored: StoredManifest, key: str | None = None) -> Checked:
    """Check the signatures of a manifest against its stored bytes, as anybody can who has them.

    With ``key`` (base64 or a file, see ``public_key``) one of them must be by that key. Raises InvalidInput for a key that
    is none, MissingExtra without the extra.
    """
    wanted = None if key is None else base64.b64encode(public_key(key)).decode("ascii")
    digest = content_digest(stored.body)
    states = tuple(
        SignatureState(
            event=event.id,
            at=event.at,
            public_key=signature.public_key,
            value=signature.value,
            ok=_holds(stored.id, digest, signature),
        )
        for event, signature in listed(platform, stored)
    )
    mine = [s for s in states if wanted in (None, s.public_key)]
    ok = any(s.ok for s in mine) if wanted is not None else bool(mine) and all(s.ok for s in mine)
    why = ""
    if not states:
        why = "it is not signed"
    elif not mine:
        why = f"it is not signed by {wanted}; it is by {', '.join(s.public_key for s in states)}"
    elif not ok:
        why = "the signature does not fit the bytes that are stored"
    return Checked(manifest=stored.id, digest=digest, signatures=states, ok=ok, why=why)


def stored_manifest(platform: Platform, manifest_id: str) -> StoredManifest:
    """Return a manifest as it is stored. Raises NotFound for one that is not here or may not be read."""
    stored = platform.store.manifest(manifest_id)
    if (
        stored is None
        or not platform.may_read(stored.from_session)
        or not platform.may_read(stored.to_session)
    ):
        raise NotFound(what="manifest", value=manifest_id)
    return stored


def _holds(manifest_id: str, digest: str, signature: Signature) -> bool:
    crypto = _crypto()
    raw = _unspelled(signature.public_key)
    try:
        value = base64.b64decode(signature.value, validate=True)
    except (binascii.Error, ValueError):
        return False
    if raw is None or signature.digest != digest:
        return False
    try:
        crypto.Ed25519PublicKey.from_public_bytes(raw).verify(value, statement(manifest_id, digest))
    except crypto.InvalidSignature:
        return False
    return True


class _Crypto(msgspec.Struct, frozen=True, kw_only=True):
    """The few names that are used of ``cryptography``."""

    serialization: Any
    Ed25519PrivateKey: Any
    Ed25519PublicKey: Any
    InvalidSignature: Any


def _crypto() -> _Crypto:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    except ImportError as missing:
        raise MissingExtra(feature="Signing manifests and checking signatures", extra="signing") from missing
    return _Crypto(
        serialization=serialization,
        Ed25519PrivateKey=Ed25519PrivateKey,
        Ed25519PublicKey=Ed25519PublicKey,
        InvalidSignature=InvalidSignature,
    )


def _private_key(path: str) -> Any:
    """Return the private key in a file. Raises InvalidInput for one that others can read, and for what is no such key."""
    crypto = _crypto()
    data = _file(path, private=True)
    try:
        key = crypto.serialization.load_pem_private_key(data, password=None)
    except TypeError:
        raise InvalidInput(
            what=f"key file {path}", why="it is encrypted; Onward has nobody to ask for its passphrase"
        ) from None
    except ValueError:
        raise InvalidInput(what=f"key file {path}", why="it holds no private key in PEM") from None
    if not isinstance(key, crypto.Ed25519PrivateKey):
        raise InvalidInput(what=f"key file {path}", why="it is not an Ed25519 key")
    return key


def _file(path: str, *, private: bool = False) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(MAX_KEY_FILE + 1)
    except OSError as error:
        raise InvalidInput(what=f"key file {path}", why=f"it cannot be read: {error.strerror}") from None
    if len(data) > MAX_KEY_FILE:
        raise InvalidInput(what=f"key file {path}", why=f"it is larger than {MAX_KEY_FILE:,} bytes")
    if private and os.name == "posix" and mode & 0o077:
        raise InvalidInput(
            what=f"key file {path}",
            why=f"others may read it (mode {mode:04o}); make it yours alone: chmod 600",
        )
    return data


def _spelled(key: Any) -> str:
    """Return a public key as base64."""
    crypto = _crypto()
    encoding, form = crypto.serialization.Encoding.Raw, crypto.serialization.PublicFormat.Raw
    return base64.b64encode(key.public_bytes(encoding, form)).decode("ascii")


def _unspelled(text: str) -> bytes | None:
    """Return the 32 bytes behind a base64 text, or None when it is none."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == _RAW else None
