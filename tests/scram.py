"""SCRAM-SHA-256 (RFC 5802, RFC 7677): secrets, and the client's side of an exchange."""

import base64
import hashlib
import hmac
import os


def _hmac(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def _b64(raw):
    return base64.b64encode(raw).decode()


def secret(password, iterations=4096, salt=None):
    """The text that PostgreSQL keeps for a password."""
    salt = os.urandom(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    server = _hmac(salted, b"Server Key")
    return f"SCRAM-SHA-256${iterations}:{_b64(salt)}${_b64(stored)}:{_b64(server)}"


def md5_secret(password, user):
    """The text that PostgreSQL keeps under password_encryption = md5."""
    return "md5" + hashlib.md5((password + user).encode()).hexdigest()


class ClientExchange:
    """A login; messages are text as in RFC 5802."""

    def __init__(self, password, gs2="n,,"):
        self._password = password.encode()
        self._gs2 = gs2
        self._bare = "n=,r=" + _b64(os.urandom(18))

    def first(self):
        return (self._gs2 + self._bare).encode()

    def final(self, server_first):
        text = server_first.decode()
        parts = dict(part.split("=", 1) for part in text.split(","))
        salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self._password, salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        without_proof = f"c={_b64(self._gs2.encode())},r={parts['r']}"
        message = f"{self._bare},{text},{without_proof}".encode()
        signature = _hmac(hashlib.sha256(client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.expected = b"v=" + _b64(_hmac(_hmac(salted, b"Server Key"), message)).encode()
        return f"{without_proof},p={_b64(proof)}".encode()
