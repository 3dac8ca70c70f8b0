"""Degree, proof, language and role: is each peer answered as the table of the documents has it? (SPEC O1)"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.kit.access_world import NO_USER, AccessWorld, KeyMaker, Proof, Said, an_access_world
from tests.kit.certificates import make_certificates

from wakugumi.adapters.net.tls import client_context, server_context
from wakugumi.core.access.identity import Role
from wakugumi.core.access.known_as import Degree
from wakugumi.roles.access.guard import AccessGuard

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1", "N5")]

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "security.md"
TABLE = """\
| degree | proof | frames: be a client | frames: be a worker | frames: list keys | HTTP: look | HTTP: run | lines: run |
|---|---|---|---|---|---|---|---|
| this user | this user, no key | yes | yes | yes | yes | yes | yes |
| this user | this user, any key | denied | denied | denied | 401 | 401 | denied |
| this user | another user, no key | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | this user, no key | yes | yes | yes | yes | yes | yes |
| keys over TLS | this user, unknown name | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | no key, plain | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | no key | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | wrong secret | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | unknown name | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | key of another grid | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | expired key | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | revoked key | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | key of the role admin | yes | yes | yes | yes | yes | yes |
| keys over TLS | key of the role client | yes | denied | denied | yes | yes | yes |
| keys over TLS | key of the role gateway | yes | denied | denied | yes | yes | yes |
| keys over TLS | key of the role reader | yes | denied | denied | yes | 403 | denied |
| keys over TLS | key of the role worker | denied | yes | denied | 403 | 403 | denied |
| keys over TLS | key of the role client, plain from this machine | yes | denied | denied | yes | yes | yes |
| keys over TLS | certificate of a worker | denied | yes | denied | 403 | 403 | denied |
| keys over TLS | certificate of a gateway | yes | denied | denied | yes | yes | yes |
| keys over TLS | certificate of a revoked key | denied | denied | denied | 401 | 401 | denied |
| keys over TLS | certificate of another authority | closed | closed | closed | closed | closed | closed |
| open | no key | yes | yes | no-authority | yes | yes | yes |
| open | any key | denied | denied | denied | 401 | 401 | denied |
| open | no key, over TLS | closed | closed | closed | closed | closed | closed |
| certificates | this user, plain | denied | denied | denied | 401 | 401 | denied |
| certificates | no certificate | closed | closed | closed | closed | closed | closed |
| certificates | certificate of another authority | closed | closed | closed | closed | closed | closed |
| certificates | certificate | yes | denied | denied | yes | yes | yes |
| certificates | certificate and any key | denied | denied | denied | 401 | 401 | denied |
"""
NOT_VALID = ("wrong secret", "unknown name", "key of another grid", "expired key", "revoked key")
EVIL_HOST, EVIL_ORIGIN = "Host: evil.example", "Origin: https://evil.example"

Rows = dict[str, list[str]]


def expected(degree: Degree) -> Rows:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines()[2:]]
    return {proof: cells for of, proof, *cells in rows if of == degree.value}


async def answers(world: AccessWorld, proof: Proof) -> list[str]:
    """A row of the table. Cells of roles that differ stand beside each other."""

    def alike(by_role: dict[str, Said]) -> str:
        return "/".join(sorted({said.cell for said in by_role.values()}))

    return [
        (await world.be_a_client(proof)).cell,
        (await world.be_a_worker(proof)).cell,
        (await world.list_keys(proof)).cell,
        alike(await world.look(proof)),
        alike(await world.run(proof)),
        (await world.run_by_line(proof)).cell,
    ]


async def table_of(world: AccessWorld, proofs: dict[str, Proof]) -> Rows:
    return {name: await answers(world, proof) for name, proof in proofs.items()}


def test_the_document_has_this_table() -> None:
    assert f"\n\n{TABLE}\n" in PAGE.read_text(), "the table of `Who is answered how` is another one"


async def test_this_user(tmp_path: Path) -> None:
    maker = KeyMaker(tmp_path / "grid")
    key = await maker.key("desk", Role.ADMIN)
    found: Rows = {}
    here = {"this user, no key": Proof(), "this user, any key": Proof(key)}
    for local, proofs in ((None, here), (NO_USER, {"another user, no key": Proof()})):
        guard = maker.guard_before_keys(local)
        assert guard.degree is Degree.THIS_USER
        async with an_access_world(tmp_path / str(len(proofs)), guard) as world:
            found |= await table_of(world, proofs)
            relayed = await world.look(Proof(lines=("X-Forwarded-For: 192.0.2.7",)))
            assert {said.cell for said in relayed.values()} == {"401"}
    await maker.keys.close()
    assert found == expected(Degree.THIS_USER)


async def proofs_of(maker: KeyMaker, others: KeyMaker) -> dict[str, Proof]:
    """Of peers that no user of this machine is behind."""
    tls = maker.tls()
    keys = {role: await maker.key(f"a-{role.value}", role) for role in Role}
    admin, gone, rack = keys[Role.ADMIN], await maker.key("gone", Role.ADMIN), await maker.key("rack", Role.GATEWAY)
    of_gone = await maker.certificate(rack)
    for name in ("gone", "rack"):
        await maker.revoke(name)
    of_others = await others.certificate(await others.key("a-gateway", Role.GATEWAY))
    wrong = "a" * len(admin.secret)
    return {
        "no key, plain": Proof(),
        "no key": Proof(tls=tls),
        "wrong secret": Proof(admin._replace(secret=wrong), tls),
        "unknown name": Proof(admin._replace(name="nobody"), tls),
        "key of another grid": Proof(await others.key("a-admin", Role.ADMIN), tls),
        "expired key": Proof(await maker.expired("late"), tls),
        "revoked key": Proof(gone, tls),
        **{f"key of the role {role.value}": Proof(key, tls) for role, key in keys.items()},
        "key of the role client, plain from this machine": Proof(keys[Role.CLIENT]),
        "certificate of a worker": Proof(tls=maker.tls(await maker.certificate(keys[Role.WORKER]))),
        "certificate of a gateway": Proof(tls=maker.tls(await maker.certificate(keys[Role.GATEWAY]))),
        "certificate of a revoked key": Proof(tls=maker.tls(of_gone)),
        "certificate of another authority": Proof(tls=maker.tls(of_others)),
    }


async def in_grid(folder: Path, ask: Callable[[AccessWorld, dict[str, Proof]], Awaitable[None]]) -> None:
    """Ask a grid with keys, in which no user of this machine is known."""
    maker, others = KeyMaker(folder / "grid"), KeyMaker(folder / "others")
    try:
        guard = maker.guard(NO_USER)
        assert guard.degree is Degree.KEYS
        async with an_access_world(folder / "world", guard) as world:
            await ask(world, await proofs_of(maker, others))
    finally:
        await others.keys.close()


async def test_keys_over_tls(tmp_path: Path) -> None:
    found: Rows = {}

    async def ask(world: AccessWorld, proofs: dict[str, Proof]) -> None:
        found.update(await table_of(world, proofs))
        words = set()
        for name in NOT_VALID:
            looked = await world.look(proofs[name])
            by_line, client = await world.run_by_line(proofs[name]), await world.be_a_client(proofs[name])
            words |= {said.words for said in (*looked.values(), by_line, client)}
        assert words == {"the key is not valid here"}, "a stranger learns why"

    await in_grid(tmp_path, ask)
    maker = KeyMaker(tmp_path / "own")
    async with an_access_world(tmp_path / "here", maker.guard(None)) as world:
        wrong = (await maker.key("desk", Role.ADMIN))._replace(name="nobody")
        found |= await table_of(world, {"this user, no key": Proof(), "this user, unknown name": Proof(wrong)})
    assert found == expected(Degree.KEYS)


async def test_web_pages_of_elsewhere_get_nothing_on_a_port_with_tls(tmp_path: Path) -> None:
    async def ask(world: AccessWorld, proofs: dict[str, Proof]) -> None:
        cases = {
            ("no key", EVIL_HOST): "403",
            ("no key", EVIL_ORIGIN): "403",
            ("no key", "Origin: null"): "403",
            ("no key, plain", EVIL_HOST): "403",
            ("certificate of a gateway", EVIL_HOST): "403",
            ("certificate of a gateway", EVIL_ORIGIN): "403",
            ("unknown name", EVIL_HOST): "401",
            ("unknown name", EVIL_ORIGIN): "401",
            ("key of the role admin", EVIL_ORIGIN): "403",
            ("key of the role admin", "Sec-Fetch-Site: cross-site"): "403",
            ("key of the role admin", EVIL_HOST): "yes",
            ("certificate of a gateway", "Host: localhost"): "yes",
        }
        for (name, line), cell in cases.items():
            got = await world.look(proofs[name], line)
            assert {role: said.cell for role, said in got.items()} == dict.fromkeys(got, cell), (name, line)

    await in_grid(tmp_path, ask)


async def test_open(tmp_path: Path) -> None:
    others = KeyMaker(tmp_path / "others")
    guard = AccessGuard(NO_USER, is_open=True)
    assert guard.degree is Degree.OPEN
    async with an_access_world(tmp_path / "world", guard) as world:
        found = await table_of(
            world,
            {
                "no key": Proof(),
                "any key": Proof(await others.key("desk", Role.ADMIN)),
                "no key, over TLS": Proof(tls=others.tls()),
            },
        )
    await others.keys.close()
    assert found == expected(Degree.OPEN)


async def test_certificates(tmp_path: Path) -> None:
    made = await asyncio.to_thread(make_certificates, tmp_path / "certificates")
    others = KeyMaker(tmp_path / "others")
    tls = server_context(made.server_cert, made.server_key, made.ca)
    guard = AccessGuard(knows_certificates=True, tls=lambda: tls)
    assert guard.degree is Degree.CERTIFICATES
    certified = client_context(made.ca, made.client)
    async with an_access_world(tmp_path / "world", guard) as world:
        found = await table_of(
            world,
            {
                "this user, plain": Proof(),
                "no certificate": Proof(tls=client_context(made.ca)),
                "certificate of another authority": Proof(tls=client_context(made.ca, made.stranger)),
                "certificate": Proof(tls=certified),
                "certificate and any key": Proof(await others.key("desk", Role.ADMIN), certified),
            },
        )
    await others.keys.close()
    assert found == expected(Degree.CERTIFICATES)
