"""`config_watch`: pgweir reads its configuration again when the contents of its files have changed."""

import os
import shutil
import subprocess

import psycopg
import pytest

import machine

pytestmark = pytest.mark.pgweir_only("PgBouncer reads files again only at RELOAD")


class Mount:
    """A folder of files as Kubernetes mounts a ConfigMap: links to a link, which another one replaces at a change."""

    def __init__(self, folder):
        self.folder = folder / "mount"
        self._number = 0
        self._make(self.folder)

    def _make(self, folder):
        folder.mkdir()
        machine.give_to_service(folder)

    def replace(self, files):
        old, self._number = self.folder / f"..{self._number}", self._number + 1
        new = self.folder / f"..{self._number}"
        self._make(new)
        for name, text in files.items():
            (new / name).write_text(text)
            machine.give_to_service(new / name)
        link = self.folder / "..data_tmp"
        link.symlink_to(new.name)
        link.rename(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        if old.exists():
            shutil.rmtree(old)


class Mounted:
    """A pooler whose files are in such a folder."""

    def __init__(self, pooler):
        self.pooler = pooler
        self.mount = Mount(pooler.folder)
        pooler.settings |= {"auth_type": "scram-sha-256", "config_watch": 1, "auth_file": self.mount.folder / "userlist.txt"}
        pooler.ini_path = self.mount.folder / "pgweir.ini"

    def write(self, password="first", users="", **settings):
        """Replaces all files at once."""
        self.pooler.settings |= settings
        databases = [f"{name} = {value}" for name, value in self.pooler.databases.items()]
        values = [f"{key} = {value}" for key, value in self.pooler.settings.items()]
        ini = "\n".join(["[databases]", *databases, "[pgbouncer]", *values]) + "\n"
        self.mount.replace({"pgweir.ini": ini, "userlist.txt": f'"trusty" "{password}"\n"admin" "admin password"\n{users}'})

    def start(self):
        self.write()
        self.pooler.spawn().listening()
        self.pooler.expect_log("process up")
        return self

    def size(self):
        return self.pooler.setting("default_pool_size")

    def reloads(self):
        return self.pooler.log().count("config_watch: files have changed, re-reading config")

    def can_log_in(self, password):
        try:
            self.pooler.connect(user="trusty", password=password).close()
            return True
        except psycopg.OperationalError:
            return False


@pytest.fixture
def mounted(new_pooler, newest_pg):
    return Mounted(new_pooler(newest_pg))


@pytest.mark.shows("config_watch")
def test_a_changed_config_map_takes_effect(mounted):
    """Both files change at once. A wrong configuration leaves everything as it is, and the log says what is wrong."""
    mounted.start()
    assert (mounted.size(), mounted.can_log_in("second")) == ("5", False)
    mounted.write(password="second", default_pool_size=7)
    machine.wait_until(lambda: mounted.size() == "7", what="the new configuration is in force")
    assert mounted.can_log_in("second") and not mounted.can_log_in("first")
    assert mounted.reloads() == 1, "one reload for both files"

    mounted.write(password="third", default_pool_size="many")
    mounted.pooler.expect_log("RELOAD failed, the old configuration stays in force")
    line = mounted.pooler.ini_path.read_text().splitlines().index("default_pool_size = many") + 1
    named = [text for text in mounted.pooler.log().splitlines() if f"{mounted.pooler.ini_path}:{line}: " in text]
    assert len(named) == 1 and "default_pool_size" in named[0]
    assert mounted.size() == "7" and mounted.can_log_in("second")

    mounted.write(password="third", default_pool_size=8)
    machine.wait_until(lambda: mounted.size() == "8", what="the corrected configuration is in force")
    mounted.write(password="third", default_pool_size=9, config_watch=0)
    machine.wait_until(lambda: mounted.size() == "9", what="the last one that is noticed")
    mounted.write(default_pool_size=10)
    machine.stays_true(lambda: mounted.size() == "9", 0.6)


def test_a_change_during_the_start_is_noticed(mounted):
    """The start waits for a reader of the log after it has read the configuration. Then the configuration changes."""
    pooler = mounted.pooler
    pipe = pooler.folder / "log.pipe"
    os.mkfifo(pipe)
    machine.give_to_service(pipe)
    mounted.write(logfile=pipe)
    # The process listens before it opens the log.
    pooler.spawn().listening()
    mounted.write(default_pool_size=7)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.DEVNULL)
    try:
        machine.wait_until(lambda: mounted.size() == "7", what="the new configuration is in force")
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a right away from the service account")
def test_a_folder_that_cannot_be_watched_is_named(mounted):
    """One line says so, and RELOAD still reads the file."""
    closed = mounted.pooler.folder / "closed"
    closed.mkdir(mode=0o711)
    users = closed / "userlist.txt"
    users.write_text('"trusty" "first"\n"admin" "admin password"\n')
    machine.give_to_service(users)
    mounted.pooler.settings["auth_file"] = users
    mounted.start()
    mounted.pooler.expect_log(f"config_watch: cannot watch {closed}: Permission denied (os error 13); changes there take effect at RELOAD")
    users.write_text('"trusty" "second"\n"admin" "admin password"\n')
    mounted.write(default_pool_size=7)
    machine.wait_until(lambda: mounted.size() == "7", what="the ini file is still watched")
    assert mounted.can_log_in("second")
    assert mounted.pooler.log().count("config_watch: cannot watch") == 1
