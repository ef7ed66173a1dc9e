"""Who may ask the server: holders of the key, and pages of this machine."""

import asyncio

import httpx2
import pytest

from lib.language_models.serving.access import HostGuard
from lib.language_models.serving.server import app

KEY = "sk-planted-51c0ffee"


def test_without_the_key_nothing_is_answered_but_health(models):
    wrong_headers = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": KEY},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": "Bearer \xe4"},
        {"authorization": f"bearer  {KEY}"},
        {"authorization": ""},
    ]

    async def run() -> None:
        transport = httpx2.ASGITransport(app(models, KEY))
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            for headers in wrong_headers:
                raw = {name: value.encode("latin-1") for name, value in headers.items()}
                for path in ("/v1/models", "/v1/elsewhere", "/v1/chat/completions"):
                    reply = await client.get(path, headers=raw)
                    assert reply.status_code == 401
                    assert reply.headers["www-authenticate"] == "Bearer"
                    assert reply.json()["error"]["code"] == "invalid_api_key"
                    assert KEY not in reply.text
            assert (await client.get("/health")).status_code == 200
            correct = await client.get("/v1/models", headers={"authorization": f"Bearer {KEY}"})
            assert correct.status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "allowed", "name", "passes"),
    [
        ("127.0.0.1", ["lab.example"], "lab.example", True),
        ("127.0.0.1", ["Lab.Example"], "LAB.example:80", True),
        ("127.0.0.1", ["lab.example"], "other.example", False),
        ("127.0.0.1", [], "192.0.2.7", False),
        ("0.0.0.0", [], "192.0.2.7:8000", True),
        ("0.0.0.0", [], "evil.example", False),
        ("::", [], "[2001:db8::1]", True),
        ("lab.example", [], "lab.example", True),
    ],
)
def test_names_pass_that_are_allowed_and_addresses_where_others_can_reach_it(
    host, allowed, name, passes
):
    assert HostGuard(None, host, allowed).allows(name, is_host=True) == passes
