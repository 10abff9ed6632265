"""Where callbacks may go (contract, "Callbacks"; case H24)."""

from __future__ import annotations

import asyncio

import pytest

from gateway.callbacks.addresses import AddressRefused, Resolver, check_url, is_public

INSIDE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.5", "172.16.3.4", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "192.0.2.7", "203.0.113.9", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "168.63.129.16", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1",
    "::ffff:10.0.0.5", "::ffff:127.0.0.1", "64:ff9b::a00:5", "64:ff9b:1::a00:5", "2002:a00:5::1", "2001:db8::1",
    "fec0::1", "::7f00:1", "4000::1", "2001:0:a00:5::f5ff:fffa", "2a00::5efe:a00:5", "2a00:1:2:3:200:5efe:7f00:1",
    "2001:db8::5efe:808:808", "192.88.99.1", "3fff::1", "5f00::1", "100::1", "2001:20::1", "2002:c058:6301::1",
    "::ffff:0:7f00:1", "192.0.0.8", "192.0.0.9", "fd12:3456:789a::1", "2001:1::1", "2001:2::1", "2001:3::1",
    "2001:4:112::1", "2001:10::1", "2001:30::1", "2001:1ff:ffff::1", "2001:0:808:808::f7f7:f7f7", "100:0:0:1::1",
]  # fmt: skip
OUTSIDE = [
    "8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8",
    "2a00::5efe:808:808", "2a00::5eff:a00:5", "3ffe::1", "2001:200::1", "2001:4860:4860::8888",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_inner_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest", "http://127.0.0.1:6379/", "http://[::ffff:10.0.0.5]/", "http://[::1]/",
        "http://[fe80::1%25eth0]/", "https://user:pw@cb.example/", "https://user@cb.example/", "ftp://cb.example/",
        "file:///etc/passwd", "https:///nohost", "http://[::1", "http://cb.example:99999/", "gopher://cb.example",
        "http://[2a00::5efe:10.0.0.5]/", "http://cb.example\\@127.0.0.1/", "http://127.0.0.1#@cb.example/",
        "http://127.0.0.1%2f@cb.example/", "http://[::1]:80:80/", "http:127.0.0.1", "http://cb.example:0/",
    ],
)  # fmt: skip
def test_urls_that_are_never_called(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(url, allow_private=False)


def test_private_targets_where_the_policy_allows_them() -> None:
    check_url("http://127.0.0.1:9000/hooks", allow_private=True)
    check_url("https://cb.example/hooks", allow_private=False)
    with pytest.raises(AddressRefused):
        check_url("http://user:pw@127.0.0.1/", allow_private=True)


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "0",
        "\uff11\uff12\uff17.0.0.1", "\u2460\u2461\u2466.0.0.1", "127\u30020\u30020\u30021",
    ],
)  # fmt: skip
async def test_names_and_odd_notations_are_checked_once_resolved(host: str) -> None:
    resolver = Resolver()
    with pytest.raises(OSError):
        await resolver.resolve(host, 80, allow_private=False)
    resolver.close()


async def test_an_allowed_name_resolves_to_the_addresses_that_are_connected_to() -> None:
    resolver = Resolver()
    assert set(await resolver.resolve("localhost", 80, allow_private=True)) <= {"127.0.0.1", "::1"}
    resolver.close()


async def test_one_inner_address_condemns_the_name_and_it_is_asked_each_time() -> None:
    answers = iter([["93.184.216.34"], ["93.184.216.34", "10.0.0.5"], []])
    resolver = Resolver(lambda host, port: next(answers), fresh_s=0.0)
    assert await resolver.resolve("cb.example", 443, allow_private=False) == ["93.184.216.34"]
    with pytest.raises(AddressRefused):
        await resolver.resolve("cb.example", 443, allow_private=False)
    with pytest.raises(OSError):
        await resolver.resolve("cb.example", 443, allow_private=False)
    resolver.close()


async def test_tries_at_once_share_a_lookup_and_what_they_may_reach_is_judged_for_each() -> None:
    asked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["10.0.0.5"]

    resolver = Resolver(look_up, fresh_s=60.0)
    told = await asyncio.gather(*(resolver.resolve("cb.example", 443, allow_private=True) for _ in range(8)))
    assert told == [["10.0.0.5"]] * 8 and asked == ["cb.example"]
    with pytest.raises(AddressRefused):
        await resolver.resolve("cb.example", 443, allow_private=False)
    assert len(asked) == 1
    resolver.forget("cb.example", 443)
    await resolver.resolve("cb.example", 443, allow_private=True)
    assert len(asked) == 2
    resolver.close()


async def test_an_answer_is_good_for_a_moment_and_a_failed_lookup_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("gateway.callbacks.addresses.time.monotonic", lambda: clock[0])
    answers: list[list[str] | OSError] = [["8.8.8.8"], OSError("no answer"), ["1.1.1.1"]]

    def look_up(host: str, port: int) -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    resolver = Resolver(look_up)
    for clock[0] in (100.0, 100.9):
        assert await resolver.resolve("cb.example", 443, allow_private=False) == ["8.8.8.8"]
    clock[0] = 101.1
    with pytest.raises(OSError, match="no answer"):
        await resolver.resolve("cb.example", 443, allow_private=False)
    assert await resolver.resolve("cb.example", 443, allow_private=False) == ["1.1.1.1"]
    resolver.close()


@pytest.mark.parametrize("port", [22, 25, 6379, 6667, 5060])
def test_ports_of_other_protocols_are_never_called(port: int) -> None:
    for allow_private in (True, False):
        with pytest.raises(AddressRefused):
            check_url(f"https://cb.example:{port}/", allow_private=allow_private)
