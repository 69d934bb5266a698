"""Programs as jobs: the task `rota.command`, for crontab entries and whatever isn't Python.

Protocol. A node has the task only where its operator allows it: who may submit jobs could
otherwise run programs there. The program gets a process group of its own, and only the environment
that its job names, on top of a minimal one: never the node's, with its secrets. The job lasts until
the program has ended and nothing holds its output any more, as under cron. A stop (timeout, cancel,
shutdown, lost lease) sends SIGTERM to the group, SIGKILL after the grace period, and waits until the
group is gone: being cancelled again meanwhile changes nothing. If the node itself is killed, its
programs run on, and another node may start the job again.

Exit code 0 is success. 75 (EX_TEMPFAIL) asks for another try in a minute, as often as the job's
`max_attempts` allows. Every other code is final: a program that failed is not run twice unasked. What a
job's `exit_codes` says of a code goes before that.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, cast

import msgspec

from rota.app import App
from rota.context import Context
from rota.core.resources import MEMORY, said_one
from rota.errors import ConfigError, Fatal, JobError, OutOfMemory
from rota.lib import capture
from rota.lib.cgroups import Group, open_groups
from rota.model import Retry

__all__ = ["COMMAND_TASK", "CommandFailed", "CommandResult", "enable_commands"]

COMMAND_TASK = "rota.command"

OUTPUT_LIMIT = 64 * 1024  # bytes that are kept of each stream: its beginning and its end
_TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h
_TRY_AGAIN_AFTER = 60.0
_TAIL = 1_500  # characters of standard error in a failure's message
_LOOK_EVERY = 0.02
_LAST_WAIT = 1.0  # for the kernel, after SIGKILL
# What a job may set for a given program, and to what: nothing that leads to a file or a program.
_LOCALE = re.compile(r"[A-Za-z0-9_.@-]{0,64}")
_ZONE = re.compile(r"(?!/)(?!.*\.\.)[A-Za-z0-9_/+-]{0,64}")
_HARMLESS = {"LANG": _LOCALE, "LC_ALL": _LOCALE, "TZ": _ZONE}
# Never a job's to say where only given programs run: each decides which code that is.
_DECIDING = frozenset({"PATH", "HOME", "SHELL", "IFS", "ENV", "BROWSER", "EDITOR", "PAGER"})
_DECIDING_PREFIXES = ("LD_", "DYLD_", "BASH_", "PYTHON", "PERL", "RUBY", "NODE_", "JAVA_", "GIT_")
# Programs whose arguments are programs: to allow one of them is to allow all.
_RUN_OTHERS = re.compile(
    r"(?:a|ba|da|z|k|c|tc|fi)?sh|busybox|env|xargs|find|sudo|su|doas|nice|nohup|setsid|timeout|time|stdbuf"
    r"|strace|gdb|ssh|make|awk|gawk|mawk|vim?|ex|(?:python|perl|ruby|node|lua|php)[0-9.]*"
)

# What an exit code means: done; worth another try, after the growing pauses of a retry; or final.
ExitMeaning = Literal["succeed", "retry", "fail"]

T = TypeVar("T")


class CommandFailed(JobError):
    """A program ended with an exit code other than 0, by a signal, or could not be started."""

    def __init__(self, message: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class CommandInterrupted(JobError):
    """A program ended with an exit code that its job calls worth another try."""


class CommandResult(TypedDict):
    """The result of a program that succeeded."""

    exit_code: int
    stdout: str
    stderr: str


# What programs say when the system gives them no more memory.
_NO_MEMORY = re.compile(
    r"[^\n]*(?:MemoryError|bad_alloc|[Oo]ut of memory|OutOfMemory|[Cc]annot allocate memory|"
    r"[Mm]emory exhausted|ENOMEM)[^\n]{0,200}"
)


class _Rules(msgspec.Struct, frozen=True):
    """The programs, variables and folders that jobs may use where not everything is allowed."""

    programs: frozenset[str]
    lists: frozenset[tuple[str, ...]]
    variables: frozenset[str]
    folders: tuple[str, ...]


def enable_commands(
    app: App,
    allow: Sequence[str | Sequence[str]] | Literal["any"] = "any",
    *,
    env: Sequence[str] = (),
    folders: Sequence[str] = (),
) -> None:
    """Let this app's workers run programs: the jobs of the task ``rota.command``.

    Args:
        app: whose workers. Enabling it twice changes nothing.
        allow: ``"any"``, or what may be run, as the jobs name it in `argv`: a program, with whatever
            arguments a job gives, or a whole argument list. ``["/usr/local/bin/backup",
            ["pg_dump", "--format=c", "shop"]]``. With such a list nothing goes through a shell.
        env: with such a list, the variables that a job may set besides LANG, LC_ALL and TZ. Only those
            that can't make one of the programs run other code.
        folders: with such a list, the folders that a job may choose as its `cwd`.
    """
    if isinstance(allow, str) and allow != "any":
        raise ConfigError(f'allow must be "any" or a list of programs, not {allow!r}')
    rules = None if allow == "any" else _rules(allow, env, folders)
    if COMMAND_TASK in app.tasks:
        return

    async def command(
        ctx: Context,
        argv: list[str] | None = None,
        shell: str | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | None = None,
        user: str | None = None,  # a crontab's; it runs as the worker's own
        exit_codes: dict[int, ExitMeaning] | None = None,
    ) -> CommandResult:
        """Run a program: `argv` as it is, or `shell` through SHELL -c."""
        if rules is not None:
            _check(rules, argv, shell, env or {}, cwd)
        environment = {**_base_environment(), **(env or {})}
        program = _program(argv, shell, environment, only_given=rules is not None)
        folder = _folder(cwd, environment)
        with _within(
            program,
            environment["PATH"],
            ctx.job.resources.get("memory"),
            app.settings.memory_limits,
        ) as limit:
            watch = await _run(limit.program, environment, folder, stdin, app.settings.kill_grace)
            limit.check(watch)
        return _judge(program, watch, exit_codes or {})

    never = (CommandFailed, OutOfMemory)
    app.task(name=COMMAND_TASK, retry=Retry(never_on=never))(command)


def _rules(
    allow: Sequence[str | Sequence[str]], env: Sequence[str], folders: Sequence[str]
) -> _Rules:
    """Check the lists. Raises ConfigError for an entry that would allow everything."""
    programs = frozenset(entry for entry in allow if isinstance(entry, str))
    for program in programs:
        if _RUN_OTHERS.fullmatch(os.path.basename(program)):
            raise ConfigError(
                f"allow: {program!r} runs whatever its arguments say. Allow a whole argument list "
                f'([{program!r}, ...]), a program that does one thing, or "any"'
            )
    lists = frozenset(tuple(entry) for entry in allow if not isinstance(entry, str))
    for program in (*programs, *(entry[0] for entry in lists if entry)):
        if "/" in program and not os.path.isabs(program):
            raise ConfigError(
                f"allow: {program!r} must begin with /, or be a name without a folder"
            )
    for name in env:
        if _is_deciding(name):
            raise ConfigError(f"env: {name} decides which code a program runs; a job can't set it")
    if bad := [folder for folder in folders if not os.path.isabs(folder)]:
        raise ConfigError(f"folders: {bad[0]!r} must begin with /")
    there = tuple(os.path.realpath(folder) for folder in folders)
    return _Rules(programs, lists, frozenset(env), there)


def _check(
    rules: _Rules, argv: list[str] | None, shell: str | None, env: Mapping[str, str],
    cwd: str | None,
) -> None:  # fmt: skip
    if shell is not None:
        raise Fatal("this worker runs only the programs that it was given, and no shell")
    if argv and argv[0] not in rules.programs and tuple(argv) not in rules.lists:
        there = ", ".join(sorted({*rules.programs, *(" ".join(each) for each in rules.lists)}))
        raise Fatal(f"this worker may not run {_shown(argv)!r}; allowed: {there or 'nothing'}")
    for name, value in env.items():
        harmless = _HARMLESS.get(name)
        if name not in rules.variables and not (harmless and harmless.fullmatch(value)):
            hint = "This worker's operator allows a variable with enable_commands(..., env=[...])"
            if harmless or _is_deciding(name):
                hint = "This worker runs only given programs, and it could lead to another"
            raise Fatal(f"env: {name} can't be set to this value by a job. {hint}")
    if cwd is not None and os.path.realpath(cwd) not in rules.folders:
        raise Fatal(
            f"cwd: this worker runs only given programs, not in {cwd!r}. The worker's operator allows a "
            "folder: enable_commands(..., folders=[...])"
        )


def _is_deciding(name: str) -> bool:
    return name in _DECIDING or name.startswith(_DECIDING_PREFIXES)


def _base_environment() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH") or os.defpath,
        "HOME": os.environ.get("HOME") or "/",
        "LANG": os.environ.get("LANG") or "C.UTF-8",
        "SHELL": "/bin/sh",
    }


def _program(
    argv: list[str] | None, shell: str | None, environment: Mapping[str, str], *, only_given: bool
) -> list[str]:
    """Return the argument list to execute."""
    if (argv is None) == (shell is None):
        raise Fatal(f"{COMMAND_TASK}: give either argv or shell")
    if shell is not None:
        return [environment["SHELL"] or "/bin/sh", "-c", shell]
    if not argv:
        raise Fatal(f"{COMMAND_TASK}: argv is empty; its first item is the program")
    if not only_given:
        return argv
    # Found here, by the node's PATH, and as a whole path: nothing of the job's leads to another program
    # of that name, neither a variable nor the folder that it is run in.
    found = shutil.which(argv[0], path=environment["PATH"])
    if found is None or not os.path.isabs(found):
        raise _not_started(argv[0], "there is no such program on this worker", 127)
    return [found, *argv[1:]]


def _folder(cwd: str | None, environment: Mapping[str, str]) -> str:
    """Return the folder it runs in: `cwd`, or else the home directory, as under cron."""
    if cwd is None:
        home = environment["HOME"]
        return home if os.path.isdir(home) else "/"
    if not os.path.isdir(cwd):
        raise CommandFailed(f"there is no folder {cwd!r} on this worker", 126)
    return cwd


async def _run(
    program: list[str], environment: dict[str, str], folder: str, stdin: str | None, grace: float
) -> _Watch:
    watch, stopped = await _whole(_start(program, environment, folder, stdin is not None))
    try:
        if stopped is not None:
            raise stopped
        watch.feed(stdin)
        await asyncio.shield(watch.ended)
    except BaseException:
        await _whole(watch.end_group(grace))
        raise
    return watch


async def _start(program: list[str], environment: dict[str, str], folder: str, fed: bool) -> _Watch:
    try:
        _, watch = await asyncio.get_running_loop().subprocess_exec(
            _Watch,
            *program,
            env=environment,
            cwd=folder,
            stdin=asyncio.subprocess.PIPE if fed else asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise _not_started(program[0], "there is no such program on this worker", 127) from None
    except OSError as error:
        raise _not_started(program[0], error.strerror or str(error), 126) from None
    except ValueError as error:  # a NUL, or a name of a variable with =
        raise Fatal(f"{program[0]!r} can't be started: {error}") from None
    return watch


class _Limit:
    """The memory that a program may use. `program`: how it is started, so that it stays within that."""

    def __init__(self, program: list[str], memory: float | None, group: Group | None) -> None:
        self.program = program
        self._memory = memory
        self._group = group
        if memory is None:
            return
        if group is not None:
            group.limit(int(memory) >> 20)
            enter, what = 'echo $$ > "$0"', str(group.folder / "cgroup.procs")
        else:
            enter, what = 'ulimit -d "$0"', str(int(memory) // 1024)
        # Set by a shell that then becomes the program: nothing of it runs without the limit.
        self.program = ["/bin/sh", "-c", f'{enter} && exec "$@"', what, *program]

    def check(self, watch: _Watch) -> None:
        """Raise OutOfMemory if the program has failed for the lack of memory."""
        if self._memory is None or watch.exit_code == 0:
            return
        limit = f"it asked for {said_one(MEMORY, int(self._memory) >> 20)} of memory"
        if self._group is not None:
            if self._group.was_over():
                peak = self._group.peak()
                used = f" ({said_one(MEMORY, peak >> 20)})" if peak is not None else ""
                raise OutOfMemory(f"{limit}, and used more{used}: it was killed by the system")
        elif said := _NO_MEMORY.search(watch.stderr.text()):
            raise OutOfMemory(f"{limit}, and failed when it asked for more: {said[0]}")


@contextlib.contextmanager
def _within(program: list[str], path: str, memory: float | None, limits: str) -> Iterator[_Limit]:
    if memory is None or limits == "none" or os.name != "posix":
        yield _Limit(program, None, None)
        return
    if "/" not in program[0] and shutil.which(program[0], path=path) is None:
        raise _not_started(program[0], "there is no such program on this worker", 127)
    groups = open_groups() if limits in ("auto", "cgroup") else None
    group = groups.make() if groups is not None else None
    try:
        yield _Limit(program, memory, group)
    finally:
        if group is not None:
            group.remove()


def _not_started(program: str, reason: str, code: int) -> CommandFailed:
    return CommandFailed(f"{program!r} could not be started: {reason} (exit code {code})", code)


def _judge(program: list[str], watch: _Watch, meanings: Mapping[int, ExitMeaning]) -> CommandResult:
    code = watch.exit_code
    meaning = meanings.get(code)
    if meaning == "succeed" or (meaning is None and code == 0):
        return {"exit_code": code, "stdout": watch.stdout.text(), "stderr": watch.stderr.text()}
    said = watch.stderr.text().strip()[-_TAIL:]
    message = f"`{_shown(program)}` {_how_it_ended(code)}" + (f": {said}" if said else "")
    if meaning == "retry":
        raise CommandInterrupted(message)
    if meaning is None and code == _TEMPORARY:
        raise Retry.after(_TRY_AGAIN_AFTER, message)
    raise CommandFailed(message, code)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _shown(program: list[str], length: int = 200) -> str:
    text = program[2] if program[1:2] == ["-c"] else " ".join(program)
    return text if len(text) <= length else f"{text[: length - 3]}..."


class _Output:
    """The beginning and the end of a stream; and all of it, within limits, for the job's log."""

    def __init__(self, name: str, source: capture.Source | None) -> None:
        self._name = name
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes, *, final: bool = False) -> None:
        if self._source is not None and (text := self._decoder.decode(data, final)):
            self._source.said(self._name, text)
        half = OUTPUT_LIMIT // 2
        room = half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * half:  # not at every byte: cutting copies
            self._cut(half)

    def _cut(self, size: int) -> None:
        over = len(self._tail) - size
        if over > 0:
            self._dropped += over
            del self._tail[:over]

    def text(self) -> str:
        self._cut(OUTPUT_LIMIT - len(self._head))
        head, tail = bytes(self._head), bytes(self._tail)
        if self._dropped:
            head += f"\n[... {self._dropped:,} bytes left out ...]\n".encode()
        # Whatever it was, it can be stored: PostgreSQL takes no NUL.
        return (head + tail).decode("utf-8", "replace").replace("\0", "\ufffd")


