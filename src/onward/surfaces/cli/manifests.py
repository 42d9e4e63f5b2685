"""``manifest`` and ``key``: what a projection holds, whether it comes out the same again, and who stands for it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from onward.core.events import iso
from onward.core.manifest import Manifest, decode_manifest
from onward.core.records import StoredManifest
from onward.errors import InvalidInput
from onward.service import recompiling, signing
from onward.service.platform import Platform
from onward.surfaces.cli import addresses, screen, terminal
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import opened


def manifest(call: Call) -> int:
    """Show a manifest, sign it, or compile its projection again and compare."""
    asked = [name for name in ("--verify", "--sign", "--raw") if call[name[2:]]]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} are different things; give one of them")
    if call["key"] is not None and not call["sign"]:
        raise UsageError("--key belongs to --sign")
    if call["public_key"] is not None and not call["verify"]:
        raise UsageError("--public-key belongs to --verify")
    with opened(call) as platform:
        given = call["ses"]
        name = given if given.startswith("man_") else addresses.session(platform, given).id
        stored = _stored(platform, name)
        record = decode_manifest(stored.body)
        if call["verify"]:
            return _verify(call, platform, stored, record)
        if call["sign"]:
            return _sign(call, platform, stored)
        if call["raw"]:
            sys.stdout.flush()
            sys.stdout.buffer.write(stored.body)
            return 0
        return _show(call, platform, stored, record)


def _stored(platform: Platform, name: str) -> StoredManifest:
    from onward.service import continuing

    return signing.stored_manifest(platform, continuing.manifest(platform, name).id)


def _show(call: Call, platform: Platform, stored: StoredManifest, record: Manifest) -> int:
    view = recompiling.manifest_view(platform, record)
    signatures = signing.listed(platform, stored)
    if call.json:
        document: dict[str, Any] = msgspec.structs.asdict(record)
        document |= {
            "manifest_digest": stored.digest,
            "sources_now": view.sources,
            "lost": view.lost,
            "signatures": [{"event": e.id, "at": iso(e.at), **_fields(s)} for e, s in signatures],
        }
        screen.document(document, pretty=True)
        return 0
    from onward.core.manifest_text import manifest_text

    for line in manifest_text(record, view.sources, width=terminal.width()):
        screen.say(line)
    screen.flow(f"manifest {stored.digest}")
    for _, signature in signatures:
        screen.flow(f"signed by {signature.public_key} (not checked here: --verify)")
    return 0


def _fields(signature: Any) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(signature)
    return {"algorithm": signature.algorithm, **fields}


def _verify(call: Call, platform: Platform, stored: StoredManifest, record: Manifest) -> int:
    """Compile a projection again; with a public key, check who signed the manifest as well."""
    compared = recompiling.compare(platform, record)
    checked = signing.check(platform, stored, call["public_key"]) if call["public_key"] is not None else None
    same = compared.same and not compared.differences
    ok = same and (checked is None or checked.ok)
    if call.json:
        document: dict[str, Any] = {
            "manifest": record.id,
            "digest": record.digest,
            "recompiled": compared.recompiled,
            "ok": ok,
            "differences": compared.differences,
        }
        if checked is not None:
            document["signature"] = {"ok": checked.ok, "why": checked.why, "manifest_digest": checked.digest}
        screen.document(document)
        return 0 if ok else 1
    if same:
        screen.say(f"{record.id}: compiled again from the log, the projection is the same ({record.digest}).")
    else:
        now = compared.recompiled or "nothing"
        screen.say(f"{record.id}: the manifest says {record.digest}, the log now gives {now}.")
        for part in compared.differences:
            which = f" {part.address}" if part.address else ""
            number = f" (source {part.source + 1})" if part.source is not None else ""
            screen.flow(f"{part.section}{which}{number}: {part.why}", "  ")
    if checked is not None:
        told = "signed by the holder of that key" if checked.ok else f"the signature fails: {checked.why}"
        screen.say(f"{record.id}: {told} ({checked.digest}).")
    return 0 if ok else 1


def _sign(call: Call, platform: Platform, stored: StoredManifest) -> int:
    """Sign a manifest with a key file, or with the one that the environment names."""
    signer = signing.KeyFile(call["key"]) if call["key"] is not None else platform.signer
    if signer is None:
        raise UsageError(f"--sign needs --key FILE, or {signing.KEY_VARIABLE}")
    event = signing.sign(platform, stored, signer)
    if call.json:
        screen.document(
            {
                "manifest": stored.id,
                "manifest_digest": stored.digest,
                "public_key": signer.public_key,
                "event": event.id,
            }
        )
    else:
        screen.say(f"{stored.id} is signed by {signer.public_key} (event {event.seq} of {event.session_id}).")
    return 0


def key(call: Call) -> int:
    """Make a key, or show its public half."""
    action, path = call["action"], call["file"]
    if action not in ("new", "public", "pem"):
        raise InvalidInput(what=f"action {action!r}", why="a key is made by new and shown by public or pem")
    if action == "new":
        public = signing.new_key(path)
    else:
        public = signing.spelled_public_key(path)
    if call.json:
        screen.document({"file": path, "public_key": public, "pem": signing.public_pem(public)})
    elif action == "pem":
        screen.say(signing.public_pem(public).rstrip())
    else:
        screen.say(public)
    return 0
