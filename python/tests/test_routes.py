import re

import pytest

import tollway

#: A client, a switch and three servers. A frame's link is slow enough that members fill.
SPREAD = """
name = "spread"
duration = "4 s"
[node.client]
[node.front]
[node.server]
count = 3
[link.access]
from = "client"
to = "front"
rate = "10 Mbps"
delay = "2 ms"
law = "xcp"
symmetric = true
[link.member]
from = "front"
to = "server"
rate = "20 Mbps"
delay = "2 ms"
law = "xcp"
symmetric = true
[switch.front]
node = "front"
[flow.any]
from = "client"
to = "server"
session = "front"
law = "xcp"
frames = { size = "1 kB", count = 1200 }
"""


class Turns(tollway.Route):
    """The house's `round-robin`."""

    def __init__(self, of):
        self.next = 0

    def pick(self, item, members):
        for _ in members:
            at = self.next % len(members)
            self.next = at + 1
            if members[at].up:
                return at
        return None


class ByKey:
    """The house's `by-key`, without a base class."""

    def __init__(self, of):
        pass

    def pick(self, item, members):
        up = [at for at, member in enumerate(members) if member.up]
        return max(up, key=lambda at: (mix(item.key ^ members[at].name), -at), default=None)


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def scenario(**sets):
    return tollway.Scenario(SPREAD, sets={key.replace("__", "."): value for key, value in sets.items()})


def packets(spread, **laws):
    return spread.run(digest="packets", laws={"switch.front": route for route in laws.values()}).run


def boom(self, item, members):
    raise ZeroDivisionError("boom")


def module(pick):
    return type("Module", (), {"__init__": lambda self, of: None, "pick": pick})


@pytest.mark.parametrize(("policy", "own"), [("round-robin", Turns), ("by-key", ByKey)])
def test_a_module_of_the_house_in_python_spreads_the_same_packets(policy, own):
    spread = scenario(switch__front__policy=policy)
    assert packets(spread, own=own).digest == packets(spread).digest
    other = "sticky" if policy == "by-key" else "by-key"
    assert packets(scenario(switch__front__policy=other)).digest != packets(spread).digest


def test_a_module_knows_what_it_is_made_for_and_sees_frames_and_members():
    made, seen = [], []

    class Last(tollway.Route):
        def __init__(self, of):
            made.append((of.switch, of.session, of.members))

        def pick(self, item, members):
            seen.append((item.size, [member.up for member in members], members[2].outstanding, members[2].window))
            return 2

    run = packets(scenario(), own=Last)
    assert made == [("front", "any", ["server.1", "server.2", "server.3"])]
    assert len(seen) == 1200 and {row[0] for row in seen[:-1]} == {seen[0][0]} and all(all(row[1]) for row in seen)
    assert seen[0][2] == 0 < max(row[2] for row in seen) < seen[0][3]
    assert run.summary["delivered_bytes"].to_pylist() == [0, 0, 1_200_000]


def test_what_a_module_raises_or_returns_wrongly_ends_the_run():
    long = scenario(duration="100000 s", measure__interval="none")
    for pick, error, why in [
        (boom, ZeroDivisionError, "boom"),
        (lambda self, item, members: "first", TypeError, "it returned 'first'; `pick` returns a place among members, or None"),
        (lambda self, item, members: 3, ValueError, "it returned 3, and there are 3 members"),
    ]:
        with pytest.raises(tollway.RunError) as caught:
            packets(long, own=module(pick))
        text = f"the law `Module` failed: pick of `front`: {error.__name__}: {why}"
        assert text in str(caught.value) and isinstance(caught.value.__cause__, error)
    with pytest.raises(tollway.RunError, match="a law has a method `pick`; this object has none"):
        packets(long, own=lambda of: object())
    with pytest.raises(tollway.ScenarioError, match=re.escape("called `switch.back`") + ".*is `switch.front`"):
        scenario().run(laws={"switch.back": Turns})


def test_a_member_that_is_down_may_not_be_picked():
    leaves = SPREAD + '[[change]]\nat = "200 ms"\nswitch = "front"\nmember = "server.1"\n'
    with pytest.raises(tollway.RunError, match="it returned 0; that member is not `up`"):
        packets(tollway.Scenario(leaves), own=module(lambda self, item, members: 0))
    run = packets(tollway.Scenario(leaves), own=Turns)
    assert sum(run.summary["delivered_bytes"].to_pylist()) >= 1_200_000
