"""Emulated networks for the tests of an application."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from tollway import _native
from tollway._scenario import Scenario, _sets

Args = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# It loads the extension module alone: other packages start threads, and a process with threads can't
# enter a user namespace.
_HELPER = """
import importlib.machinery, importlib.util, sys
name, path = "tollway._native", sys.argv[1]
loader = importlib.machinery.ExtensionFileLoader(name, path)
module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path, loader=loader))
loader.exec_module(module)
module.emulation_helper()
"""

# Enters namespaces and becomes the program, unless its parent was killed meanwhile: the network may
# have ended then, with the programs in it. A `preexec_fn` would run in a fork of a process that may
# have threads.
_ENTER = """
import ctypes, os, signal, sys
spaces, mark, parent, *command = sys.argv[1:]
here, libc = os.getcwd(), ctypes.CDLL(None, use_errno=True)
for space in spaces.split(","):
    if libc.setns(int(space), 0):
        raise OSError(ctypes.get_errno(), "cannot enter the network")
    os.close(int(space))
if os.getppid() != int(parent):
    sys.exit("the test has ended")
os.chdir(here)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
os.environ.update([mark.split("=")])
os.execvp(command[0], command)
"""


class Emulation:
    """A network of namespaces with emulated links, for programs and sockets of this process. It is that of ``tollway exec``.

    >>> with tollway.Emulation("10Mbps 40ms loss=1%") as net:
    ...     net.serve("server", ["python3", "-m", "http.server", "8000"])
    ...     net.run(["curl", "-sf", "http://server:8000/"], timeout=10, check=True)
    ...     net.report()["links"]

    Networks of a process are independent, and several threads can use one. All programs in a network end with it, also if this
    process is killed. A helper process holds the network, because ordinary users can make one only in a process without threads.

    :param network: the links in the words of ``exec --link``, between the nodes ``program`` and ``server``; or the path of a
        scenario file (a ``pathlib.Path``, or a string that ends in ``.toml``), a :class:`Scenario`, or its dict. Every node of a
        scenario is a namespace, and its flows do not run.
    :param up: words for the link from the program, where they differ.
    :param node: the node where programs run by default; the first if not given.
    :param variant: the variant of the scenario; the first if not given.
    :param seed: the seed of random losses and jitter.
    :param sets: keys to set, as for :class:`Scenario`.
    :param names: further names of nodes: ``{"api.example.com": "server"}``.
    :param sysctls: kernel parameters of every node: ``{"net.ipv4.tcp_congestion_control": "bbr"}``.
    :param publish: ports of this machine that are open at ``server``, as for ``exec --publish``: ``["8080"]``.
    :param outside: leads to the Internet, as ``exec --outside``; a string is the node that does.
    :param pcap: the file for a capture at ``node``, written when the network ends.
    :raises ScenarioError: the description has mistakes.
    :raises NotAllowedError: this system does not allow networks to the user.
    :raises EmulationError: the network cannot be set up.
    """

    def __init__(
        self,
        network: str | os.PathLike[str] | Scenario | Mapping[str, Any] = "",
        up: str | None = None,
        *,
        node: str | None = None,
        variant: str | None = None,
        seed: int | None = None,
        sets: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        sysctls: Mapping[str, object] | None = None,
        publish: Iterable[str | int] = (),
        outside: bool | str = False,
        pcap: str | os.PathLike[str] | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "link_up": up,
            "node": node,
            "variant": variant,
            "seed": seed,
            "sets": [],
            "names": [f"{of}={name}" for name, of in (names or {}).items()],
            "sysctls": [f"{key}={value}" for key, value in (sysctls or {}).items()],
            "publish": [str(port) for port in publish],
            "outside": "" if outside is True else outside or None,
            "capture": None if pcap is None else os.fspath(pcap),
        }
        if isinstance(network, Mapping):
            network = Scenario.from_dict(network)
        elif not isinstance(network, Scenario) and (isinstance(network, os.PathLike) or network.endswith(".toml")):
            network = Scenario.load(network)
        if isinstance(network, Scenario):
            text, file, before, only = network._parts
            options |= {"text": text, "file": file, "sets": list(before), "variant": variant or (only[0] if only else None)}
        else:
            options["link"] = network
        options["sets"] += _sets(sets)
        if not hasattr(_native, "Emulation"):
            raise _native.NotAllowedError("emulated networks need Linux")
        helper = [sys.executable, "-I", "-S", "-c", _HELPER, str(_native.__file__)]
        self._started: list[subprocess.Popen[Any]] = []
        self._native = _native.Emulation(json.dumps(options), helper)
        self._node = node or self._native.nodes[0]

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return self._native.nodes

    def address(self, node: str) -> str:
        """The IPv4 address of a node. Programs in the network find it by the node's name, too."""
        return self._native.address(node)

    def run(self, args: Args, *, node: str | None = None, **options: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a program at a node to its end, as :func:`subprocess.run` does, with the same arguments and exceptions.

        The first program or socket starts the report. Times of ``[[change]]`` in a scenario count from then.
        """
        with self._entering(args, node or self._node, False, options) as words:
            try:
                done = subprocess.run(words, **options)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                error.cmd = args
                raise
        done.args = args
        return done

    def popen(self, args: Args, *, node: str | None = None, **options: Any) -> subprocess.Popen[Any]:
        """Starts a program at a node, as :class:`subprocess.Popen` does, with the same arguments and exceptions."""
        return self._start(args, node or self._node, False, options)

    def serve(self, node: str, args: Args, **options: Any) -> subprocess.Popen[Any]:
        """Starts a server at a node, and waits until it serves a TCP or UDP port, at most 5 s. It does not start the report.

        :param options: those of :class:`subprocess.Popen`.
        :raises EmulationError: the server failed before it served.
        """
        server = self._start(args, node, True, options)
        self._native.await_server(node, server.pid)
        if server.poll():
            raise _native.EmulationError(f"the server {args!r} at {node} ended with status {server.returncode} before it served")
        return server

    def socket(self, node: str, family: int = socket.AF_INET, type: int = socket.SOCK_STREAM) -> socket.socket:
        """A socket of a node in this process, which can bind, listen and connect as a program there.

        Names of nodes do not resolve in this process: use :meth:`address`.
        """
        return socket.socket(fileno=self._native.socket(node, family, type))

    def change(
        self, link: str, *, rate_mbps: float | None = None, delay_ms: float | None = None, loss: float | None = None
    ) -> None:
        """Changes a link from now on, as the page of ``exec --view`` does.

        :param link: its name: ``down``, towards the program, or ``up``; or that of the scenario.
        :param rate_mbps: the rate, Mb/s.
        :param delay_ms: the one-way delay, ms. Packets on the wire keep theirs.
        :param loss: the probability that a packet is lost, 0 to 1, in place of all other random loss.
        :raises EmulationError: there is no such link, or a value is out of its range.
        """
        self._native.change(link, rate_mbps, delay_ms, loss)

    def report(self) -> dict[str, Any]:
        """The report so far: links, flows and more, in the fields of ``exec --json`` except those of its program.

        :raises EmulationError: the network has ended.
        """
        return json.loads(self._native.report())

    def close(self) -> None:
        """Ends the programs and the network. A ``with`` block does so at its end."""
        for program in self._started:
            program.terminate()
        self._native.close()
        for program in self._started:
            program.kill()  # None is left, unless the helper was killed.
            program.wait()
        self._started.clear()

    def __enter__(self) -> Emulation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, args: Args, node: str, server: bool, options: dict[str, Any]) -> subprocess.Popen[Any]:
        with self._entering(args, node, server, options) as words:
            program = subprocess.Popen(words, **options)
        program.args = args
        self._started.append(program)
        return program

    @contextmanager
    def _entering(self, args: Args, node: str, server: bool, options: dict[str, Any]) -> Iterator[list[Any]]:
        """The command that enters ``node`` and becomes the program, and its ``options``, changed in place."""
        words: list[Any] = [args] if isinstance(args, str | os.PathLike) else list(args)
        executable = options.pop("executable", None)
        if options.pop("shell", False):
            words = [executable or "/bin/sh", "-c", *words]
        elif executable:
            words[0] = executable
        program = os.fspath(words[0])
        place = os.path.join(options.get("cwd") or "", program) if os.sep in program else program
        if shutil.which(place, path=(options.get("env") or os.environ).get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        spaces, mark = self._native.join(node, server)
        try:
            options["pass_fds"] = (*options.get("pass_fds", ()), *spaces)
            yield [sys.executable, "-I", "-S", "-c", _ENTER, ",".join(map(str, spaces)), mark, str(os.getpid()), *words]
        finally:
            for space in spaces:
                os.close(space)
