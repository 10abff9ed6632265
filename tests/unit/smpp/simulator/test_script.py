"""Scripts of the simulator: every fault at once, by name."""

from __future__ import annotations

import pytest

from smpp.simulator import Phase, ScriptInvalid, SimulatorSettings, load_script
from smpp.simulator.settings import changed


def test_a_script_sets_what_it_names() -> None:
    settings = load_script(
        """
        port: 0
        answer_delay_ms: 20
        error_status: 0x14
        error_ratio: 0.5
        receipts: false
        phases:
          - {at_s: 20, throttle_per_s: 0}
          - {at_s: 10, throttle_per_s: 50}
        """
    )
    assert settings == SimulatorSettings(
        port=0,
        answer_delay_ms=20,
        error_status=0x14,
        error_ratio=0.5,
        receipts=False,
        phases=(Phase(10.0, {"throttle_per_s": 50}), Phase(20.0, {"throttle_per_s": 0})),
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_an_empty_script_is_the_default(text: str) -> None:
    assert load_script(text) == SimulatorSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("anser_delay_ms: 5", "anser_delay_ms: unknown setting, did you mean answer_delay_ms?"),
        ("answer_delay_ms: fast", "answer_delay_ms: must be a whole number from 0 to 3.6e+06"),
        ("answer_delay_ms: 1.5", "answer_delay_ms: must be a whole number"),
        ("answer_delay_ms: true", "answer_delay_ms: must be a whole number"),
        ("error_ratio: 2", "error_ratio: must be a number from 0 to 1"),
        ("receipts: 1", "receipts: must be true or false"),
        ("password: 7", "password: must be a text"),
        ("host: null", "host: must be a text"),
        ("seed: x", "seed: must be a whole number"),
        ("- a\n- b", "must be a mapping"),
        ("a: [", "not YAML"),
        ("phases: 3", "phases: must be a list"),
        ("phases: [3]", "phases[0]: must be a mapping"),
        ("phases: [{throttle_per_s: 1}]", "phases[0].at_s: must be a number of seconds from 0"),
        ("phases: [{at_s: 1, port: 5}]", "phases[0].port: cannot change while the simulator runs"),
        ("7: 1", "7: unknown setting"),
    ],
)
def test_faults_are_clear(text: str, message: str) -> None:
    with pytest.raises(ScriptInvalid) as caught:
        load_script(text)
    assert message in str(caught.value)


def test_all_faults_come_at_once() -> None:
    with pytest.raises(ScriptInvalid) as caught:
        load_script("error_ratio: 2\nnothing_known: 1\nphases: [{at_s: -1}]")
    assert len(str(caught.value).splitlines()) == 3


def test_changes_while_running_are_checked() -> None:
    assert changed(SimulatorSettings(), {"drop_ratio": 1}).drop_ratio == 1
    with pytest.raises(ScriptInvalid):
        changed(SimulatorSettings(), {"port": 1})
    with pytest.raises(ScriptInvalid):
        changed(SimulatorSettings(), {"drop_ratio": 3})
