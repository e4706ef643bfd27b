"""docs/frameworks.md: Django, SQLAlchemy, Rails' Active Record and Hibernate behind pgweir, with the page's settings.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import pages
from pages import DOCS
from pooler import ROOT

pytestmark = pytest.mark.pgweir_only("no setting is needed with pgweir")

USERS = {"ann": "her password", "trusty": "", "admin": "admin password"}
SERVERS = 2


def snippet(name, pooler):
    """Returns a file of the page, with the pooler's port."""
    [block] = [block for block in pages.blocks(DOCS / "frameworks.md") if block.file == name]
    assert "6432" in block.text
    return block.text.replace("6432", str(pooler.port))


@pytest.fixture
def pooler(start_pooler, newest_pg):
    newest_pg.run("CREATE ROLE ann LOGIN PASSWORD 'her password'")
    newest_pg.run("DROP SCHEMA IF EXISTS ann CASCADE; CREATE SCHEMA ann AUTHORIZATION ann", dbname="app")
    yield start_pooler(newest_pg, users=USERS, auth_type="scram-sha-256", default_pool_size=SERVERS, workers=1)
    newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'")
    newest_pg.run("DROP OWNED BY ann CASCADE", dbname="app")
    newest_pg.run("DROP ROLE ann")


DJANGO = """
import json, sys, threading
import django
from django.conf import settings
{settings}
settings.configure(DATABASES=DATABASES, INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
                   DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", USE_TZ=True)
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction

call_command("migrate", verbosity=0)
wrong = []

def work(number):
    try:
        for turn in range(5):
            name = f"user{{number}}-{{turn}}"
            with transaction.atomic():
                User.objects.create(username=name, first_name=str(number))
            assert User.objects.get(username=name).first_name == str(number)
            # A cursor on the server, outside of a transaction: WITH HOLD.
            names = [user.username for user in User.objects.filter(first_name=str(number)).iterator(chunk_size=2)]
            assert len(names) == turn + 1, names
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
    except Exception as error:
        wrong.append(repr(error))
    finally:
        connection.close()

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({{"users": User.objects.count(), "wrong": wrong}}))
"""


@pytest.mark.timeout(180)
def test_django(pooler, newest_pg):
    """Migrations, then eight threads on two servers. Server-side cursors are enabled, which is Django's default."""
    pytest.importorskip("django")
    program = DJANGO.format(settings=snippet("settings.py", pooler))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"users": 40, "wrong": []}
    assert len(newest_pg.backends("usename = 'ann'")) <= SERVERS


def test_sqlalchemy(pooler, newest_pg):
    """SQLAlchemy's pool has ten connections, which share two servers; prepared statements and reflection work."""
    alchemy = pytest.importorskip("sqlalchemy")
    names = {}
    exec(snippet("engine.py", pooler), names)  # noqa: S102 (the page's own lines)
    engine = names["engine"]
    table = alchemy.Table("thing", alchemy.MetaData(), alchemy.Column("id", alchemy.Integer, primary_key=True),
                          alchemy.Column("word", alchemy.Text))
    table.create(engine)
    connections = [engine.connect() for _ in range(10)]
    try:
        for turn in range(7):  # psycopg prepares a statement at its fifth use
            for number, one in enumerate(connections):
                one.execute(table.insert().values(word=f"{number}-{turn}"))
                one.commit()
        for number, one in enumerate(connections):
            rows = one.execute(alchemy.select(table.c.word).where(table.c.word.like(f"{number}-%"))).all()
            assert len(rows) == 7
            one.rollback()
        assert alchemy.inspect(engine).get_columns("thing")[1]["name"] == "word"
        assert len(newest_pg.backends("usename = 'ann'")) <= SERVERS
    finally:
        for one in connections:
            one.close()
        engine.dispose()


def test_sqlalchemy_and_asyncpg(pooler):
    """With both caches of prepared statements at their defaults."""
    pytest.importorskip("sqlalchemy")
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def run():
        url = f"postgresql+asyncpg://ann:her%20password@127.0.0.1:{pooler.port}/app"
        engine = create_async_engine(url, pool_size=8)

        async def work(number):
            for turn in range(6):
                async with engine.connect() as db:
                    assert (await db.execute(text("SELECT :a || '-' || :b"),
                                             {"a": str(number), "b": str(turn)})).scalar() == f"{number}-{turn}"

        await asyncio.gather(*(work(number) for number in range(8)))
        await engine.dispose()

    asyncio.run(run())


ACTIVE_RECORD = """
require "active_record"
require "json"
require "yaml"

settings = YAML.load_file("database.yml")["production"]
ActiveRecord::Base.establish_connection(settings.merge("password" => "her password", "pool" => 10))
ActiveRecord::Migration.verbose = false

class CreateThings < ActiveRecord::Migration[6.1]
  def change
    create_table(:things) { |table| table.string :word; table.integer :owner }
    add_index :things, :owner
  end
end

class Thing < ActiveRecord::Base; end

# As `rails db:migrate` does it: under an advisory lock of the session.
source = Struct.new(:migrations).new([])
schema = ActiveRecord::SchemaMigration
migration = CreateThings.new("CreateThings", 20260101000000)
ActiveRecord::Migrator.new(:up, [migration], schema).migrate

wrong = []
threads = 8.times.map do |number|
  Thread.new do
    begin
      ActiveRecord::Base.connection_pool.with_connection do |db|
        6.times do |turn|
          Thing.transaction { Thing.create!(word: "#{number}-#{turn}", owner: number) }
          found = Thing.where(owner: number).order(:id).pluck(:word)
          wrong << found unless found == (0..turn).map { |n| "#{number}-#{n}" }
        end
        db.execute("SET statement_timeout = #{1001 + number}")
        wrong << "timeout" unless db.select_value("SHOW statement_timeout") == "#{1001 + number}ms"
      end
    rescue => error
      wrong << error.message
    end
  end
end
threads.each(&:join)
prepared = ActiveRecord::Base.connection.prepared_statements
puts({ things: Thing.count, wrong: wrong, prepared: prepared }.to_json)
"""


def test_active_record(pooler, newest_pg, folder):
    """A migration under Rails' advisory lock, then eight threads on two servers with prepared statements."""
    done = subprocess.run(["ruby", "-e", "require 'active_record'"], capture_output=True) if shutil.which("ruby") else None
    if done is None or done.returncode:
        pytest.skip("no Active Record here (Debian's ruby-activerecord and ruby-pg)")
    settings = snippet("config/database.yml", pooler).replace("username: app", "username: ann")
    (folder / "database.yml").write_text(settings)
    (folder / "main.rb").write_text(ACTIVE_RECORD)
    done = subprocess.run(["ruby", "main.rb"], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"things": 48, "wrong": [], "prepared": True}
    assert len(newest_pg.backends("usename = 'ann'")) <= SERVERS


def test_hibernate(pooler, newest_pg):
    """Hibernate creates its schema; then eight threads insert, update and read on two servers."""
    subprocess.run([ROOT / "tools/build-drivers", "hibernate"], check=True, timeout=100)
    url = re.search(r"^spring.datasource.url=(\S+)$", snippet("application.properties", pooler), re.MULTILINE)[1]
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", ".drivers/hibernate/classes:.drivers/hibernate/dependency/*",
         "Frameworks", url, "ann", USERS["ann"], "8", "6"],
        cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"things": 48}
    assert len(newest_pg.backends("usename = 'ann'")) <= SERVERS