class _Watch(asyncio.SubprocessProtocol):
    """One running program and its output."""

    def __init__(self) -> None:
        source = capture.current.get()
        self.stdout, self.stderr = _Output("stdout", source), _Output("stderr", source)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == 1 else self.stderr).add(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it was reaped, and that no process holds its output."""
        self.stdout.add(b"", final=True)
        self.stderr.add(b"", final=True)
        self._process.close()
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def exit_code(self) -> int:
        code = self._process.get_returncode()
        assert code is not None
        return code

    def feed(self, text: str | None) -> None:
        if text is not None:
            pipe: Any = self._process.get_pipe_transport(0)
            pipe.write(text.encode("utf-8", "surrogateescape"))  # one that isn't read is no error
            pipe.close()

    async def end_group(self, grace: float) -> None:
        group = self._process.get_pid()
        _signal_group(group, signal.SIGTERM)
        if not await _is_gone(group, grace):
            _signal_group(group, signal.SIGKILL)
            await _is_gone(group, _LAST_WAIT)
        # Also when something that left the group still holds the output.
        self._process.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.ended), _LAST_WAIT)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group. Return whether a process is in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a program that runs as another user
        pass
    return True


async def _is_gone(group: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while _signal_group(group, 0):
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


async def _whole(coroutine: Coroutine[Any, Any, T]) -> tuple[T, BaseException | None]:
    """Return its result, and the last cancellation meanwhile: a runner cancels again and again."""
    task = asyncio.ensure_future(coroutine)
    cancelled: BaseException | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled
