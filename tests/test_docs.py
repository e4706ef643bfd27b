"""README.md and docs/: links have targets, pgweir accepts the configurations, and the commands are run."""

import os
import re
import shlex
import subprocess
from urllib.parse import quote

import psycopg
import pytest

import pages
from pages import DOCS, PAGES
from pooler import ROOT
from test_quick_start import TLS_PASSWORD, TLS_USER, quick_start, wait_for  # noqa: F401 (a fixture)

pytestmark = pytest.mark.pgweir_only("has pages of its own")

WORDS = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "assist/README.md",
         "tests/README.md", "tests/drivers/README.md"]
README_LINES_MAX = 110

# Commands that another test runs, and where.
RUN_BY = {
    "pgweir postgres://user@host/db": "test_quick_start.py::test_password",
    "psql -h 127.0.0.1 -p 6432 -U user db": "test_quick_start.py::test_the_psql_line_works",
    "make deb-assist PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config": "test_package.py::test_extension",
    "apt install ./target/deb/pgweir_*.deb": "test_package.py::test_install_upgrade_remove_and_purge",
    "podman build -t pgweir -f packaging/Containerfile .": "test_package.py::test_image",
    "make static": "test_package.py::test_static",
    "pgweir -R /etc/pgweir/pgweir.ini": "test_restart.py::test_by_signal_and_by_console",
    "kill -ALRM PID": "test_restart.py::test_by_signal_and_by_console",
    "RESTART": "test_restart.py::test_by_signal_and_by_console",
    "pgweir pgweir.ini": "test_docs_recipes.py::test_one_database",
    "pgweir check /etc/pgbouncer/pgbouncer.ini": "test_commands.py",
    "pgweir drain --delay 10 --timeout 60 /etc/pgweir/config/pgweir.ini": "test_kubernetes.py::test_a_pod_serves_and_is_drained",
}
# Commands that no test runs, and why.
NOT_RUN = {
    "make test-faults": "takes ten minutes of the whole machine; `make test-full` runs test_faults.py",
    "tools/faults -k killed": "the same",
    "make demo": "needs a build of its own and a minute of the whole machine",
    "make build && target/release/pgweir postgres://user@host/db": "links for minutes; what it starts is run by test_quick_start.py",
    "make build": "links for minutes",
    "target/release/pgweir --version": "needs the build above it",
    "target/x86_64-unknown-linux-musl/release/pgweir --version": "needs the build above it; test_package.py::test_static runs the program",
    "make deb": "builds the book as well, two minutes; test_package.py packs without it",
    "git clone https://example.com/pgweir.git && cd pgweir": "the address is a placeholder",
    "editor /etc/pgweir/pgweir.ini /etc/pgweir/userlist.txt": "waits for a person",
    "systemctl reload pgweir": "needs a running systemd; test_package.py::test_unit has it check the unit",
    "journalctl -u pgweir": "needs a running systemd",
    "systemctl disable --now pgbouncer": "needs a running systemd",
    "systemctl enable --now pgbouncer": "needs a running systemd",
    "systemctl disable --now pgweir": "needs a running systemd",
    "systemctl enable --now pgweir": "needs a running systemd",
    "echo CONFIG=/etc/pgbouncer/pgbouncer.ini >> /etc/default/pgweir": "writes below /etc; test_package.py::test_install_upgrade_remove_and_purge does it in a folder",
    "podman run -p 6432:6432 -v ./pgweir:/etc/pgweir:ro pgweir": "containers do not start here; test_package.py::test_image runs the image's command",
    "docker compose up --build --wait": "fetches images; test_compose_file reads it",
    "psql -h 127.0.0.1 -p 6432 -U app app": "needs compose above it",
    "kubectl create secret generic pgweir-users --from-file=userlist.txt": "needs a cluster; test_kubernetes.py starts pods with such a secret",
    "kubectl apply -k packaging/kubernetes/base": "needs a cluster; test_kubernetes.py builds the manifests and starts a pod",
    "apt install ./target/deb/postgresql-15-pgweir-assist_*.deb": "installs on this machine",
    "sudo -u postgres psql -c \"ALTER SYSTEM SET session_preload_libraries = 'pgweir_assist'\" -c \"SELECT pg_reload_conf()\"":
        "changes a server of this machine; the assisted clusters of the tests load it so",
    "DATABASE_URL='postgresql://app@127.0.0.1:6432/app'": "is an assignment",
}
# Blocks in other languages that no test runs, by their first lines.
NOT_READ = {
    "// main.go": "a part of a program; test_drivers.py runs pgx",
}


