"""Builds the resources of a folder with a `kustomization.yaml`, as `kubectl kustomize` does.

The function `build` knows those fields of a `kustomization.yaml` that packaging/kubernetes uses, and refuses others. Where a real
`kubectl` or `kustomize` is installed, `test_kubernetes.py` compares its result with that of `build`.
"""

import shutil
import subprocess

import yaml

KNOWN = {"apiVersion", "kind", "resources", "labels", "images", "patches"}


def parts(path):
    return [part for part in yaml.safe_load_all(path.read_text()) if part]


def build(folder):
    """The resources of a folder, by kind and name."""
    (plan,) = parts(folder / "kustomization.yaml")
    assert plan.keys() <= KNOWN, plan.keys() - KNOWN
    found = {}
    for name in plan["resources"]:
        path = folder / name
        found |= build(path) if path.is_dir() else {_key(one): one for one in parts(path)}
    for patch in plan.get("patches", []):
        _patch(found, parts(folder / patch["path"]), patch.get("target"))
    for one in found.values():
        for labels in plan.get("labels", []):
            assert labels.keys() == {"pairs"}
            one["metadata"]["labels"] = one["metadata"].get("labels", {}) | labels["pairs"]
        for image in plan.get("images", []):
            _rename(one, image)
    return found


def _key(resource):
    return resource["kind"], resource["metadata"]["name"]


def _patch(found, patches, target):
    if target is None:
        for patch in patches:
            _merge(found[_key(patch)], patch)
        return
    (operations,) = patches
    for operation in operations:
        assert operation["op"] == "add" and operation["path"].endswith("/-"), operation
        place = found[target["kind"], target["name"]]
        for name in operation["path"].strip("/").split("/")[:-1]:
            place = place[name]
        place.append(operation["value"])


def _merge(into, patch):
    for name, value in patch.items():
        assert not isinstance(value, list), "how lists are merged depends on their kind"
        if isinstance(value, dict) and name in into:
            _merge(into[name], value)
        else:
            into[name] = value


def _rename(resource, image):
    pod = resource.get("spec", {}).get("template", {}).get("spec", {})
    for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
        if container["image"] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"


def real(folder):
    """What the installed program makes of a folder; None without one."""
    programs = [command for command in (["kubectl", "kustomize"], ["kustomize", "build"]) if shutil.which(command[0])]
    if not programs:
        return None
    done = subprocess.run([*programs[0], folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {_key(one): one for one in yaml.safe_load_all(done.stdout)}
