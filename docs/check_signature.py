"""Check who signed a manifest, without Onward: MANIFEST.json, its id, the signature and the public key (base64)."""

import base64
import hashlib
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

file, name, signature, public_key = sys.argv[1:]
with open(file, "rb") as manifest:
    digest = hashlib.sha256(manifest.read()).hexdigest()
key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key))
key.verify(base64.b64decode(signature), f"onward-manifest-v1\n{name}\nsha256:{digest}\n".encode())
print("signed by the holder of that key")  # verify raised nothing
