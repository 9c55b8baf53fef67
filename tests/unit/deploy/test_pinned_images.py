"""scripts/pinned-images: with it an image that only a tag names is refused, before anything is pulled."""

from __future__ import annotations

import io
import shutil
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DIGEST = "@sha256:" + "0123456789abcdef" * 4
BASES = (
    "PYTHON_IMAGE",
    "BUILD_IMAGE",
    "MINIO_IMAGE",
    "MYSQL_IMAGE",
    "KAFKA_IMAGE",
    "PROMETHEUS_IMAGE",
    "GRAFANA_IMAGE",
)


def script() -> Any:
    path = str(ROOT / "scripts" / "pinned-images")
    spec = spec_from_loader("pinned_images", SourceFileLoader("pinned_images", path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(*files: Path, **environment: str) -> list[str]:
    """The lines that say which images are not pinned; as many as there are, so is the status."""
    out = io.StringIO()
    status = script().main([str(path) for path in files], environment, out)
    lines = [line for line in out.getvalue().splitlines() if "no digest" in line]
    assert status == (1 if lines else 0)
    return lines


@pytest.fixture
def compose(tmp_path: Path) -> Path:
    """The file without the .env of who runs this."""
    return Path(shutil.copy(ROOT / "docker-compose.yml", tmp_path))


def test_each_base_of_the_compose_file_has_to_have_a_digest(compose: Path) -> None:
    lines = refused(compose)
    assert [line.split(":")[0] for line in lines] == sorted(BASES)
    assert "MYSQL_IMAGE: mysql:8.4.7 has no digest" in lines[4]
    pinned = {name: f"mirror.example/{name.lower()}:1.2.3{DIGEST}" for name in BASES}
    assert refused(compose, **pinned) == []
    [line] = refused(compose, **pinned | {"MYSQL_IMAGE": "mysql:8.4.7"})
    assert line.startswith("MYSQL_IMAGE: mysql:8.4.7 has no digest")


@pytest.mark.parametrize(
    "image", ["mysql", "mysql:latest", "mysql@sha256:12", f"mysql{DIGEST}0", "mysql@md5:" + "0" * 64, ""]
)
def test_what_is_like_a_digest_and_is_none_is_refused(image: str, compose: Path) -> None:
    pinned = dict.fromkeys(BASES, f"x{DIGEST}")
    assert len(refused(compose, **pinned | {"MYSQL_IMAGE": image})) == 1


def test_what_env_says_counts_unless_the_environment_says_else(tmp_path: Path) -> None:
    compose = tmp_path / "docker-compose.yml"
    compose.write_text("services:\n  mysql:\n    image: ${MYSQL_IMAGE:-mysql:8.4.7}\n")
    (tmp_path / ".env").write_text(f"# bases\n#MYSQL_IMAGE=mysql:1\nMYSQL_IMAGE='mysql:8.4.7{DIGEST}'\n")
    assert refused(compose) == []
    assert len(refused(compose, MYSQL_IMAGE="mysql:8.4.8")) == 1


def test_manifests_of_kubernetes_are_read_too(tmp_path: Path) -> None:
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(
        "spec:\n  containers:\n"
        f"    - name: api\n      image: registry.example/tistream:1.2.3{DIGEST}\n"
        '    - image: "registry.example/tistream-sorter:1.2.3"\n      name: sorter\n'
        "      env:\n        - name: TISTREAM_SORTER__SPARK__CONF\n          value: spark.kubernetes.container.image\n"
    )
    [line] = refused(rendered)
    assert line.startswith("image: registry.example/tistream-sorter:1.2.3 has no digest")
