"""The Debian package from installation to purge, the image, and the static binary."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

import cluster as clusters
import machine
import pooler as poolers

PACKAGING = poolers.ROOT / "packaging"

pytestmark = pytest.mark.pgweir_only("it is pgweir's package")


def run(*command, **options):
    """Runs a command that must succeed. Returns its output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def build(folder, **environment):
    """Builds the package of the program under test."""
    environment = {"COMPRESSION": "0"} | environment
    done = run(PACKAGING / "deb/build", poolers.binary(), folder, env=os.environ | environment)
    return Path(done.splitlines()[-1])


def modes(root):
    """Permissions of all files below a folder, by path; folders end in a slash."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root)) + ("/" if path.is_dir() else "")
        found[name] = stat.S_IMODE(path.lstat().st_mode)
    return found


# -- the contents of the package

def test_contents(folder):
    """All files are there, only programs are executable, and only the service reads the secrets."""
    package = build(folder / "made")
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).splitlines()
                  if not line.startswith(" "))
    assert package.name == f"pgweir_{fields['Version']}_{fields['Architecture']}.deb"
    assert "postgresql-common" in fields["Depends"] and "libc6 (>= " in fields["Depends"]
    assert "libpam0g (>= " in fields["Depends"]
    assert "procps" in fields["Depends"]  # has the program `kill` of the unit's ExecReload
    owners = {line.split()[1] for line in run("dpkg-deb", "-c", package).splitlines()}
    assert owners == {"root/root"}

    run("dpkg-deb", "-x", package, folder / "tree")
    run("dpkg-deb", "-e", package, folder / "control")
    files = modes(folder / "tree")
    assert {name for name, mode in files.items() if mode & 0o111 and not name.endswith("/")} == {
        "usr/bin/pgweir"}
    assert {name for name, mode in files.items() if mode == 0o640} == {
        "etc/pgweir/pgweir.ini", "etc/pgweir/userlist.txt"}
    assert not [name for name, mode in files.items() if mode & 0o022]
    assert set(files) >= {
        "usr/lib/systemd/system/pgweir.service", "usr/lib/systemd/system/pgweir@.service",
        "usr/lib/systemd/system/pgweir.socket",
        "etc/default/pgweir", "etc/logrotate.d/pgweir", "var/log/pgweir/",
        "usr/share/man/man1/pgweir.1.gz", "usr/share/man/man5/pgweir.ini.5.gz",
        "usr/share/doc/pgweir/copyright", "usr/share/doc/pgweir/changelog.gz",
        "usr/share/doc/pgweir/crates.gz", "usr/share/doc/pgweir/migrating.md", "usr/share/doc/pgweir/errors.md",
        "usr/share/doc/pgweir/examples/pgweir.ini", "usr/share/doc/pgweir/examples/pgweir.rules.yml",
        "usr/share/doc/pgweir/examples/pgweir.grafana.json"}

    conffiles = (folder / "control/conffiles").read_text().split()
    assert sorted(conffiles) == sorted(f"/{name}" for name in files
                                       if name.startswith("etc/") and not name.endswith("/"))
    sums = dict(reversed(line.split("  ")) for line in
                (folder / "control/md5sums").read_text().splitlines())
    assert sums == {name: hashlib.md5((folder / "tree" / name).read_bytes()).hexdigest()
                    for name in files if not name.endswith("/")}
    for script in "postinst", "prerm", "postrm":
        run("sh", "-n", folder / "control" / script)
    assert run(folder / "tree/usr/bin/pgweir", "--version").startswith("pgweir ")

    template = (folder / "tree/usr/lib/systemd/system/pgweir@.service").read_text()
    assert "CONFIG=/etc/pgweir/%i.ini" in template and "/etc/default/pgweir-%i" in template


def test_unit(folder, program):
    """systemd reports no problem of the unit."""
    unit = folder / "pgweir.service"
    unit.write_text((PACKAGING / "pgweir.service").read_text().replace("/usr/bin/pgweir", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)],
                          capture_output=True, text=True, env=os.environ | {"SYSTEMD_LOG_LEVEL": "warning"})
    said = [line for line in done.stderr.splitlines() if str(unit) in line or "pgweir" in line]
    assert (done.returncode, said) == (0, [])
    text = unit.read_text()
    for word in "Type=notify", "LimitCORE=0", "LimitNOFILE=", "NoNewPrivileges=yes":
        assert f"\n{word}" in text


def test_socket_unit(folder, program):
    """systemd accepts the unit as the socket of the service."""
    for name in "pgweir.service", "pgweir.socket":
        (folder / name).write_text((PACKAGING / name).read_text().replace("/usr/bin/pgweir", str(program)))
    environment = os.environ | {"SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{folder}:"}
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(folder / "pgweir.socket")],
                          capture_output=True, text=True, env=environment)
    said = [line for line in done.stderr.splitlines() if "pgweir" in line]
    assert (done.returncode, said) == (0, [])
    assert "[Install]\nWantedBy=sockets.target\n" in (folder / "pgweir.socket").read_text()


def test_socket_activation(new_pooler, newest_pg, program):
    """systemd listens by the socket unit, and starts pgweir with these sockets for the first client. `pgweir check`
    sees them. An online restart keeps them.
    """
    one = new_pooler(newest_pg)
    one.write_files()
    places = re.findall(r"^ListenStream=(.*)$", (PACKAGING / "pgweir.socket").read_text(), flags=re.MULTILINE)
    places = [place.replace("/run/postgresql", str(one.folder)).replace("6432", str(one.port)) for place in places]
    assert places == [f"127.0.0.1:{one.port}", one.unix_path]
    listens = [word for place in places for word in ("-l", place)]
    old = one.spawn(within=["systemd-socket-activate", *listens]).process
    machine.wait_until(lambda: Path(one.unix_path).exists(), what="systemd listens")
    checked = run(program, "check", one.ini_path)
    for key, place in zip(("listen_addr", "unix_socket_dir"), places):
        assert re.search(rf"^ *{key}: {place} is held by systemd-.* \(process {old.pid}\)", checked, re.MULTILINE)
    with connect(one.port) as first:
        assert first.execute("SELECT 1").fetchone() == (1,)
        one.expect_log("sockets passed from service manager, listen_addr ignored")
        one.spawn("-R")
        assert old.wait(30) == 0, one.log_tail()
        assert first.execute("SELECT 2").fetchone() == (2,)
    with connect(one.port) as later, poolers.RawClient.unix(one.unix_path) as unix:
        assert later.execute("SELECT 3").fetchone() == (3,)
        unix.login("trusty", "app")
    assert f"(process {one.pid})" in run(program, "check", one.ini_path)


@pytest.mark.parametrize("page", ["pgweir.1", "pgweir.ini.5"])
def test_manual_pages(page):
    """groff formats the pages without a warning."""
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", PACKAGING / "man" / page],
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SEE ALSO" in re.sub("\x1b[^m]*m|.\x08", "", done.stdout)


def test_pgweir_starts_with_the_packages_ini(new_pooler, folder):
    """pgweir starts with the configuration of the package."""
    text = (PACKAGING / "pgweir.ini").read_text()
    (folder / "userlist.txt").touch(mode=0o600)
    machine.give_to_service(folder / "userlist.txt")
    for key, value in {"listen_port": machine.free_port(), "unix_socket_dir": folder,
                       "pidfile": folder / "pid", "auth_file": folder / "userlist.txt"}.items():
        text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    one = new_pooler()
    one.write_files()
    one.write_ini(text)
    one.spawn()
    one.expect_log("process up: ")
    warnings = re.findall(r"WARNING (no \w+)?", one.log_path.read_text())
    assert warnings == ["no databases", "no users"]


def test_the_book_is_in_it(folder):
    """The package contains the book if it was built, which `make deb` does first."""
    book = folder / "book"
    (book / "FontAwesome").mkdir(parents=True)
    (book / "index.html").write_text("<html></html>")
    (book / "FontAwesome/a b.css").write_text("a {}")
    # Any program will do, and a small one is packed faster.
    package = Path(run(PACKAGING / "deb/build", "/bin/true", folder / "made", book).splitlines()[-1])
    run("dpkg-deb", "-x", package, folder / "tree")
    html = folder / "tree/usr/share/doc/pgweir/html"
    assert {str(path.relative_to(html)) for path in html.rglob("*.*")} == {"index.html", "FontAwesome/a b.css"}


@pytest.mark.parametrize("version", clusters.VERSIONS)
def test_extension(folder, version):
    """The package of the extension, for each PostgreSQL whose headers are here, has the library and no more."""
    pg_config = clusters.bindir(version) / "pg_config"
    package = Path(run(PACKAGING / "deb/build-assist", pg_config, folder / "made").splitlines()[-1])
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).splitlines()
                  if not line.startswith(" "))
    assert package.name == f"postgresql-{version}-pgweir-assist_{fields['Version']}_{fields['Architecture']}.deb"
    assert f"postgresql-{version}" in fields["Depends"] and "libc6 (>= " in fields["Depends"]
    run("dpkg-deb", "-x", package, folder / "tree")
    files = modes(folder / "tree")
    assert [name for name in files if name.endswith(".so")] == [f"usr/lib/postgresql/{version}/lib/pgweir_assist.so"]
    assert not [name for name, mode in files.items() if mode & (0o022 if name.endswith("/") else 0o133)]


def test_the_extension_loads(folder, newest_pg):
    """The library of the package reports a session, once it is loaded."""
    pg_config = clusters.bindir(clusters.VERSIONS[-1]) / "pg_config"
    package = run(PACKAGING / "deb/build-assist", pg_config, folder / "made").splitlines()[-1]
    run("dpkg-deb", "-x", package, folder / "tree")
    [library] = (folder / "tree").rglob("pgweir_assist.so")
    newest_pg.run(f"ALTER ROLE postgres IN DATABASE other SET session_preload_libraries = '{library}'")
    try:
        with newest_pg.connect(dbname="other") as db:
            db.execute("SET search_path = a, b")
            assert "search_path" in db.execute("SELECT current_setting('pgweir.session_state')").fetchone()[0]
    finally:
        newest_pg.run("ALTER ROLE postgres IN DATABASE other RESET session_preload_libraries")


# -- installation, upgrade, removal

class Chroot:
    """A fresh Debian 12 in a folder, without a running system."""

    def __init__(self, folder):
        self.root = folder / "debian"
        self.notify = None
        self.process = None

    def make(self):
        run("debootstrap", "--variant=minbase", "bookworm", self.root, "http://deb.debian.org/debian")

    def run(self, *command):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive",
                       "LC_ALL": "C", "http_proxy": os.environ.get("http_proxy", "")}
        return run("chroot", self.root, *command, env=environment)

    def install(self, package):
        shutil.copy(package, self.root / "tmp")
        return self.run("apt-get", "install", "-y", "-q", "--no-install-recommends", f"/tmp/{package.name}")

    def path(self, name):
        return self.root / name.lstrip("/")

    def start(self):
        """Starts the service as its unit does, and waits until it is ready."""
        unit = self.path("/usr/lib/systemd/system/pgweir.service").read_text()
        value = dict(re.findall(r"^(\w+)=(.*)$", unit, flags=re.MULTILINE))
        own = "\n".join(re.findall(r"^Environment=(.*)$", unit, flags=re.MULTILINE))
        default = self.path(value["EnvironmentFile"].lstrip("-")).read_text()
        environment = dict(re.findall(r"^(\w+)=(.*)$", f"{own}\n{default}", flags=re.MULTILINE))
        with contextlib.suppress(FileNotFoundError):
            self.path("/run/notify").unlink()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.path("/run/notify")))
        self.path("/run/notify").chmod(0o777)
        self.notify.settimeout(30)
        self.process = subprocess.Popen(
            ["chroot", self.root, "setpriv", f"--reuid={value['User']}", f"--regid={value['User']}",
             "--init-groups", "--bounding-set=-all", "--no-new-privs",
             "sh", "-c", f"exec {value['ExecStart']}"],
            env=environment | {"NOTIFY_SOCKET": "/run/notify", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self.expect_told("READY=1")
        except TimeoutError:
            self.process.kill()
            raise AssertionError(f"not ready: {self.process.communicate()[0]}") from None
        return environment

    def expect_told(self, text):
        """Waits until the service manager is notified; returns the rest of the line."""
        while True:
            told = self.notify.recv(1000).decode()
            if text in told:
                return told.split(text, 1)[1].split("\n", 1)[0]

    def stop(self, number=signal.SIGINT):
        if self.process is not None:
            self.process.send_signal(number)
            output, _ = self.process.communicate(timeout=30)
            code, self.process = self.process.returncode, None
            self.notify.close()
            return code, output
        return None


@pytest.fixture
def debian(tmp_path):
    one = Chroot(tmp_path)
    try:
        one.make()
        yield one
    finally:
        one.stop(signal.SIGKILL)
        shutil.rmtree(one.root, ignore_errors=True)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.geteuid() != 0, reason="a Debian in a folder needs root")
def test_install_upgrade_remove_and_purge(debian, folder, newest_pg):
    """The package is installed, started, upgraded, removed and purged. In between, the service runs with PgBouncer's
    files.
    """
    debian.install(build(folder, VERSION="1.0~first"))
    assert debian.path("/usr/bin/pgweir").exists()
    ini, default = "/etc/pgweir/pgweir.ini", "/etc/default/pgweir"
    assert debian.run("stat", "-c", "%U:%G %a", ini).strip() == "postgres:postgres 640"
    assert "pgweir.service" in debian.run("ls", "/etc/systemd/system/multi-user.target.wants")
    enabled = debian.run("find", "/etc/systemd/system", "-name", "pgweir*").split()
    assert enabled == ["/etc/systemd/system/multi-user.target.wants/pgweir.service"]

    # The operator's changes.
    port = machine.free_port()
    text = debian.path(ini).read_text().replace("listen_port = 6432", f"listen_port = {port}")
    text = text.replace("auth_type = scram-sha-256", "auth_type = trust").replace(
        "[databases]", f"[databases]\n* = host={newest_pg.host} port={newest_pg.port}")
    debian.path(ini).write_text(text)
    debian.path("/etc/pgweir/userlist.txt").write_text('"trusty" ""\n')
    debian.run("install", "-d", "-o", "postgres", "-g", "postgres", "/run/postgresql")
    expect_service(debian, port)

    expect_online_restart(debian, port, lambda: debian.install(build(folder, VERSION="1.0~second")))
    assert debian.run("dpkg-query", "-W", "-f", "${Version}", "pgweir") == "1.0~second"
    assert debian.path(ini).read_text() == text
    assert debian.run("stat", "-c", "%U:%G %a", ini).strip() == "postgres:postgres 640"
    expect_service(debian, port)

    # Debian's pgbouncer.ini, which logs to a file, as it is.
    debian.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "pgbouncer")
    debian.path(default).write_text("CONFIG=/etc/pgbouncer/pgbouncer.ini\n")
    theirs = debian.path("/etc/pgbouncer/pgbouncer.ini")
    before = theirs.read_bytes()
    theirs.write_bytes(before.replace(b"listen_port = 6432", f"listen_port = {machine.free_port()}".encode()))
    debian.start()
    assert debian.stop()[0] == 0
    assert "process up: " in debian.path("/var/log/postgresql/pgbouncer.log").read_text()

    debian.run("apt-get", "remove", "-y", "-q", "pgweir")
    assert not debian.path("/usr/bin/pgweir").exists() and debian.path(ini).exists()
    debian.run("apt-get", "purge", "-y", "-q", "pgweir")
    left = debian.run("find", "/etc", "/usr", "/var", "/run", "-name", "*pgweir*",
                      "-not", "-path", "/var/cache/*").split()
    assert left == []


def expect_online_restart(debian, port, upgrade):
    """The program is replaced while a client is connected, and the new process takes the client over."""
    debian.start()
    old = debian.process
    with connect(port) as connection:
        connection.execute("SET app.mine TO 'kept'")
        upgrade()
        assert os.readlink(f"/proc/{old.pid}/exe").endswith(" (deleted)")
        old.send_signal(signal.SIGALRM)  # what the package does on a system with systemd
        new = int(debian.expect_told("MAINPID="))
        try:
            assert old.wait(30) == 0
            assert not os.readlink(f"/proc/{new}/exe").endswith(" (deleted)")
            assert connection.execute("SHOW app.mine").fetchone() == ("kept",)
        finally:
            os.kill(new, signal.SIGQUIT)
    machine.wait_until(lambda: not Path(f"/proc/{new}/exe").exists(), what="the new process ends")
    debian.stop()


def connect(port):
    """A client of the service, each of whose statements is a transaction."""
    return poolers.psycopg.connect(host="127.0.0.1", port=port, user="trusty", dbname="app", autocommit=True)


def expect_service(debian, port):
    """The service serves clients, reloads, and ends by the signal that systemd sends."""
    debian.start()
    try:
        with connect(port) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        debian.process.send_signal(signal.SIGHUP)
        debian.expect_told("RELOADING=1")
        debian.expect_told("READY=1")
    finally:
        code, output = debian.stop()
    assert code == 0, output


# -- the image

@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.geteuid() != 0, reason="a Debian in a folder needs root")
def test_image(debian, folder, new_pooler, newest_pg):
    """podman builds the image from a Debian and the program under test, without the first stage, which would build the
    program. The test then runs the image's command in a chroot, as the Containerfile says.
    """
    podman = ["podman", "--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs",
              "--cgroup-manager", "cgroupfs"]
    recipe = (PACKAGING / "Containerfile").read_text()
    base = re.search(r"^FROM (\S*debian\S*)$", recipe, flags=re.MULTILINE)[1]
    stage = re.compile(r"^FROM \S* AS build$.*?(?=^FROM )", re.MULTILINE | re.DOTALL)
    recipe, count = stage.subn("FROM scratch AS build\nCOPY pgweir /pgweir\n\n", recipe)
    assert count == 1
    context = folder / "context"
    context.mkdir()
    (context / "Containerfile").write_text(recipe)
    shutil.copy(poolers.binary(), context / "pgweir")
    account = 10001
    try:
        run("sh", "-c", f"tar -C {debian.root} -c . | {' '.join(map(str, podman))} import -q - {base}")
        run(*podman, "build", "-q", "--pull=never", "--isolation", "chroot", "--network", "host", "-t", "pgweir",
            context)
        made = json.loads(run(*podman, "image", "inspect", "pgweir"))[0]["Config"]
        assert (made["User"], made["StopSignal"]) == (f"{account}:{account}", "SIGINT")
        container = run(*podman, "create", "pgweir").strip()
        root = Path(run(*podman, "mount", container).strip())
        one = new_pooler(newest_pg, unix_socket_dir="/run/pgweir", auth_file="/etc/pgweir/userlist.txt")
        one.write_files()
        (root / "etc/pgweir").mkdir()
        for path in one.ini_path, one.userlist_path:
            shutil.copy(path, root / "etc/pgweir")
            os.chown(root / "etc/pgweir" / path.name, account, account)
        expect_to_serve(one, ["chroot", f"--userspec={made['User']}", root, *made["Entrypoint"], *made["Cmd"]])
        assert list((root / "run/pgweir").iterdir()) == []
    finally:
        for command in (["rm", "-fa"], ["rmi", "-fa"]):
            subprocess.run([*podman, *command], capture_output=True)
        shutil.rmtree(folder / "store", ignore_errors=True)


def expect_to_serve(one, command):
    """Starts a command, checks that it serves clients, and ends it by SIGINT."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        machine.wait_until(lambda: not machine.is_free(one.port) or process.poll() is not None)
        with connect(one.port) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output


# -- the static binary

@pytest.mark.full
@pytest.mark.timeout(2400)
@pytest.mark.skipif(os.geteuid() != 0, reason="an empty root folder needs root")
def test_static(folder, new_pooler, newest_pg):
    """The binary needs no library, and serves from a folder without other files."""
    run("make", "static", "PROFILE=quick", cwd=poolers.ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or poolers.ROOT / "target")
    binary = target / f"{os.uname().machine}-unknown-linux-musl/quick/pgweir"
    assert "INTERP" not in run("readelf", "--program-headers", binary)
    assert "NEEDED" not in run("readelf", "--dynamic", binary)

    shutil.copy(binary, folder / "pgweir")
    account = machine.service_account()
    one = new_pooler(newest_pg, unix_socket_dir="", auth_file="/userlist.txt")
    one.write_files()
    for path in one.ini_path, one.userlist_path:
        shutil.copy(path, folder)
    expect_to_serve(one, ["chroot", f"--userspec={account.pw_uid}:{account.pw_gid}", folder, "/pgweir", "/pgweir.ini"])
