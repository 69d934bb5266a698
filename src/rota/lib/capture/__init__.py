"""What handlers print and log, kept with the attempt that said it.

Protocol. A runner names the attempt that runs in a context (`current`), or in a process that runs one at
a time (`only_source`). `streams` stands in for standard output and standard error and beside `logging`:
what is said goes where it always went, and then to the attempt, if there is one. The attempt's
`Recorder` makes lines of it, numbers them, and keeps their size and rate within limits. An attempt that
says nothing has no recorder.
"""

from rota.lib.capture.recorder import Limits, Line, Recorder
from rota.lib.capture.streams import Source, current, install, only_source, uninstall

__all__ = [
    "Limits",
    "Line",
    "Recorder",
    "Source",
    "current",
    "install",
    "only_source",
    "uninstall",
]
