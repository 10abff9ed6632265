"""Settings: names, files, nearest names, and nothing of their values in errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import Settings, SettingsInvalid, load_settings


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("SLUICEGATE_"):
            monkeypatch.delenv(name)


def test_defaults_are_on_loopback() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.admin_host, settings.admin_port) == (
        "127.0.0.1",
        8080,
        "127.0.0.1",
        8081,
    )
    assert settings.database_url == ""


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_PORT", "9000")
    assert load_settings().port == 9000
    assert load_settings(port=9001, host=None).port == 9001


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://a:b@c/d\n")
    monkeypatch.setenv("SLUICEGATE_DATABASE_URL_FILE", str(tmp_path / "url"))
    assert load_settings().database_url == "postgresql://a:b@c/d"
    monkeypatch.setenv("SLUICEGATE_DATABASE_URL", "x")
    with pytest.raises(SettingsInvalid, match="both set"):
        load_settings()


def test_a_missing_secret_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_REDIS_URL_FILE", "/nowhere/at/all")
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_REDIS_URL_FILE"):
        load_settings()


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("SLUICEGATE_DATABSE_URL", "SLUICEGATE_DATABASE_URL"),
        ("SLUICEGATE_PROT", "SLUICEGATE_PORT"),
        ("SLUICEGATE_REDIS_URL_FLE", "SLUICEGATE_REDIS_URL_FILE"),
        ("SLUICEGATE_api_worker", "SLUICEGATE_"),
    ],
)
def test_an_unknown_variable_names_the_nearest(monkeypatch: pytest.MonkeyPatch, wrong: str, near: str) -> None:
    monkeypatch.setenv(wrong, "x")
    with pytest.raises(SettingsInvalid, match=f"{wrong} is not a setting; did you mean {near}"):
        load_settings()


def test_errors_and_representations_hold_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_PORT", "canary-port")
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_PORT") as caught:
        load_settings()
    assert "canary" not in str(caught.value)
    monkeypatch.delenv("SLUICEGATE_PORT")
    shown = repr(
        load_settings(database_url="canary-url", redis_url="canary-url", data_key="canary-key", admin_key="canary-key")
    )
    assert "canary" not in shown


def test_every_setting_says_what_it_is() -> None:
    silent = {name for name, field in Settings.model_fields.items() if not field.description}
    assert silent <= {"log_level"}


def test_a_certificate_needs_its_key_and_both_are_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_TLS_CERTIFICATE", "/etc/sluicegate/tls.crt")
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_TLS_KEY are given together"):
        load_settings()
    monkeypatch.setenv("SLUICEGATE_TLS_KEY", "-----BEGIN PRIVATE KEY-----canary")
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_TLS_KEY: expects the path") as told:
        load_settings()
    assert "canary" not in str(told.value)
    monkeypatch.setenv("SLUICEGATE_TLS_KEY", "/etc/sluicegate/tls.key")
    assert load_settings().tls_key == Path("/etc/sluicegate/tls.key")
