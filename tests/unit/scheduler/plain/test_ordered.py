"""Members in the order of their score, against a plain sort."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.plain.ordered import Ordered

MEMBERS = st.sampled_from([b"a", b"b", b"aa", b"c"])
SCORES = st.sampled_from([0.0, 1.0, 1.5, -2.0])


@given(st.lists(st.tuples(MEMBERS, st.one_of(st.none(), SCORES)), max_size=20), SCORES, st.integers(0, 5))
def test_it_is_a_sorted_set(steps: list[tuple[bytes, float | None]], bound: float, count: int) -> None:
    found: Ordered[bytes] = Ordered()
    plain: dict[bytes, float] = {}
    for member, score in steps:
        if score is None:
            found.discard(member)
            plain.pop(member, None)
        else:
            found.put(member, score)
            plain[member] = score
    in_order = sorted(plain.items(), key=lambda pair: (pair[1], pair[0]))
    assert list(found) == in_order and len(found) == len(plain)
    assert found.first(count) == in_order[:count]
    assert found.lowest() == (in_order[0][1] if in_order else None)
    assert found.due(bound, count) == [member for member, score in in_order if score <= bound][:count]
    assert found.above(bound, count) == [member for member, score in in_order if score > bound][:count]
    assert all(found.score(member) == score and member in found for member, score in plain.items())
