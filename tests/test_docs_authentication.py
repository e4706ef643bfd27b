"""Logins with the examples of docs/authentication.md. test_docs.py runs `pgweir check` on each example."""

import re
import shutil

import psycopg
import pytest

import machine
from pooler import ROOT
from rawclient import LoginRefused

PAGE = (ROOT / "docs/authentication.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))

pytestmark = pytest.mark.pgweir_only("has keys and rules of its own")


def files(title):
    """The files of a section by their names, which stand in their first lines."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", SECTIONS[title], re.M | re.S)
    named = {re.match(r"[;#] ([\w.]+)", block): block for block in blocks}
    return {name[1]: text for name, text in named.items() if name}


@pytest.fixture
def lay_out(new_pooler, newest_pg, certificates):
    """A pooler that has not been started, with the files of a section."""

    def lay_out(title):
        pooler = new_pooler(newest_pg)
        for name, text in files(title).items():
            if name == "pgweir.ini":
                text = text.replace("host=127.0.0.1", f"host={newest_pg.host} port={newest_pg.port} dbname=app")
                text += f"listen_addr = {pooler.host}\nlisten_port = {pooler.port}\nunix_socket_dir = {pooler.folder}\n"
            (pooler.folder / name).write_text(text)
            machine.give_to_service(pooler.folder / name)
        for name, source in [("server.key", certificates.site.key), ("server.crt", certificates.site.cert),
                             ("ca.crt", certificates.authority.cert)]:
            machine.give_to_service(shutil.copy(source, pooler.folder / name))
        return pooler

    return lay_out


@pytest.mark.shows("auth_user", "auth_query", "auth_dbname")
def test_auth_query(lay_out, newest_pg):
    [script] = re.findall(r"^```sql\n(.*?)^```$", SECTIONS["auth_query"], re.M | re.S)
    with newest_pg.connect(dbname="app") as db:
        db.execute(script)
    try:
        pooler = lay_out("auth_query").spawn().listening()
        client = pooler.raw(user="scrammed", password="scram password")
        assert client.value("SELECT current_user") == "scrammed"
        client.close()
        with pytest.raises(LoginRefused):
            pooler.raw(user="scrammed", password="wrong")
        direct = psycopg.connect(host=newest_pg.host, port=newest_pg.port, dbname="app", user="looker")
        with direct as db, pytest.raises(psycopg.Error, match="permission denied"):
            db.execute("SELECT rolpassword FROM pg_authid")
    finally:
        with newest_pg.connect(dbname="app") as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'looker'")
            db.execute("DROP SCHEMA lookup CASCADE; DROP ROLE looker")


def test_rules(lay_out):
    pooler = lay_out("Rules (HBA)").spawn().listening()
    for user, words in [("ann", "password authentication failed"), ("cid", "no authentication method is found")]:
        with pytest.raises(LoginRefused) as error:
            pooler.raw(user=user, password="wrong")
        assert error.value.words == words
