"""The files in `deploy`: valid for Kubernetes, and in agreement with each other and with the gateway."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from shortlist.config.load import load_settings

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CHECKER = "kubernetes-validate==1.37.0"
"""Carries the JSON schemas of Kubernetes, so that nothing is asked of a network."""
KUBERNETES = "1.33"
READ = """
import json, sys, yaml
print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1], encoding="utf-8")))))
"""
VALIDATE = """
import sys, yaml, kubernetes_validate
for document in yaml.safe_load_all(sys.stdin):
    kubernetes_validate.validate(document, sys.argv[1], strict=True)
"""
Checker: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    folder = tmp_path_factory.mktemp("checker") / "venv"
    uv = [str(Path(sys.executable).with_name("uv"))]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), CHECKER], check=True)

    def run(program: str, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        command = [str(folder / "bin/python"), "-c", program, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    return run


def documents(checker: Checker, path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(checker(READ, str(path)).stdout)
    return found


def test_the_kubernetes_manifests_fit_the_schemas_of_kubernetes(checker: Checker) -> None:
    text = (DEPLOY / "kubernetes/gateway.yaml").read_text()
    done = checker(VALIDATE, KUBERNETES, stdin=text)
    assert done.returncode == 0, done.stderr[-2000:]
    broken = text.replace("terminationGracePeriodSeconds: 20", "terminationGracePeriodSeconds: soon")
    assert checker(VALIDATE, KUBERNETES, stdin=broken).returncode != 0


def test_the_pods_run_without_privileges_and_are_asked_by_the_probes_that_exist(checker: Checker) -> None:
    (pod,) = (
        d["spec"]["template"]["spec"]
        for d in documents(checker, DEPLOY / "kubernetes/gateway.yaml")
        if "replicas" in d["spec"]
    )
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    probed = {container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probed == {"/healthz", "/readyz"}


def test_the_balancer_sends_requests_to_the_gateways_of_the_compose_file_and_repeats_no_call(checker: Checker) -> None:
    (compose,) = documents(checker, DEPLOY / "compose/compose.yaml")
    balancer = (DEPLOY / "compose/nginx.conf").read_text()
    gateways = {name for name, service in compose["services"].items() if service.get("image") == "shortlist"}
    assert set(re.findall(r"^ +server (\w+):8765", balancer, re.MULTILINE)) == gateways == {"gateway1", "gateway2"}
    assert re.findall(r"^ +proxy_next_upstream (.*);", balancer, re.MULTILINE) == ["error timeout"]
    for name in gateways:
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["environment"]["SHORTLIST_REPLICA_URL"] == f"http://{name}:8765"


def test_the_configuration_of_the_compose_file_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "word")
    settings = load_settings(DEPLOY / "compose/config.json")
    assert settings.storage == "postgresql://shortlist:word@database/shortlist"


def test_the_image_runs_as_a_user_with_a_number() -> None:
    assert re.findall(r"^USER (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE) == ["10001"]
