"""The differential test can fail: it detects a pgweir that moves no session state, or that keeps no server for a pinned
client. No setting does that, so these tests copy the source, plant a fault, and build it.
"""

import os
import shutil
import subprocess

import pytest

import machine
import pooler as poolers
import test_differential as differential
from test_differential import stages  # noqa: F401  (a fixture)

# The planted faults: the file, the text that is replaced, and its replacement.
FAULTS = {
    "carry": ("crates/core/src/exchange/equipping.rs",
              "        if !is_equal && self.send_plan(",
              "        if !is_equal && false && self.send_plan("),
    "pins": ("crates/core/src/session/context.rs",
             "        !self.pins.is_empty()\n",
             "        false\n"),
}
LEFT_OUT = shutil.ignore_patterns("target", ".venv", ".git", ".drivers", "__pycache__", "fuzz", "tests")
STATEMENTS = 20_000


@pytest.fixture(scope="session")
def build_with_fault(tmp_path_factory, run_folder):
    """Builds the program with a fault."""
    tree = tmp_path_factory.mktemp("faulty") / "tree"
    target = poolers.ROOT / "target" / "faulty"

    def build(fault):
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(poolers.ROOT, tree, ignore=LEFT_OUT)
        path, there, instead = FAULTS[fault]
        text = (tree / path).read_text()
        assert text.count(there) == 1, f"{path} has changed: {there!r}"
        (tree / path).write_text(text.replace(there, instead))
        subprocess.run(["cargo", "build", "--quiet", "--profile", "quick", "-p", "pgweir"], cwd=tree, check=True,
                       env={**os.environ, "CARGO_TARGET_DIR": str(target)})
        folder = run_folder / f"faulty-{fault}"
        folder.mkdir()
        machine.give_to_service(folder)
        return machine.service_copy(target / "quick" / "pgweir", folder)

    return build


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.pgweir_only("it is built with a fault")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_test_detects_the_fault(new_pooler, build_with_fault, stages, fault, record_property):  # noqa: F811
    program = build_with_fault(fault)

    def start_with_fault(pg, **options):
        one = new_pooler(pg, **options)
        one.program = program
        return one.start()

    stage = stages(differential.clusters.VERSIONS[-1], False)
    wrong, statements, seed = differential.run(start_with_fault, stage, STATEMENTS, shrinks=False)
    record_property("figures", f"differential: red without {fault} within {statements} statements, seed {seed}")
    assert wrong is not None, f"without {fault} nothing was found in {statements} statements, seed {seed}"
