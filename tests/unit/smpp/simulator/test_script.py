"""Scripts of the simulator: every fault at once, by name."""

from __future__ import annotations

import pytest

from smpp.simulator import Phase, ScriptInvalid, SimulatorSettings, load_script
from smpp.simulator.script import changed


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
        ("answer_delay_ms: fast", "answer_delay_ms: must be ms from 0 to 3600000, or uniform: [least, most]"),
        ("answer_delay_ms: true", "answer_delay_ms: must be ms from 0"),
        ("answer_delay_ms: {uniform: [5, 1]}", "answer_delay_ms: must be ms from 0"),
        ("answer_delay_ms: {uniform: 5}", "answer_delay_ms: must be ms from 0"),
        ("answer_delay_ms: {lognormal: [0, 5]}", "answer_delay_ms: must be ms from 0"),
        ("answer_delay_ms: {gauss: [0, 5]}", "answer_delay_ms: must be ms from 0"),
        ("max_binds: 1.5", "max_binds: must be a whole number from 0 to 100000"),
        ("port: 65536", "port: must be a whole number from 0 to 65535"),
        ("rules: [{destination: '*', staus: 8}]", "rules[0].staus: unknown setting, did you mean status?"),
        ("rules: [{receipt: DELIVERED}]", "rules[0].receipt: must be one of DELIVRD"),
        ("rules: {}", "rules: must be a list"),
        ("dialect: {text: 'id:{number}'}", "dialect.text: must be a text with places of {id}"),
        ("dialect: {text: 'id:{id'}", "dialect.text: must be a text with places"),
        ("dialect: {dates: yymmdd}", "dialect.dates: must be one of yymmddhhmm"),
        ("dialect: {timezone: Mars/Olympus}", "dialect.timezone: must be the name of a time zone"),
        ("dialect: {stray: xyz}", "dialect.stray: must be octets as hexadecimal digits"),
        ("dialect: {words: {DELIVERED: OK}}", "dialect.words.DELIVERED: must be one of DELIVRD"),
        ("dialect: {extra_tlvs: {0x1403: 7}}", "dialect.extra_tlvs.0x1403: must be octets"),
        ("dialect: {extra_tlvs: {70000: '00'}}", "dialect.extra_tlvs: must map tags"),
        ("dialect: {tlvs: [message_stat]}", "did you mean message_state?"),
        ("receipt_outcomes: {DELIVRD: 0}", "receipt_outcomes: some weight must be above 0"),
        ("receipt_outcomes: {DONE: 1}", "receipt_outcomes.DONE: must be one of"),
        ("intermediate: [DELIVRD]", "intermediate[0]: must be one of ENROUTE"),
        ("bad_pdu: long_lenght", "bad_pdu: must be one of long_length"),
        ("tls_key: x", "tls_key: needs tls_certificate"),
        ("bind_refusals: 2", "bind_refusals: needs bind_status"),
        ("actions: [{at_s: 1, do: inbond}]", "actions[0].do: must be one of inbound"),
        ("actions: [{do: cut}]", "actions[0]: needs either at_s or after_bind_s"),
        ("actions: [{at_s: 1, after_bind_s: 1, do: cut}]", "actions[0]: needs either at_s or after_bind_s"),
        ("actions: [{at_s: 1, do: inbound, text: a}]", "actions[0].source: is missing"),
        ("actions: [{at_s: 1, do: inbound, source: a, destination: b}]", "actions[0]: needs either text or octets"),
        ("actions: [{at_s: 1, do: cut, count: 3}]", "actions[0].count: unknown setting"),
        ("actions: [7]", "actions[0]: must be a mapping"),
        ("phases: [{at_s: 1, dialect: {ids: big}}]", "phases[0].dialect.ids: must be one of same"),
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
