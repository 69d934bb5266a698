"""The server's /metrics: for those who may look, and only of what they may see."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support.server_fixtures import LiveServer


async def test_a_viewer_gets_the_figures_of_its_namespace(server: LiveServer) -> None:
    await server.app.submit("somewhere", delay=3600)
    client = await server.client(role="viewer")
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (sample,) = families["rota_jobs"].samples
    assert (sample.labels["state"], sample.value) == ("scheduled", 1)
    assert "rota_shards" not in families


async def test_who_sees_everything_sees_the_shards_too(server: LiveServer) -> None:
    client = await server.client(role="admin", namespace="*")
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = await client.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert 'rota_shards{state="free"}' in answer.text
