"""The manifests of packaging/kubernetes: they agree with each other, and a pgweir runs with their configuration."""

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
import yaml

import kustomize
import machine
from fleetfixtures import etcd, fleet_folder, fleet_pg  # noqa: F401 (fixtures)
from pooler import ROOT
from scraping import get, scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has no manifests")

FOLDER = ROOT / "packaging/kubernetes"
BASE = FOLDER / "base"
CONFIG, USERS, RUN = "/etc/pgweir/config", "/etc/pgweir/users", "/run/pgweir"
PASSWORD = "the password of trusty"
# No resources of the base: an example, and a rule for another program.
BESIDES = {"kustomization.yaml", "example-secret.yaml", "prometheus-adapter.yaml"}
VALIDATE = ROOT / ".tools/kubernetes/bin/kubernetes-validate"
KUBECONFORM = ROOT / ".tools/bin/kubeconform"
SCHEMAS = sorted((ROOT / ".tools/kubernetes").glob("lib/python3*/site-packages/kubernetes_validate/kubernetes-json-schema/v*-local-strict"))


def load(path):
    return [part for part in yaml.safe_load_all((FOLDER / path).read_text()) if part]


def resources():
    """The resources of the base by kind and name."""
    listed = load("base/kustomization.yaml")[0]["resources"]
    assert {*listed, *BESIDES} == {path.name for path in BASE.glob("*")}
    found = [one for name in listed for one in load(f"base/{name}")]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


@pytest.fixture
def found():
    return resources()


@pytest.fixture
def pod(found):
    return found["Deployment", "pgweir"]["spec"]["template"]


@pytest.fixture
def container(pod):
    return pod["spec"]["containers"][0]


def ini_values(text):
    """The settings of an ini file."""
    lines = [line for line in text.splitlines() if not line.startswith((";", "%", "["))]
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines if "=" in line)}


# -- what the manifests say of each other

