"""A manifest can be signed beside itself, and anybody with the public key can check it."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.needs import ROOT
from tests.service.conversations import CITING, COMMAND, World, bodies

from onward.core.bodies import SessionChange
from onward.core.records import StoredManifest
from onward.errors import InvalidInput, MissingExtra, NotFound
from onward.service import continuing, signing

pytest.importorskip("cryptography", reason="the extra `signing` is not installed")


@pytest.fixture
def key(tmp_path: Path) -> signing.KeyFile:
    """A key of somebody's."""
    path = str(tmp_path / "key.pem")
    signing.new_key(path)
    return signing.KeyFile(path)


def continued(world: World) -> StoredManifest:
    """Continue a session and return the manifest as it is stored."""
    made = world.log.continue_session(world.conversation(4), CITING)
    return signing.stored_manifest(world.platform, made.manifest)


def signatures(world: World, stored: StoredManifest) -> list[SessionChange]:
    """The signatures in a successor's log."""
    return [b for b in bodies(world.events(stored.to_session), SessionChange) if b.change == "signed"]


@pytest.mark.requirement("P1")
def test_a_signature_stands_beside_the_manifest_and_changes_nothing_in_it(
    world: World, key: signing.KeyFile
) -> None:
    stored = continued(world)
    event = signing.sign(world.platform, stored, key)
    assert event.session_id == stored.to_session
    assert world.store.manifest(stored.id) == stored
    assert world.log.compare(world.log.manifest(stored.id)).same
    assert world.log.verify().ok
    checked = signing.check(world.platform, stored, key.public_key)
    assert checked.ok
    assert checked.digest == stored.digest == "sha256:" + hashlib.sha256(stored.body).hexdigest()


def test_a_key_signs_a_manifest_once_and_another_key_may_sign_it_too(
    world: World, key: signing.KeyFile, tmp_path: Path
) -> None:
    stored = continued(world)
    first = signing.sign(world.platform, stored, key)
    assert signing.sign(world.platform, stored, key) == first
    signing.new_key(str(tmp_path / "other.pem"))
    other = signing.KeyFile(str(tmp_path / "other.pem"))
    unsigned = signing.check(world.platform, stored, other.public_key)
    assert not unsigned.ok
    assert "not signed by" in unsigned.why
    signing.sign(world.platform, stored, other)
    assert len(signatures(world, stored)) == 2
    assert signing.check(world.platform, stored, other.public_key).ok
    assert signing.check(world.platform, stored).ok


@pytest.mark.requirement("C2")
def test_a_platform_that_signs_does_so_in_the_transaction_of_the_continuation(
    world: World, key: signing.KeyFile
) -> None:
    platform = msgspec.structs.replace(world.platform, signer=key)
    made = continuing.continue_session(platform, world.conversation(), COMMAND)
    stored = signing.stored_manifest(platform, made.manifest)
    assert signing.check(platform, stored, key.public_key).ok
    assert len(signatures(world, stored)) == 1


@pytest.mark.requirement("C2")
def test_a_key_that_cannot_be_used_leaves_nothing_half_done(world: World, tmp_path: Path) -> None:
    session_id = world.conversation()
    before = world.everything()
    platform = msgspec.structs.replace(world.platform, signer=signing.KeyFile(str(tmp_path / "gone.pem")))
    with pytest.raises(InvalidInput, match="cannot be read"):
        continuing.continue_session(platform, session_id, COMMAND)
    assert world.everything() == before


@pytest.mark.parametrize("at", [0, 40, -2])
def test_a_changed_byte_of_the_manifest_breaks_its_signature(
    world: World, key: signing.KeyFile, at: int
) -> None:
    stored = continued(world)
    signing.sign(world.platform, stored, key)
    body = bytearray(stored.body)
    body[at] ^= 1
    checked = signing.check(world.platform, msgspec.structs.replace(stored, body=bytes(body)), key.public_key)
    assert not checked.ok
    assert "does not fit" in checked.why
    with pytest.raises(InvalidInput, match="its bytes have the digest"):
        signing.sign(world.platform, msgspec.structs.replace(stored, body=bytes(body)), key)


def test_a_signature_of_one_manifest_does_not_hold_for_another(world: World, key: signing.KeyFile) -> None:
    one, other = continued(world), continued(world)
    signing.sign(world.platform, one, key)
    (signed,) = signatures(world, one)
    assert signed.signature is not None
    forged = msgspec.structs.replace(signed.signature, manifest=other.id, digest=other.digest)
    change = msgspec.structs.replace(signed, signature=forged)
    world.tell(other.to_session, world.platform.event("session", change, "user"))
    assert not signing.check(world.platform, other, key.public_key).ok


