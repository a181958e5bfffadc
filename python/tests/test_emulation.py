import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tollway
from conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="emulated networks need Linux")

#: Three nodes in a row, the middle one a router.
ROW = """
name = "row"
duration = "1 s"
node = { client = {}, router = {}, server = {} }
link.access = { from = "client", to = "router", rate = "50 Mbps", delay = "5 ms" }
link.uplink = { from = "router", to = "server", rate = "10 Mbps", delay = "20 ms" }
"""


def entry(report, entries, key, name):
    return next(entry for entry in report[entries] if entry[key] == name)


def send(net, sender, receiver, packets):
    """Sends datagrams between two nodes, from sockets of this process."""
    server = net.socket(receiver, type=socket.SOCK_DGRAM)
    server.bind((net.address(receiver), 9))
    server.settimeout(30)
    client = net.socket(sender, type=socket.SOCK_DGRAM)
    for _ in range(packets):
        client.sendto(b"ping", (net.address(receiver), 9))
        assert server.recvfrom(10)[0] == b"ping"


def state(process):
    """The state of a process, such as Z for a zombie, and its parent; of an ended one, Z."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return ["Z", "0"]


def children():
    """The processes that this one has started and that still run."""
    states = {process: state(process) for process in Path("/proc").glob("[0-9]*")}
    return [process for process, (kind, parent) in states.items() if parent == str(os.getpid()) and kind != "Z"]


def test_a_client_and_a_server_meet_over_the_links(emulation, tmp_path):
    (tmp_path / "page").write_text("hello")
    with emulation("10Mbps 40ms") as net:
        net.serve("server", ["python3", "-m", "http.server", "8000"], cwd=tmp_path, stderr=subprocess.DEVNULL)
        fetch = "import urllib.request as u; print(u.urlopen('http://server:8000/page').read().decode())"
        done = net.run([sys.executable, "-c", fetch], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.args) == (0, "hello\n", [sys.executable, "-c", fetch])
        report = net.report()
    down = entry(report, "links", "link", "down")
    assert (down["delay_ms"], down["nominal_mbps"]) == (40, 10)
    flow = next(flow for flow in report["flows"] if flow["flow"].startswith("tcp server:8000 > program:"))
    assert flow["payload_bytes"] > 100 and flow["delay_min_ms"] >= 40
    assert "exit_status" not in report


@pytest.mark.parametrize("kind", ["text", "dict", "file", "path"])
def test_scenarios_are_networks(emulation, tmp_path, kind):
    file = tmp_path / "row.toml"
    file.write_text(ROW)
    ends = {"access": ("client", "router"), "uplink": ("router", "server")}
    links = {name: {"from": a, "to": b, "rate": "50 Mbps", "delay": "5 ms"} for name, (a, b) in ends.items()}
    tables = {"name": "row", "duration": "1 s", "node": {"client": {}, "router": {}, "server": {}}, "link": links}
    given = {"text": tollway.Scenario(ROW), "dict": tables, "file": str(file), "path": file}
    net = emulation(given[kind], node="server", sets={"link.access.delay": "7 ms"}, names={"api.test": "client"})
    assert net.nodes == ["client", "router", "server"] and net.address("server") == "10.77.0.3"
    shown = net.run(["getent", "ahostsv4", "api.test"], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[0] == net.address("client")
    send(net, "client", "server", 1)
    assert entry(net.report(), "links", "link", "access")["delay_ms"] == 7
    assert entry(net.report(), "flows", "protocol", "udp")["delay_min_ms"] >= 12


def test_programs_behave_as_those_of_subprocess(emulation, tmp_path):
    net = emulation("100Mbps 1ms")
    with pytest.raises(FileNotFoundError, match="nonsense"):
        net.run(["nonsense"])
    with pytest.raises(subprocess.CalledProcessError, match=r"\['sh', '-c', 'exit 3'\]") as failed:
        net.run(["sh", "-c", "exit 3"], check=True)
    assert failed.value.returncode == 3
    with pytest.raises(subprocess.TimeoutExpired, match=r"\['sleep', '60'\]"):
        net.run(["sleep", "60"], timeout=0.1)
    with net.popen(["sh", "-c", "pwd; cat; exec sleep 60"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdout.readline().decode().strip() == str(tmp_path)
        cat.stdin.close()
        cat.terminate()
    assert cat.returncode == -signal.SIGTERM
    # A writer meets a broken pipe as it does elsewhere.
    broken = net.run("yes | head -1; exit ${PIPESTATUS[0]}", shell=True, executable="/bin/bash", stdout=subprocess.DEVNULL)
    assert broken.returncode == 128 + signal.SIGPIPE
    with pytest.raises(tollway.EmulationError, match="at server ended with status 3 before it served"):
        net.serve("server", ["sh", "-c", "exit 3"])
    with pytest.raises(tollway.EmulationError, match="there is no node `hq`; there are program, server"):
        net.run(["true"], node="hq")


def test_sockets_of_nodes_and_changes_of_links(emulation):
    net = emulation("100Mbps 10ms")
    send(net, "program", "server", 1)
    net.change("up", delay_ms=30)
    client = net.socket("program", type=socket.SOCK_DGRAM)
    server = net.socket("server", type=socket.SOCK_DGRAM)
    server.bind((net.address("server"), 10))
    client.sendto(b"late", (net.address("server"), 10))
    assert server.recvfrom(10)[0] == b"late"
    delays = [flow["delay_min_ms"] for flow in net.report()["flows"]]
    assert 10 <= min(delays) < 30 <= max(delays)
    with pytest.raises(tollway.EmulationError, match="no link `sideways`; there are down, up"):
        net.change("sideways", loss=0.5)
    net.change("up", loss=1)
    client.sendto(b"lost", (net.address("server"), 10))
    until = time.monotonic() + 10
    while not entry(net.report(), "links", "link", "up")["drops"]["loss_on_wire"] and time.monotonic() < until:
        time.sleep(0.02)
    assert entry(net.report(), "links", "link", "up")["drops"]["loss_on_wire"] == 1


def test_networks_run_side_by_side(emulation):
    counts = {}

    def measure(packets):
        with emulation("100Mbps 1ms") as net:
            send(net, "program", "server", packets)
            counts[packets] = entry(net.report(), "links", "link", "up")["sent_packets"]

    threads = [threading.Thread(target=measure, args=[packets]) for packets in (2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {2: 2, 3: 3, 5: 5}


def test_nothing_is_left_of_a_network_that_fails(emulation):
    before = children()
    with pytest.raises(ZeroDivisionError), emulation("100Mbps 1ms") as net:
        net.serve("server", ["python3", "-c", "import socket, time; s = socket.create_server(('', 80)); time.sleep(60)"])
        net.popen("trap '' TERM; sleep 60 & wait", shell=True)
        net.popen(["setsid", "sleep", "60"])
        assert len(children()) > len(before)
        raise ZeroDivisionError
    assert children() == before
    with pytest.raises(tollway.EmulationError, match="the network is closed"):
        net.report()


def test_mistakes_are_shown_as_those_of_the_command():
    with pytest.raises(tollway.ScenarioError, match="`10Mbsp`"):
        tollway.Emulation("10Mbsp")
    with pytest.raises(tollway.ScenarioError, match="no key `dealy`"):
        tollway.Emulation("10Mbps", sets={"link.up.dealy": "5 ms"})
    with pytest.raises(tollway.ScenarioError, match="there is no node `hq`"):
        tollway.Emulation("10Mbps", node="hq")


def test_the_fixture_says_why_it_skips(tmp_path):
    """The system forbids namespaces: root lacks the capability, and user namespaces are disabled."""
    file = tmp_path / "test_it.py"
    file.write_text("def test_it(emulation):\n    assert emulation('1Mbps').nodes\n")
    pytest_here = [sys.executable, "-m", "pytest", "-q", str(file)]
    allowed = subprocess.run(pytest_here, capture_output=True, text=True, cwd=tmp_path)
    assert "1 passed" in allowed.stdout or "no emulated network" in allowed.stdout, allowed.stdout
    limit = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    # The limit of a user namespace is its own, and does not concern the machine.
    denied = ["unshare", "-Ur", "sh", "-c", limit, "sh", *pytest_here]
    ran = subprocess.run(denied, capture_output=True, text=True, cwd=tmp_path)
    if "passed" not in ran.stdout and "skipped" not in ran.stdout:
        pytest.skip(f"no user without rights here: {ran.stderr}")
    assert "SKIPPED: tests with emulated networks" in ran.stdout and "1 skipped: " in ran.stdout, ran.stdout
    assert "user.max_user_namespaces" in ran.stdout


def test_a_killed_test_leaves_no_process(emulation, tmp_path):
    code = (
        "import sys, time, tollway; net = tollway.Emulation('1Mbps');"
        "print(net.popen(['sleep', '600']).pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as test:
        program = Path("/proc") / test.stdout.readline().strip()
        assert state(program)[0] != "Z"
        test.kill()
    until = time.monotonic() + 10
    while state(program)[0] != "Z" and time.monotonic() < until:
        time.sleep(0.02)
    assert state(program)[0] == "Z"


@pytest.mark.parametrize("page", ["python", "tasks"])
def test_the_chapters_tests_pass(emulation, tmp_path, page):
    blocks = (ROOT / f"docs/src/{page}.md").read_text().split("```")[1::2]
    (code,) = [block.partition("\n")[2] for block in blocks if "(emulation)" in block]
    file = tmp_path / "test_client.py"
    file.write_text(code)
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", str(file)], capture_output=True, text=True, cwd=ROOT)
    assert "1 passed" in ran.stdout, ran.stdout