def test_names_exist_and_selectors_match(found, pod):
    labels = pod["metadata"]["labels"].items()
    selectors = [found["Deployment", "pgweir"]["spec"]["selector"]["matchLabels"],
                 found["Service", "pgweir"]["spec"]["selector"], found["Service", "pgweir-pods"]["spec"]["selector"],
                 found["PodDisruptionBudget", "pgweir"]["spec"]["selector"]["matchLabels"],
                 found["NetworkPolicy", "pgweir"]["spec"]["podSelector"]["matchLabels"],
                 *(one["labelSelector"]["matchLabels"] for one in pod["spec"]["topologySpreadConstraints"])]
    assert all(selector and selector.items() <= labels for selector in selectors)
    target = found["HorizontalPodAutoscaler", "pgweir"]["spec"]["scaleTargetRef"]
    assert found[target["kind"], target["name"]]["apiVersion"] == target["apiVersion"]
    assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in found
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in found
    secret = load("base/example-secret.yaml")[0]
    assert volumes["users"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert f"auth_file = {USERS}/{next(iter(secret['stringData']))}" in found["ConfigMap", "pgweir"]["data"]["pgweir.ini"]
    for one in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes.keys()
    assert found["Service", "pgweir-pods"]["spec"]["clusterIP"] == "None"


def test_ports_are_those_of_the_configuration(found, pod, container):
    settings = ini_values(found["ConfigMap", "pgweir"]["data"]["pgweir.ini"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"postgresql": int(settings["listen_port"]), "http": int(settings["http_listen"].split(",")[0].split(":")[1])}
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["http"])
    for service in ("pgweir", "pgweir-pods"):
        assert {port["targetPort"] for port in found["Service", service]["spec"]["ports"]} <= ports.keys()
    policy = found["NetworkPolicy", "pgweir"]["spec"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == list(ports)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def test_pods_have_no_rights_that_they_do_not_need(pod, container):
    account = re.search(r"USER (\d+):(\d+)", (ROOT / "packaging/Containerfile").read_text())
    security = pod["spec"]["securityContext"]
    assert security["runAsNonRoot"] and (security["runAsUser"], security["runAsGroup"]) == tuple(map(int, account.groups()))
    assert security["seccompProfile"] == {"type": "RuntimeDefault"} and not pod["spec"]["automountServiceAccountToken"]
    for one in [*pod["spec"]["initContainers"], container]:
        assert one["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert {"cpu", "memory"} == one["resources"]["requests"].keys() and "memory" in one["resources"]["limits"]


def test_numbers_fit_each_other(found, pod, container):
    """The time to end a pod suffices for the drain, and the limit on server connections for all pods."""
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    delay, timeout = (float(command[command.index(f"--{name}") + 1]) for name in ("delay", "timeout"))
    assert pod["spec"]["terminationGracePeriodSeconds"] >= delay + timeout + 30
    probe = container["readinessProbe"]
    assert delay >= 3 * probe["periodSeconds"] * probe["failureThreshold"]
    scaler, deployment = found["HorizontalPodAutoscaler", "pgweir"]["spec"], found["Deployment", "pgweir"]["spec"]
    assert deployment["replicas"] == scaler["minReplicas"]
    for data in (found["ConfigMap", "pgweir"]["data"], load("etcd/fleet.yaml")[0]["data"]):
        fleet = ini_values(data["fleet.ini"])
        assert int(fleet["fleet_nodes"]) == scaler["maxReplicas"] + deployment["strategy"]["rollingUpdate"]["maxSurge"]
        assert int(fleet.get("fleet_floor", 0)) * int(fleet["fleet_nodes"]) <= int(fleet["max_server_conn"])
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    images = load("base/kustomization.yaml")[0]["images"]
    assert [(image["name"], image["newTag"]) for image in images] == [(container["image"], version)]


# -- a pod without Kubernetes

class Pod:
    """Starts pgweir as a pod of the Deployment does, in a folder in place of its volumes."""

    def __init__(self, new_pooler, pg, template, data, replace=()):
        self._container, self._init = template["spec"]["containers"][0], template["spec"]["initContainers"][0]
        self.pooler = new_pooler(pg, unix_socket_dir="elsewhere")
        self.http = machine.free_port()
        self._folder = self.pooler.folder
        self._replace = [(path, f"{self._folder}/{Path(path).name}") for path in (CONFIG, USERS, RUN)]
        for path in (CONFIG, USERS, RUN):
            machine.give_to_service(self._make(Path(path).name))
        self._replace += [("listen_port = 6432", f"listen_port = {self.pooler.port}"), ("*:9127", f"127.0.0.1:{self.http}"),
                          ("host=postgresql port=5432", f"host={pg.host} port={pg.port}"), *replace]
        for name, text in data.items():
            self.write(f"config/{name}", self.here(text))
        self.write("users/userlist.txt", f'"trusty" "{PASSWORD}"\n')
        self.pooler.ini_path = self._folder / "config/pgweir.ini"

    def _make(self, name):
        path = self._folder / name
        path.mkdir()
        return path

    def here(self, text):
        """`text` with the paths and ports of this pod."""
        for old, new in self._replace:
            text = text.replace(old, new)
        return text

    def write(self, name, text):
        path = self._folder / name
        path.write_text(text)
        path.chmod(0o640)
        machine.give_to_service(path)

    def start(self, address):
        """Runs the init container, and then the pooler."""
        command = [self.here(part) for part in self._init["command"]]
        subprocess.run(command, env={"POD_IP": address, "PATH": "/usr/bin:/bin"}, check=True, **machine.as_service())
        assert self._container["args"] == [f"{CONFIG}/pgweir.ini"]
        self.pooler.spawn().listening()
        self.pooler.expect_log("process up")
        return self

    def connect(self):
        return psycopg.connect(host="127.0.0.1", port=self.pooler.port, user="trusty", password=PASSWORD, dbname="app", autocommit=True)

    def probe(self, name):
        return get(self.http, self._container[name]["httpGet"]["path"]).status

    def pre_stop(self, delay):
        """Starts the command of preStop, with a shorter delay."""
        program, *arguments = self._container["lifecycle"]["preStop"]["exec"]["command"]
        assert program == "/usr/bin/pgweir"
        arguments[arguments.index("--delay") + 1] = str(delay)
        command = [self.pooler.program, *map(self.here, arguments)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **machine.as_service())


def test_a_pod_serves_and_is_drained(new_pooler, fleet_pg, found, pod):  # noqa: F811 (fixtures)
    """pgweir starts with the ConfigMap, answers the probes, has the metric of the autoscaler, and is drained by preStop."""
    one = Pod(new_pooler, fleet_pg, pod, found["ConfigMap", "pgweir"]["data"]).start("10.1.66.7")
    with one.connect() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
        assert [one.probe(name) for name in ("startupProbe", "readinessProbe", "livenessProbe")] == [200, 200, 200]
        metrics = scrape(one.http)
        assert metrics.value("pgweir_server_connections_limit") == 10
        rule = load("base/prometheus-adapter.yaml")[0]["rules"][0]
        assert rule["seriesQuery"].partition("{")[0] in metrics.names
        assert rule["name"]["as"] == found["HorizontalPodAutoscaler", "pgweir"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
        drain = one.pre_stop(0.1)
        _, words = drain.communicate(timeout=30)
        assert (drain.returncode, one.probe("readinessProbe"), one.probe("livenessProbe")) == (0, 503, 200), words
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")
    one.pooler.signal(signal.SIGINT)
    assert one.pooler.wait_end() == 0


@pytest.mark.parametrize("address, zone, settings", [
    ("10.1.66.7", "", {"peer_id": "519", "fleet_address": "10.1.66.7"}),
    ("10.1.255.255", "eu-1a", {"peer_id": "16383", "fleet_address": "10.1.255.255", "zone": "eu-1a"}),
    ("fd00::17", "eu-1a", {"zone": "eu-1a"}),
])
def test_the_settings_of_a_pod(pod, tmp_path, address, zone, settings):
    command = [part.replace(RUN, str(tmp_path)) for part in pod["spec"]["initContainers"][0]["command"]]
    subprocess.run(command, env={"POD_IP": address, "ZONE": zone, "PATH": "/usr/bin:/bin"}, check=True)
    assert ini_values((tmp_path / "pod.ini").read_text()) == settings


@pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps")
def test_pods_share_a_limit_by_etcd(new_pooler, fleet_pg, found, pod, etcd):  # noqa: F811 (fixtures)
    data = found["ConfigMap", "pgweir"]["data"] | load("etcd/fleet.yaml")[0]["data"]
    pods = [Pod(new_pooler, fleet_pg, pod, data, replace=[("http://etcd:2379", etcd.url)]).start(f"127.0.0.{number}")
            for number in (1, 2)]
    machine.wait_until(lambda: scrape(pods[0].http).value("pgweir_fleet_nodes", state="active") == 1, 20, "the pods know each other")
    for one in pods:
        with one.connect() as db:
            assert db.execute("SELECT 1").fetchone() == (1,)


# -- the tools of Kubernetes

def kubeconform(path, folder):
    standalone(SCHEMAS[-1], folder)
    location = f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return [KUBECONFORM, "-strict", "-schema-location", location, path, BASE / "example-secret.yaml"]


def kubernetes_validate(path, _):
    return [VALIDATE, "--strict", path, BASE / "example-secret.yaml"]


@pytest.mark.parametrize("overlay", ["base", "etcd"])
def test_the_manifests_can_be_built(overlay):
    built = kustomize.build(FOLDER / overlay)
    assert built.keys() == resources().keys()
    real = kustomize.real(FOLDER / overlay)
    assert real in (None, built)


@pytest.mark.full
@pytest.mark.parametrize("overlay", ["base", "etcd"])
@pytest.mark.parametrize("checker", [kubeconform, kubernetes_validate])
def test_manifests_fit_the_schemas_of_kubernetes(checker, overlay, tmp_path):
    if checker is kubeconform and not KUBECONFORM.exists():
        pytest.skip("needs kubeconform, which needs Go 1.24: tools/install-deps full")
    assert VALIDATE.exists() and SCHEMAS, "tools/install-deps full puts it into .tools"
    path = tmp_path / "built.yaml"
    built = kustomize.build(FOLDER / overlay)
    path.write_text(yaml.dump_all(built.values()))
    done = subprocess.run(checker(path, tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # The checker sees what is wrong.
    built["Deployment", "pgweir"]["spec"]["replica"] = 3
    path.write_text(yaml.dump_all(built.values()))
    done = subprocess.run(checker(path, tmp_path), capture_output=True, text=True)
    assert done.returncode != 0 and "replica" in done.stdout + done.stderr


def standalone(schemas, folder):
    """Writes the schemas with their definitions into one file each, as kubeconform reads them."""
    definitions = json.loads((schemas / "_definitions.json").read_text())["$defs"]
    kinds = "deployment-apps-v1 service-v1 serviceaccount-v1 configmap-v1 secret-v1 poddisruptionbudget-policy-v1 " \
            "horizontalpodautoscaler-autoscaling-v2 networkpolicy-networking-v1"
    for kind in kinds.split():
        schema = json.loads((schemas / f"{kind}.json").read_text().replace("/api/_definitions.json#", "#"))
        (folder / f"{kind}.json").write_text(json.dumps(schema | {"$defs": definitions, "$id": kind}))