@pytest.mark.parametrize("value", ["", "not base64!", base64.b64encode(b"x" * 64).decode()])
def test_a_malformed_signature_fails_and_says_so(world: World, key: signing.KeyFile, value: str) -> None:
    stored = continued(world)
    signing.sign(world.platform, stored, key)
    (signed,) = signatures(world, stored)
    assert signed.signature is not None
    other = continued(world)
    broken = msgspec.structs.replace(signed.signature, manifest=other.id, digest=other.digest, value=value)
    change = msgspec.structs.replace(signed, signature=broken)
    world.tell(other.to_session, world.platform.event("session", change, "user"))
    assert not signing.check(world.platform, other).ok


def test_a_manifest_that_nobody_signed_is_not_signed(world: World, key: signing.KeyFile) -> None:
    checked = signing.check(world.platform, continued(world), key.public_key)
    assert (checked.ok, checked.why) == (False, "it is not signed")


def test_a_new_key_is_its_owners_alone_and_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    public = signing.new_key(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(base64.b64decode(public)) == 32
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="never overwritten"):
        signing.new_key(str(path))
    assert path.read_bytes() == before


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    signing.new_key(str(path))
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match="mode 0640"):
        signing.KeyFile(str(path)).sign(b"x")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"]
)
def test_what_is_no_key_is_named_as_that(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InvalidInput, match=r"key\.pem"):
        signing.KeyFile(str(path)).sign(b"x")
    with pytest.raises(InvalidInput, match=r"key\.pem"):
        signing.public_key(str(path))
    with pytest.raises(InvalidInput, match="neither a file nor 32 bytes"):
        signing.public_key("AAAA")


def test_a_public_key_is_taken_in_base64_as_pem_and_from_its_private_file(
    key: signing.KeyFile, tmp_path: Path
) -> None:
    raw = base64.b64decode(key.public_key)
    (tmp_path / "public.pem").write_text(signing.public_pem(key.public_key), "ascii")
    (tmp_path / "public.txt").write_text(key.public_key + "\n", "ascii")
    for given in (key.public_key, str(tmp_path / "public.pem"), str(tmp_path / "public.txt"), key.path):
        assert signing.public_key(given) == raw


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, key: signing.KeyFile) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match="signing"):
        key.sign(b"x")


@pytest.mark.requirement("A1")
def test_a_manifest_of_another_account_can_be_neither_signed_nor_checked(world: World) -> None:
    stored = continued(world)
    with pytest.raises(NotFound):
        signing.stored_manifest(world.acting("acc_0000000000000000000000000Z").platform, stored.id)


def test_an_environment_that_names_no_key_signs_nothing() -> None:
    assert signing.from_environment({}) is None
    assert signing.from_environment({"ONWARD_SIGNING_KEY": ""}) is None
    made = signing.from_environment({"ONWARD_SIGNING_KEY": "~/key.pem"})
    assert isinstance(made, signing.KeyFile)
    assert made.path == os.path.expanduser("~/key.pem")


@pytest.fixture
def published(world: World, key: signing.KeyFile, tmp_path: Path) -> list[str]:
    """What somebody else is given to check a manifest: its bytes, its id, the signature and the public key."""
    stored = continued(world)
    signing.sign(world.platform, stored, key)
    (signed,) = signatures(world, stored)
    assert signed.signature is not None
    (tmp_path / "manifest.json").write_bytes(stored.body)
    return [str(tmp_path / "manifest.json"), stored.id, signed.signature.value, key.public_key]


def test_the_ten_lines_in_the_docs_check_a_signature_without_onward(published: list[str]) -> None:
    script = ROOT / "docs" / "check_signature.py"
    assert "onward." not in script.read_text("utf-8").replace("onward-manifest-v1", "")

    def status(arguments: list[str]) -> int:
        return subprocess.run(
            [sys.executable, str(script), *arguments], capture_output=True, timeout=60, check=False
        ).returncode

    assert status(published) == 0
    Path(published[0]).write_bytes(Path(published[0]).read_bytes() + b" ")
    assert status(published) != 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_checks_a_signature_as_the_docs_say(published: list[str], tmp_path: Path) -> None:
    manifest, name, value, public = published
    (tmp_path / "public.pem").write_text(signing.public_pem(public), "ascii")
    digest = hashlib.sha256(Path(manifest).read_bytes()).hexdigest()
    (tmp_path / "statement").write_text(f"onward-manifest-v1\n{name}\nsha256:{digest}\n", "ascii")
    (tmp_path / "signature").write_bytes(base64.b64decode(value))
    command = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        "public.pem",
        "-rawin",
        "-in",
        "statement",
    ]
    command += ["-sigfile", "signature"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "statement").write_text(f"onward-manifest-v1\n{name}\nsha256:{'0' * 64}\n", "ascii")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False).returncode != 0
