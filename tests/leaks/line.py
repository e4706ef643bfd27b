"""A line of the table: objects of a database, and the texts by which a client leaves session state behind."""

from dataclasses import dataclass, field

from rawclient import SYNC, bind, execute, parse, query

# `{keep}` in a plpgsql body keeps session state: a custom parameter, and a setting that PostgreSQL knows.
KEEP = ("PERFORM pg_catalog.set_config('app.{x}', 'A', false); "
        "PERFORM pg_catalog.set_config('work_mem', '77MB', false);")
# The argument of setseed() in lines that hide the call.
SEED = "0.42"


@dataclass(frozen=True)
class Query:
    """A simple query, even if the other texts are sent by the extended protocol."""

    sql: str


@dataclass(frozen=True)
class Wire:
    """Messages as bytes, all in one write."""

    said: object  # from a `Names` to bytes


@dataclass(frozen=True)
class By:
    """A statement of another client, through another entry of [databases]."""

    entry: str
    sql: str


@dataclass(frozen=True)
class During:
    """Messages as bytes, a statement of another client through another entry before they are answered, then the rest.

    `leaves`: the client closes its socket "before" or "after" the other client's statement, and reads no answer.
    """

    said: object
    entry: str
    sql: str
    then: object = None
    leaves: str = ""


@dataclass(frozen=True)
class Leave:
    """Messages as bytes, after which the client closes its socket without reading the answers."""

    said: object


def disconnects(said):
    """Returns whether the client disconnects before it has read the answer."""
    return isinstance(said, Leave) or isinstance(said, During) and bool(said.leaves)


@dataclass(frozen=True)
class Line:
    """Setup is done past the pooler, by a superuser, before the pooler has seen the database.

    In all texts `{x}` is a name of the line's own. `alone`: its objects are in a database of their own, since they
    would make pgweir trust no text of the database. `forms`: by simple Query, by the extended protocol, or both.
    """

    words: str
    says: tuple
    setup: str = ""
    alone: bool = False
    forms: tuple = ("simple", "extended")
    customs: tuple = ()
    login: dict = field(default_factory=dict)
    rare: bool = False  # needs what a build of PostgreSQL may lack (libxml)
    sequence: str = ""  # whose currval() the neighbour asks, beside lastval()


def line(words, *says, **more):
    return Line(words, says, **more)


def keeper(args="", returns="int", value="1", how="VOLATILE", name="{x}_f"):
    """A function that keeps session state, by a body that hides nothing."""
    return (f"CREATE FUNCTION {name}({args}) RETURNS {returns} {how} LANGUAGE plpgsql AS "
            f"$k$ BEGIN {KEEP} RETURN {value}; END $k$; ")


TRIGGER = keeper(returns="trigger", value="COALESCE(NEW, OLD)")


def setting(value="A"):
    """A call that sets the line's custom parameter."""
    return f"set_config('app.{{x}}', '{value}', false)"


def filled(text, x):
    return text.replace("{keep}", KEEP).replace("{x}", x)


def messages(sql, form):
    """Returns the messages of a text: the bytes of one write."""
    return query(sql) if form == "simple" else parse(sql) + bind() + execute() + SYNC


__all__ = ["By", "During", "KEEP", "Leave", "Line", "Query", "SEED", "SYNC", "TRIGGER", "Wire", "bind", "disconnects", "execute", "filled",
           "keeper", "line", "messages", "parse", "query", "setting"]
