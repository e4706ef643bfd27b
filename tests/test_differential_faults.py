"""The differential test can fail: it detects a pgweir that moves no session state, forgets a part of it, or keeps no
server for a pinned client. Settings can't cause all of these faults, so these tests copy the source, plant a fault, and
build it.
"""

import os
import shutil
import subprocess

import pytest

import machine
import pooler as poolers
import test_differential as differential
from test_differential import stages  # noqa: F401  (a fixture)

EXCHANGE = "crates/core/src/exchange"
# The planted faults: the file, the text that is replaced, and its replacement.
FAULTS = {
    "carry": (f"{EXCHANGE}/equipping.rs",
              "        if !is_equal && self.send_plan(",
              "        if !is_equal && false && self.send_plan("),
    "pins": ("crates/core/src/session/context.rs",
             "        !self.pins.is_empty()\n",
             "        false\n"),
    # Other clients get the server before pgweir has read what the client has set.
    "inspections": (f"{EXCHANGE}/kept.rs",
                    "        let needs_inspection = server.session.changes.needs_inspection();\n        if needs_inspection",
                    "        let needs_inspection = false;\n        if needs_inspection"),
    "settings that were found": (f"{EXCHANGE}/found_state.rs",
                                 "    context.wanted = table.overlay(&context.base, &held);\n",
                                 ""),
    "one setting": ("crates/core/src/session/plan.rs",
                    "            .filter(|(name, _)| !is_identity(name) && differs(name));\n        let mut sets",
                    "            .filter(|(name, _)| !is_identity(name) && differs(name) && *name != b\"work_mem\");\n        let mut sets"),
    "SQL-prepared statements": (f"{EXCHANGE}/sql_statements.rs",
                                "    let has_them = statements.fit(",
                                "    let has_them = true || statements.fit("),
    "startup values after RESET": (f"{EXCHANGE}/found_state.rs",
                                   "        let Some(text) = restored.filter(|_| !goes_back) else {",
                                   "        let Some(text) = restored.filter(|_| false) else {"),
    # A fault of an earlier version: statements were not prepared again under the client's names.
    "the end of a change of names": ("crates/core/src/backend/client_names.rs",
                                     "(change.client == client && change.has_failed)",
                                     "(change.client == client)"),
}
LEFT_OUT = shutil.ignore_patterns("target", ".venv", ".git", ".drivers", "__pycache__", "fuzz", "tests")
STATEMENTS = 20_000


@pytest.fixture(scope="session")
def build_with_fault(tmp_path_factory, run_folder):
    """Builds the program with a fault."""
    tree = tmp_path_factory.mktemp("faulty") / "tree"
    target = poolers.ROOT / "target" / "faulty"
    built = {}

    def build(fault):
        if fault in built:
            return built[fault]
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(poolers.ROOT, tree, ignore=LEFT_OUT)
        path, there, instead = FAULTS[fault]
        text = (tree / path).read_text()
        assert text.count(there) == 1, f"{path} has changed: {there!r}"
        (tree / path).write_text(text.replace(there, instead))
        subprocess.run(["cargo", "build", "--quiet", "--profile", "quick", "-p", "pgweir"], cwd=tree, check=True,
                       env={**os.environ, "CARGO_TARGET_DIR": str(target)})
        folder = run_folder / f"faulty-{len(built)}"
        folder.mkdir()
        machine.give_to_service(folder)
        built[fault] = machine.service_copy(target / "quick" / "pgweir", folder)
        return built[fault]

    return build


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.pgweir_only("it is built with a fault")
@pytest.mark.parametrize("fault, interrupts", [(fault, interrupts) for fault in FAULTS for interrupts in (False, True)
                                               if interrupts or fault in ("carry", "pins")])
def test_the_test_detects_the_fault(new_pooler, build_with_fault, stages, fault, interrupts, record_property):  # noqa: F811
    program = build_with_fault(fault)

    def start_with_fault(pg, **options):
        one = new_pooler(pg, **options)
        one.program = program
        return one.start()

    stage = stages(differential.clusters.VERSIONS[-1], False)
    limit = differential.INTERRUPTED if interrupts else STATEMENTS
    settings = differential.WHILE_INTERRUPTED if interrupts else {}
    wrong, statements, seed = differential.run(start_with_fault, stage, limit, shrinks=False, interrupts=interrupts, **settings)
    mode = "interrupted" if interrupts else "alone"
    record_property("figures", f"differential, {mode}: red without {fault} within {statements} statements, seed {seed}")
    assert wrong is not None, f"without {fault} nothing was found in {statements} statements, seed {seed}"
