"""No Spark driver listens to other machines and lets in who comes."""

from __future__ import annotations

import pytest

from tistream.service.settings import SettingsError, load_settings
from tistream_sorter.settings import SorterSettings

K8S, STANDALONE = "k8s://https://kubernetes.default.svc:443", "spark://cluster:7077"
SECRET = '"spark.authenticate": "true", "spark.network.crypto.enabled": "true", "spark.authenticate.secret": "x"'
POD = '"spark.driver.host": "sorter-0.svc", "spark.driver.bindAddress": "10.0.0.7"'
HERE = '"spark.driver.host": "127.0.0.1"'


def load(monkeypatch: pytest.MonkeyPatch, master: str, conf: str, **more: str) -> SorterSettings:
    for name, value in {"SPARK__MASTER": master, "SPARK__CONF": f"{{{conf}}}", **more}.items():
        monkeypatch.setenv(f"TISTREAM_SORTER__{name}", value)
    return load_settings(SorterSettings)


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("local[*]", ""),
        ("local[*]", '"spark.authenticate": "false"'),
        (K8S, POD),
        (STANDALONE, SECRET),
        (STANDALONE, HERE),
    ],
)
def test_these_may_be(monkeypatch: pytest.MonkeyPatch, master: str, conf: str) -> None:
    assert load(monkeypatch, master, conf).spark.master == master


@pytest.mark.parametrize(
    ("master", "conf", "told"),
    [
        ("local[*]", '"spark.driver.bindAddress": "0.0.0.0", "spark.authenticate": "false"', '"spark.authenticate"'),
        (K8S, f'{POD}, "spark.authenticate": "false"', '"spark.authenticate": "true"'),
        (K8S, f'{POD}, "spark.network.crypto.enabled": "false"', '"spark.network.crypto.enabled": "true"'),
        (STANDALONE, "", '"spark.authenticate": "true", "spark.network.crypto.enabled": "true"'),
        (STANDALONE, SECRET.replace('"x"', '""'), '"spark.authenticate.secret"'),
        (STANDALONE, SECRET.replace('"x"', '"x y"'), '"spark.authenticate.secret"'),
        (STANDALONE, f'{HERE}, "spark.driver.bindAddress": "0.0.0.0"', '"spark.authenticate": "true"'),
    ],
)
def test_these_are_refused_and_told_the_way_out(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: str, told: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(monkeypatch, master, conf)
    assert told in str(refused.value)
    assert "TLS__TERMINATED_ELSEWHERE" in str(refused.value)
    assert load(monkeypatch, master, conf, TLS__TERMINATED_ELSEWHERE="true").spark.master == master
