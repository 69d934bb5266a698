"""Schedules as they are stored: read, or refused with the reason why this release can't read them."""

from __future__ import annotations

import msgspec

from rota.core.time.schedule import ScheduleSpec
from rota.errors import ConfigError

_spec = msgspec.json.Decoder(ScheduleSpec)


def decode_spec(text: str) -> ScheduleSpec:
    """Decode a stored schedule; a `ConfigError` gives the reason why this release can't read it."""
    try:
        spec = _spec.decode(text)
        said = msgspec.json.decode(text)
        parts = ((said, spec), (said["rule"], spec.rule), (said.get("catch_up"), spec.catch_up))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ConfigError(
            f"what is stored can't be read by this release of Rota: {error}"
        ) from None
    for fields, known in parts:
        # A newer release may say something that changes when it fires: better not at all than wrongly.
        if unknown := sorted(set(fields or ()) - {*known.__struct_fields__, "type"}):
            raise ConfigError(
                f"what is stored has a field {unknown[0]!r} that this release of Rota doesn't know"
            )
    return spec
