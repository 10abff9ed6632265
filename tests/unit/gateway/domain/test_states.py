from gateway.domain import states


def test_every_transition_joins_known_states() -> None:
    for (before, _event), after in states.TRANSITIONS.items():
        assert before in states.ALL
        assert after in states.ALL


def test_sending_is_derived_and_never_stored() -> None:
    touched = {before for before, _ in states.TRANSITIONS} | set(states.TRANSITIONS.values())
    assert states.SENDING not in touched


def test_ours_are_closed_for_good() -> None:
    """Expired, canceled, suppressed and rejected are never the result of a receipt, nor undone by one."""
    closed = {states.EXPIRED, states.CANCELED, states.SUPPRESSED, states.REJECTED}
    assert not [pair for pair in states.TRANSITIONS if pair[0] in closed]
    for (before, event), after in states.TRANSITIONS.items():
        if event in ("deliver", "undeliver"):
            assert after not in closed, (before, event)


def test_final_states_leave_only_by_late_evidence() -> None:
    leaving = {pair for pair in states.TRANSITIONS if states.is_final(pair[0])}
    assert {event for _, event in leaving} <= {"accept", "deliver", "undeliver"}


def test_an_event_without_a_row_changes_nothing() -> None:
    assert states.transition(states.EXPIRED, "deliver") is None
    assert states.transition(states.QUEUED, "accept") == states.SENT


def test_origins_are_the_contract_s() -> None:
    assert states.origin_of("rejected") == "carrier"
    assert states.origin_of("delivered") == "carrier"
    assert states.origin_of("expired") == "gateway"
    assert states.origin_of("unknown") == "gateway"