# -- links and the table of contents

@pytest.mark.parametrize("path", sorted({*PAGES, *(ROOT / name for name in WORDS)}),
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_links(path):
    """Each link within the project leads to a file, and to a heading in it."""
    text = pages.without_blocks(path.read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    broken = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in pages.slugs(target.read_text())):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_book():
    listed = re.findall(r"\]\(([^)]+)\)", (DOCS / "SUMMARY.md").read_text())
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md") if path.name != "SUMMARY.md")


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_manual_page_shows_the_same_psql_line():
    line = "psql -h 127.0.0.1 -p 6432 -U user db"
    manual = (ROOT / "packaging/man/pgweir.1").read_text().replace("\\-", "-")
    assert line in manual and f"\n{line}\n" in (ROOT / "README.md").read_text()


# -- the comparison

def rows(text):
    """{first cell: other cells} of the tables in a text."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")]
             for line in text.splitlines() if line.startswith("| ")]
    return {line[0]: line[1:] for line in lines}


def test_comparison():
    """The table of the README has rows of the page, and the tests that the page lists for pgweir's column exist."""
    page = DOCS / "comparison.md"
    table, tests = page.read_text().split("## pgweir's column, by test")
    compared, shown = rows(table), rows(tests.split("## Where")[0])
    readme = rows(pages.sections(ROOT / "README.md")["How it compares"])
    assert len(readme) >= 8
    for name, cells in readme.items():
        assert cells == compared[name], name
    named = ", ".join(shown)
    unshown = [name for name, cells in compared.items() if name and cells[0].startswith("yes") and name not in named]
    assert not unshown
    for cell in (cells[0] for name, cells in shown.items() if name != "row"):
        for test in re.findall(r"`([\w.:]+)`", cell):
            expect_test(test)


def expect_test(name):
    file, _, function = name.partition("::")
    text = (ROOT / "tests" / file).read_text()
    assert not function or f"def {function}(" in text, name


# -- configurations

def with_ini():
    found = {}
    for block in pages.all_blocks():
        if block.file:
            found.setdefault((block.page, block.section), []).append(block)
    return {key: some for key, some in found.items() if any(block.file == "pgweir.ini" for block in some)}


@pytest.mark.parametrize("key", with_ini(), ids=lambda key: f"{key[0]}: {key[1]}")
def test_each_configuration_is_understood(new_pooler, newest_pg, certificates, program, key):
    """`pgweir check` reports nothing, and a start would succeed."""
    pooler = new_pooler(newest_pg)
    pages.write_files(pooler.folder, with_ini()[key], certificates)
    with open(pooler.folder / "pgweir.ini", "a") as ini:
        ini.write(f"listen_addr = {pooler.host}\nlisten_port = {pooler.port}\nunix_socket_dir = {pooler.folder}\n")
    done = subprocess.run([program, "check", "pgweir.ini"], cwd=pooler.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unknown" not in done.stdout and "no effect" not in done.stdout


# -- commands

def commands():
    """Returns (page, command) for all shell blocks. Comments behind commands are removed."""
    for block in pages.all_blocks("sh"):
        for line in block.text.splitlines():
            command = re.sub(r"\s+# .*", "", line)
            if command and not command.startswith("#"):
                yield block.page, command


def is_cloud(command):
    return command.startswith("pgweir 'postgres://")


def test_every_block_has_its_test():
    """Each language is known, and each command has a test or a reason why not."""
    known = {command for _, command in commands()}
    here = {command for command in known if command in HERE or is_cloud(command)}
    listed = set(RUN_BY) | set(NOT_RUN) | set(HERE)
    assert sorted(known - here - listed) == []
    assert sorted(listed - known) == [], "lists commands that no page has"
    for name in RUN_BY.values():
        expect_test(name)
    unread = [block for block in pages.all_blocks() if block.language not in ("sh", "ini", "sql", "text")
              and block.text.splitlines()[0] not in NOT_READ and block.file not in ("settings.py", "engine.py", "config/database.yml",
                                                              "application.properties")]
    expect_test("test_frameworks.py::test_active_record")
    assert unread == []
    sql = {(block.page, block.section) for block in pages.all_blocks("sql")}
    assert sql == {("docs/authentication.md", "auth_query"), ("docs/recipes.md", "Users from the database"),
                   ("docs/recipes.md", "Many tenants in one database")}
    expect_test("test_docs_authentication.py::test_auth_query")
    expect_test("test_docs_recipes.py::test_users_from_the_database")
    expect_test("test_docs_recipes.py::test_tenants")


# Commands that this test runs, and the text that their output must contain.
HERE = {
    "pgweir check pgweir.ini": "can be used",
    "mkdir moved": "",
    "pgweir import -o moved pgcat.toml": "",
    "pgweir check moved/pgweir.ini": "can be used",
}


def test_commands(new_pooler, newest_pg, certificates, program):
    pooler = new_pooler(newest_pg)
    [some] = [some for key, some in with_ini().items() if key == ("docs/recipes.md", "One database")]
    pages.write_files(pooler.folder, some, certificates, listen_addr=f"{pooler.host}\nlisten_port = {pooler.port}")
    (pooler.folder / "pgcat.toml").write_text((ROOT / "tests/import/pgcat.toml").read_text())
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    for command, words in HERE.items():
        done = subprocess.run(["sh", "-c", command], cwd=pooler.folder, capture_output=True, text=True,
                              env=os.environ | {"PATH": path})
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert words in done.stdout, command


@pytest.mark.parametrize("command", sorted(command for _, command in commands() if is_cloud(command)),
                         ids=lambda command: re.search(r"@([^:/]+)", command)[1])
def test_cloud_urls(quick_start, tls_pg, certificates, command):  # noqa: F811
    """The providers' URLs, with the host of a test server: pgweir accepts each parameter, and serves clients."""
    url = shlex.split(command)[1]
    url = re.sub(r"//[^/]+/\w+", f"//{TLS_USER}@localhost:{tls_pg.port}/app", url)
    url = re.sub(r"sslrootcert=/[^&]+", f"sslrootcert={quote(str(certificates.authority.cert), safe='')}", url)
    process = quick_start(url, PGPASSWORD=TLS_PASSWORD, SSL_CERT_FILE=str(certificates.authority.cert))
    wait_for(process)
    with psycopg.connect(host="127.0.0.1", port=6432, user=TLS_USER, password=TLS_PASSWORD, dbname="app") as db:
        assert db.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)
    assert "ignored" not in process.log.read_text()


# -- compose.yaml and the workflows

def test_compose_file(new_pooler, newest_pg, certificates, program):
    """The file is YAML, and pgweir accepts the configuration in it."""
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    configs = compose["configs"]
    mounted = {one["source"]: one["target"] for one in compose["services"]["pgweir"]["configs"]}
    assert (ROOT / compose["services"]["pgweir"]["build"]["dockerfile"]).is_file()
    pooler = new_pooler(newest_pg)
    userlist = pooler.folder / "userlist.txt"
    userlist.write_text(configs["userlist"]["content"])
    ini = configs["ini"]["content"].replace(mounted["userlist"], str(userlist))
    (pooler.folder / "pgweir.ini").write_text(ini + f"listen_port = {pooler.port}\nunix_socket_dir =\n")
    done = subprocess.run([program, "check", "pgweir.ini"], cwd=pooler.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_forms(path):
    """The files are YAML, and the programs of this repository that they run exist."""
    yaml = pytest.importorskip("yaml")
    text = path.read_text()
    assert yaml.safe_load(text)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:run: |^ {10,})make ([a-z-]+)", text, re.MULTILINE)) <= targets
    for name in re.findall(r"\b(?:packaging|docs|crates|tools)/[\w./-]+\w", text):
        assert (ROOT / name).exists() or name.endswith("pgweir.cdx.json"), name
