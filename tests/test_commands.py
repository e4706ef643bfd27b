"""`pgweir check` and `pgweir import`, which run no pooler. The expected texts are files in check/ and import/;
`PGWEIR_WRITE_EXPECTED=1` writes them anew.
"""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import machine

HERE = Path(__file__).parent

pytestmark = pytest.mark.pgweir_only("has no such command")


def run(program, *words, folder, **options):
    return subprocess.run(["prlimit", "--nofile=4096", program, *map(str, words)], cwd=folder, timeout=60,
                          capture_output=True, text=True, **options)


def compare(text, path):
    if os.environ.get("PGWEIR_WRITE_EXPECTED"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.fixture
def folder_with(folder):
    """A folder with copies of the files in check/ or import/."""
    def copied(name):
        for path in (HERE / name).iterdir():
            shutil.copy(path, folder)
            (folder / path.name).chmod(0o600)
        return folder
    return copied


# -- check


def test_check(program, folder_with):
    done = run(program, "check", "pgweir.ini", folder=folder_with("check"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "very secret" not in done.stdout and "the boss's password" not in done.stdout
    # Another pooler may use this port on this machine.
    lines = done.stdout.splitlines(keepends=True)
    said = "".join(line for line in lines if "6432 is in use" not in line and "6432 is held" not in line)
    compare(said, HERE / "check" / "expected.txt")


def test_check_aligns_columns(program, folder_with):
    done = run(program, "check", "pgweir.ini", folder=folder_with("check"))
    lines = done.stdout.splitlines()
    header = next(line for line in lines if line.startswith("  name"))
    app = next(line for line in lines if line.startswith("  app"))
    assert app[header.index("server"):].startswith("127.0.0.1:5433  ")
    assert app[header.index("pool_size"):].startswith("7 ")


@pytest.mark.parametrize("command", ["check", "import"])
def test_help_of_a_command(program, folder, command):
    done = run(program, command, "--help", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"pgweir {command}" in done.stdout
    assert (command == "check") == ("--reach" in done.stdout)


@pytest.mark.parametrize(("line", "said"), [
    ("pool_size = 3", '"pool_size"'),
    ("pool_mode = transactions", '"pool_mode"'),
    ("auth_file = missing.txt", "missing.txt: cannot be read"),
])
def test_check_of_invalid_settings(program, folder_with, line, said):
    folder = folder_with("check")
    with open(folder / "pgweir.ini", "a") as ini:
        ini.write(line + "\n")
    done = run(program, "check", "pgweir.ini", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


@pytest.mark.parametrize(("lines", "said"), [
    ("unix_socket_dir = none", "unix_socket_dir = none: No such file or directory"),
    ("unix_socket_group = no_such_group", 'there is no group "no_such_group"'),
    ("user = no_such_user", 'there is no user "no_such_user"'),
    ("logfile = none/a.log", "logfile = none/a.log: No such file or directory"),
    ("pidfile = none/a.pid", "pidfile = none/a.pid: No such file or directory"),
    ("pidfile = userlist.txt", "userlist.txt exists, but holds no process id"),
    ("listen_addr = 192.0.2.1", "cannot listen on 192.0.2.1"),
    ("listen_addr = no such name", 'cannot resolve "no such name"'),
    ("listen_addr =\nunix_socket_dir =", "nowhere to listen on"),
])
def test_check_finds_errors_of_a_start(program, folder_with, lines, said):
    folder = folder_with("check")
    with open(folder / "pgweir.ini", "a") as ini:
        ini.write(lines + "\n")
    before = sorted(folder.iterdir())
    done = run(program, "check", "pgweir.ini", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr and done.stderr.startswith("pgweir.ini:")
    assert sorted(folder.iterdir()) == before


@pytest.mark.skipif(os.getuid() != 0, reason="needs to be root")
def test_check_uses_the_rights_of_the_unix_user(program, folder):
    """Run by root, `pgweir check` checks as the user that the pooler would run as."""
    (folder / "own").mkdir()
    (folder / "own").chmod(0o700)
    for path in folder.parents:
        path.chmod(path.stat().st_mode | 0o011)
    folder.chmod(0o755)
    (folder / "a.ini").write_text("[pgbouncer]\nuser = nobody\nlogfile = own/a.log\n")
    (folder / "a.ini").chmod(0o644)
    done = run(program, "check", "a.ini", folder=folder)
    assert done.returncode == 1, done.stdout
    assert "logfile = own/a.log: Permission denied" in done.stderr and "user nobody" in done.stderr


def test_check_warns_of_an_auth_user_without_a_password(program, folder):
    (folder / "a.ini").write_text("[databases]\na = auth_dbname=b\nc =\n[pgbouncer]\nauth_user = looker\n")
    said = warnings(run(program, "check", "a.ini", folder=folder))
    assert [line for line in said if line.startswith("auth_")] == [
        "auth_dbname: b is not in [databases]: looker can't run auth_query there",
        "auth_user: there is no password for looker in auth_file: servers must accept looker without a password"]


def test_check_warns_of_ports_in_use(program, new_pooler):
    """Another process, usually the running pooler, uses the port, and does not notice the check."""
    pooler = new_pooler(None)
    pooler.start()
    machine.wait_until(lambda: pooler.log().count("unexpected eof") >= 2 and "process up" in pooler.log(),
                       what="its start is over")
    before = pooler.log()
    said = warnings(run(program, "check", pooler.ini_path, folder=pooler.folder))
    places = [("listen_addr", f"127.0.0.1:{pooler.port}"), ("unix_socket_dir", pooler.unix_path)]
    assert [line for line in said if "in use" in line] == [
        f"{key}: {place} is in use by pgweir (process {pooler.pid}): a start fails unless that has ended, or is a "
        "pgweir that this one takes over from (-R)" for key, place in places]
    assert pooler.log() == before


def test_check_warns_of_ports_that_need_a_capability(program, folder):
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if first == 0:
        pytest.skip("on this machine no port needs one")
    (folder / "a.ini").write_text(f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {first - 1}\n")
    said = "\n".join(warnings(run(program, "check", "a.ini", folder=folder)))
    assert f"listen_port = {first - 1}: a port below {first} is for who has CAP_NET_BIND_SERVICE" in said


def test_check_of_a_missing_file(program, folder):
    done = run(program, "check", "none.ini", folder=folder)
    assert done.returncode == 1 and "none.ini" in done.stderr


def warnings(done, code=0):
    assert done.returncode == code, done.stderr
    _, _, text = done.stdout.partition("\nWarnings\n")
    return [line.strip() for line in text.splitlines()]


def test_check_warns_of_files_that_all_can_read(program, folder_with):
    folder = folder_with("check")
    for name in ("pgweir.ini", "userlist.txt"):
        (folder / name).chmod(0o644)
    said = warnings(run(program, "check", "pgweir.ini", folder=folder))
    assert [line for line in said if "every user of this machine" in line] == [
        f"{name} holds secrets, and every user of this machine can read it: chmod o= {name}"
        for name in ("pgweir.ini", "userlist.txt")]


def test_check_warns_of_logins_without_a_password(program, folder):
    (folder / "a.ini").write_text("[pgbouncer]\nlisten_addr = *\nauth_type = any\nmax_client_conn = 100000\n")
    said = "\n".join(warnings(run(program, "check", "a.ini", folder=folder)))
    assert "auth_type = any: whoever can reach * logs in without a password" in said
    assert "the limit of open files is 4096" in said


@pytest.mark.parametrize(("lines", "is_needless"), [
    ("pool_mode = transaction", True), ("pool_mode = session", False),
    ("pool_mode = transaction\nsession_state = off", False),
    ("pool_mode = transaction\n[users]\nbatch = pool_mode=session", False)])
def test_check_names_startup_parameters_that_pgweir_carries(program, folder, lines, is_needless):
    (folder / "a.ini").write_text("[databases]\n* = host=127.0.0.1\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                                  f"ignore_startup_parameters = extra_float_digits, search_path\n{lines}\n")
    said = [line for line in warnings(run(program, "check", "a.ini", folder=folder))
            if "ignore_startup_parameters = extra_float_digits,search_path" in line]
    assert len(said) == is_needless


def test_check_reaches_servers(program, folder, start_server):
    """With `--reach`, it connects to the servers."""
    there, nowhere = start_server(lambda _: None), machine.free_port()
    (folder / "a.ini").write_text("[databases]\n"
                                  f"a = host=127.0.0.1 port={there.port}\nb = host=127.0.0.1 port={nowhere}\n")
    try:
        done = [run(program, "check", *flags, "a.ini", folder=folder) for flags in ((), ("--reach",))]
    finally:
        machine.release_port(nowhere)
    said = [[line for line in warnings(one, code) if "cannot reach" in line] for code, one in enumerate(done)]
    title = "\nReached (by a connection, in which nobody has logged in)\n"
    assert title not in done[0].stdout and f"{title}  127.0.0.1:{there.port}\n" in done[1].stdout
    assert said[0] == []
    (line,) = said[1]
    assert line.startswith(f"cannot reach the server at 127.0.0.1:{nowhere}: Connection refused")


# -- import


def secrets():
    return set(re.findall(r'"(secret(?:[^"\\]|\\.)*)"', (HERE / "import" / "pgcat.toml").read_text()))


def test_import(program, folder_with):
    done = run(program, "import", "pgcat.toml", folder=folder_with("import"))
    assert (done.returncode, done.stderr) == (0, "")
    compare(done.stdout, HERE / "import" / "expected.txt")
    comments = [line for line in done.stdout.splitlines() if line.startswith(";")]
    assert not any("secret" in line for line in comments)
    rest = done.stdout.replace('""', '"').replace("''", "'")
    for secret in secrets() - {"secret of a new kind"}:
        assert secret.replace('\\"', '"') in rest


def test_what_was_imported_can_be_used(program, folder_with):
    folder = folder_with("import")
    new = folder / "new"
    new.mkdir()
    assert run(program, "import", "-o", new, "pgcat.toml", folder=folder).returncode == 0
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in new.iterdir()} == {
        "pgweir.ini": 0o600, "userlist.txt": 0o600}
    done = run(program, "check", new / "pgweir.ini", folder=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"sharded_db_shard_1_replica +replica-1:5432 +shard1 ", done.stdout)
    # Existing files are not overwritten.
    (new / "pgweir.ini").unlink()
    (new / "userlist.txt").write_text("mine")
    again = run(program, "import", "-o", new, "pgcat.toml", folder=folder)
    assert again.returncode == 1 and "userlist.txt: cannot be written: File exists" in again.stderr
    assert [path.name for path in new.iterdir()] == ["userlist.txt"]
    assert (new / "userlist.txt").read_text() == "mine"


def test_an_imported_pooler_serves(program, folder, new_pooler, newest_pg):
    """Clients log in with the passwords of PgCat's file."""
    pooler = new_pooler(newest_pg)
    (folder / "pgcat.toml").write_text(f"""
        [general]
        host = "127.0.0.1"
        port = {pooler.port}
        admin_username = "boss"
        admin_password = "boss's"
        [pools.shop]
        users.0 = {{ username = "scrammed", password = "{pooler.users['scrammed']}", pool_size = 2 }}
        shards.0 = {{ servers = [["{newest_pg.host}", {newest_pg.port}, "primary"]], database = "app" }}
        """)
    done = run(program, "import", "-o", folder, "pgcat.toml", folder=folder)
    assert done.returncode == 0, done.stderr
    ini = (folder / "pgweir.ini").read_text()
    pooler.write_ini(ini + f"unix_socket_dir = {pooler.folder}\n")
    machine.give_to_service(folder / "userlist.txt")
    pooler.spawn().listening()
    with pooler.raw("scrammed", "shop", password=pooler.users["scrammed"]) as client:
        assert client.value("SELECT current_database()") == "app"
    with pooler.connect("boss", "pgbouncer", password="boss's") as console:
        assert console.execute("SHOW VERSION").fetchall()


@pytest.mark.parametrize(("text", "said"), [
    ('[general]\nadmin_password = "hush\n', "pgcat.toml:2: not valid TOML"),
    ("[databases]\n", "pgcat.toml: not a configuration of PgCat: it has no [pools]"),
])
def test_import_refuses_other_files(program, folder, text, said):
    (folder / "pgcat.toml").write_text(text)
    done = run(program, "import", "pgcat.toml", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr and "hush" not in done.stderr
