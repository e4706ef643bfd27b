"""A DNS server on loopback with the records that a test sets: addresses of names, and serials of zones."""

import socket
import struct
import threading

A, SOA, AAAA = 1, 6, 28
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3


def encoded(name):
    labels = name.rstrip(".").split(".")
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


class NameServer:
    """Answers over UDP. `hosts`: addresses by name. `serials`: numbers by zone."""

    def __init__(self, hosts=None, serials=None):
        self.hosts, self.serials = hosts or {}, serials or {}
        self.asked = []  # (type, name)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def resolv_conf(self):
        return f"nameserver [127.0.0.1]:{self.port}\noptions timeout:1\n"

    def stop(self):
        self._socket.sendto(b"", self._socket.getsockname())

    def count(self, kind, name):
        return self.asked.count((kind, name))

    def _serve(self):
        while True:
            try:
                packet, client = self._socket.recvfrom(4096)
                if not packet:
                    return self._socket.close()
                self._socket.sendto(self._reply(packet), client)
            except OSError:
                return

    def _reply(self, packet):
        labels, at = [], 12
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode().lower())
            at += 1 + packet[at]
        name, (kind,) = ".".join(labels), struct.unpack_from("!H", packet, at + 1)
        question = packet[12:at + 5]
        self.asked.append((kind, name))
        code, records = self._records(kind, name)
        answers = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 5, len(data)) + data for data in records)
        flags = 0x8580 | code  # an authoritative answer
        return packet[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + answers

    def _records(self, kind, name):
        if kind == SOA and name in self.serials:
            numbers = struct.pack("!5I", self.serials[name], 60, 60, 60, 60)
            return NO_ERROR, [encoded("ns." + name) + encoded("admin." + name) + numbers]
        addresses = self.hosts.get(name)
        if addresses is None:
            known = any(zone == name or name.endswith("." + zone) for zone in self.serials)
            return (NO_ERROR if known and kind == SOA else NO_SUCH_NAME), []
        family = {A: socket.AF_INET, AAAA: socket.AF_INET6}.get(kind)
        return NO_ERROR, [socket.inet_pton(family, one) for one in addresses
                          if family is not None and (":" in one) == (kind == AAAA)]
