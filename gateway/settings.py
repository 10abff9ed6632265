"""Process settings from the environment (contract section 1): `SLUICEGATE_NAME` or `SLUICEGATE_NAME_FILE`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "SLUICEGATE_"
FILE_SUFFIX = "_FILE"


class SettingsInvalid(Exception):
    """The environment or a flag holds a setting that cannot be used; the text names it, never its value."""


class Settings(BaseSettings):
    """What one process needs to know before it can read the policy."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True)

    database_url: str = Field(
        default="", repr=False, description="PostgreSQL 15 or newer; empty: the embedded one of `up`"
    )
    redis_url: str = Field(
        default="", repr=False, description="Redis 7.0 or Valkey; redis://, rediss:// or unix://; empty: embedded"
    )
    policy: Path | None = Field(
        default=None, description="policy file that is applied at start, on SIGHUP and when it changes on disk"
    )
    data_dir: Path = Field(default=Path(".sluicegate"), description="embedded stores and run state of `up`")
    host: str = Field(default="127.0.0.1", description="address of the tenant port")
    port: int = Field(default=8080, ge=0, le=65535, description="tenant port")
    tls_certificate: Path | None = Field(
        default=None, description="PEM certificate (with its chain) of the tenant port; a renewed file is taken over"
    )
    tls_key: Path | None = Field(default=None, description="PEM key of the same, not encrypted")
    admin_host: str = Field(default="127.0.0.1", description="address of the operators' port")
    admin_port: int = Field(default=8081, ge=0, le=65535, description="operators' port")
    admin_url: str = Field(
        default="", description="operators' port that `send` and `policy apply` speak to when there is no local run"
    )
    admin_key: SecretStr | None = Field(default=None, description="operators' key for the same")
    admin_socket: Path | None = Field(
        default=None, description="unix socket of a supervised role's own operators' page"
    )
    api_workers: int = Field(default=1, ge=1, le=64, description="api processes under `up`")
    egress_workers: int = Field(default=1, ge=1, le=64, description="egress processes under `up`")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else json"
    )
    data_key: SecretStr | None = Field(default=None, description="encrypts texts at rest: 32 octets in base64 or hex")
    data_keys_before: SecretStr | None = Field(
        default=None, description="earlier data keys, comma separated: they open what was encrypted under them"
    )
    cell: str = Field(
        default="c1", pattern=r"^[a-z0-9-]{1,16}$", description="hash tag of this installation's keys in Redis"
    )
    drain_s: float = Field(default=15.0, gt=0, le=600, description="longest graceful stop of a role, seconds")
    trusted_proxies: str = Field(
        default="", description="networks (CIDR, comma separated) whose X-Forwarded-For is believed"
    )

    @field_validator("tls_certificate", "tls_key")
    @classmethod
    def _is_a_path(cls, given: Path | None) -> Path | None:
        if given is not None and "-----BEGIN" in str(given):
            raise ValueError("expects the path of a PEM file, not what is in it")
        return given

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Settings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("SLUICEGATE_TLS_CERTIFICATE and SLUICEGATE_TLS_KEY are given together or not at all")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags first, then the environment; no .env file."""
        return init_settings, EnvironmentSource(settings_cls)


class EnvironmentSource(PydanticBaseSettingsSource):
    """Reads `SLUICEGATE_NAME` or `SLUICEGATE_NAME_FILE`; an unknown name is an error that names the nearest one."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """One field's value from the environment, in the form that pydantic-settings asks of a source."""
        return read_environment(os.environ, self.settings_cls.model_fields).get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(read_environment(os.environ, self.settings_cls.model_fields))


def read_environment(environ: Mapping[str, str], fields: Mapping[str, object]) -> dict[str, str]:
    """The settings that the environment gives, by field name.

    Raises SettingsInvalid for an unknown variable, one given twice (plain and as file), and a file that cannot be read.
    """
    known = {PREFIX + name.upper(): name for name in fields}
    found: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.upper().startswith(PREFIX):
            continue
        plain = variable.removesuffix(FILE_SUFFIX)
        if variable in known:
            found[known[variable]] = value
        elif plain in known and plain != variable:
            if plain in environ:
                raise SettingsInvalid(f"{plain} and {variable} are both set: keep one of them")
            found[known[plain]] = _read_secret(variable, value)
        else:
            near = difflib.get_close_matches(
                variable, [*known, *(name + FILE_SUFFIX for name in known)], n=1, cutoff=0.0
            )
            raise SettingsInvalid(f"{variable} is not a setting; did you mean {near[0]}?")
    return found


def load_settings(**flags: Any) -> Settings:
    """Settings from the environment, overruled by flags that are not None.

    Raises SettingsInvalid with every fault in one text; values are never part of it.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        faults = "; ".join(map(_told, error.errors(include_input=False)))
        raise SettingsInvalid(faults) from None


def _told(fault: Any) -> str:
    place = f"{PREFIX}{str(fault['loc'][0]).upper()}: " if fault["loc"] else ""
    return place + str(fault["msg"]).removeprefix("Value error, ")


def _read_secret(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"{variable}: the file cannot be read ({type(error).__name__})") from None
