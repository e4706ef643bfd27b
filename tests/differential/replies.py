"""Replies in the form in which they are compared: without the parts that differ between any two servers."""

import re
import struct

# Temporary schemas are numbered by backend; prepared transactions are named by side.
_TEMP = re.compile(rb"pg_(toast_)?temp_\d+")
_GID = re.compile(rb"[TP](-\d+-[\w.]+-\d+)")
_FIRST_USER_OID = 16384
# In messages, PL/pgSQL writes a function's name as of the search_path under which the server has compiled it.
_COMPILED = re.compile(rb"(PL/pgSQL function )\w+\.")
# Whether an error names a missing temporary object or the missing temporary schema depends on earlier clients of the
# server.
_MISSING = re.compile(rb"\0C(?:3F000|42P01|42704|42883|00000)\0M[^\0]* does not exist(?:, skipping)?\0")
# The parameter by which the assist extension reports to pgweir.
_REPORT = b"pgweir.session_state\0"


def _hide(raw):
    return _GID.sub(rb"@\1", _TEMP.sub(rb"pg_\1temp_N", raw))


def split(buffer):
    """Takes whole messages off a bytearray: (kind, body) each."""
    messages, at, end = [], 0, len(buffer)
    while end - at >= 5:
        size = struct.unpack_from("!I", buffer, at + 1)[0] + 1
        if end - at < size:
            break
        messages.append((buffer[at : at + 1].decode("latin-1"), bytes(buffer[at + 5 : at + size])))
        at += size
    del buffer[:at]
    return messages


def comparable(messages, pid):
    """Returns messages as a list. Two lists are equal if a client can see no difference."""
    made, parameters, heard = [], [], []
    several = sum(kind == "Z" for kind, _ in messages) > 1
    for kind, body in messages:
        if kind == "A" and several:  # their place among the requests of a pipeline depends on the time
            heard.append(("A", _notification(body, pid)))
            continue
        if kind == "S":
            if not body.startswith(_REPORT):
                parameters.append(("S", body))
            continue
        if parameters and kind != "A":  # their order among themselves and notifications does not matter
            made += sorted(parameters)
            parameters = []
        made.append((kind, _SEEN[kind](body, pid) if kind in _SEEN else body))
    return made + sorted(parameters) + heard


def _complaint(body):
    if _MISSING.search(body):
        return "does not exist"
    if b"\0C25P02\0" in body:  # which message of a request was refused first does not matter
        return "aborted"
    return _COMPILED.sub(rb"\1", _hide(body))


def _row_description(body, _):
    (count,), at, fields = struct.unpack_from("!H", body), 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        table, number, oid, size, mod, form = struct.unpack_from("!IHIhih", body, end + 1)
        fields.append((body[at:end], table > 0, number, min(oid, _FIRST_USER_OID), size, mod, form))
        at = end + 19
    return tuple(fields)


def _notification(body, pid):
    (sender,) = struct.unpack_from("!I", body)
    return ("own" if sender == pid else sender, body[4:])


def _row(body, _):
    return body if b"temp_" not in body and b"-" not in body else tuple(_hide(value) for value in _values(body))


def _values(body):
    if isinstance(body, tuple):
        return body
    (count,), at, values = struct.unpack_from("!H", body), 2, []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        values.append(b"(null)" if size < 0 else body[at : at + size])
        at += max(size, 0)
    return values


_SEEN = {
    "T": _row_description,
    "A": _notification,
    "D": _row,
    "E": lambda body, _: _complaint(body),
    "N": lambda body, _: _complaint(body),
}


def readable(made, other):
    """Describes the messages and the columns of rows that are in `made` but not in `other`."""
    lines = []
    for n, (kind, seen) in enumerate(made):
        against = other[n] if n < len(other) else None
        if against == (kind, seen):
            lines.append(f"      {kind} the same")
        elif kind == "D" and against is not None and against[0] == "D":
            pairs = zip(_values(seen), _values(against[1]), strict=False)
            lines.append(f"      D {[(column, mine) for column, (mine, its) in enumerate(pairs) if mine != its]}")
        else:
            shown = repr(seen)
            lines.append(f"      {kind} {shown if len(shown) < 600 else shown[:600] + '...'}")
    return "\n".join(lines)
