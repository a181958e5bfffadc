#!/usr/bin/env python3
"""Linux's own TCP over emulated links, beside the simulator's senders on the same links.

  python3 bench/kernel_tcp.py            16 settings: Reno and CUBIC, 1 and 4 flows, 10 and 50 Mb/s, RTT 40 and 100 ms
  python3 bench/kernel_tcp.py --quick    two of them
  python3 bench/kernel_tcp.py --json     one JSON object on standard output

Buffer 1 BDP, drop-tail. The first third of a run is left out on both sides. Goodput is to agree within 10 %, Jain's index within 0.05. Needs a
release build and a kernel with both laws; senders are this script's own.
"""

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOLLWAY = os.path.join(HERE, "..", "target", "release", "tollway")
PORT = 9001


def serve(law, seconds):
    """Sends to whoever connects for so long, with congestion control by `law`."""
    listener = socket.create_server(("0.0.0.0", PORT))

    def send(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, law.encode())
        end = time.monotonic() + seconds + 5
        chunk = bytes(1 << 16)
        try:
            while time.monotonic() < end:
                connection.sendall(chunk)
        except OSError:
            pass

    while True:
        threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()


def receive(flows, seconds):
    """Prints what each of several connections gets after a third of the time, Mb/s."""
    begin = time.monotonic() + seconds / 3
    end = time.monotonic() + seconds
    rates = [0.0] * flows

    def count(i):
        connection = socket.create_connection(("server", PORT))
        connection.settimeout(1)
        got = 0
        while time.monotonic() < end:
            try:
                length = len(connection.recv(1 << 16))
            except TimeoutError:
                length = 0
            if time.monotonic() >= begin:
                got += length
        rates[i] = got * 8e-6 / (end - begin)

    threads = [threading.Thread(target=count, args=(i,)) for i in range(flows)]
    for thread in threads:
        thread.start()
        # As in the simulation, flows don't begin at the same instant.
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    print(json.dumps(rates), flush=True)


def live(law, flows, mbps, rtt, seconds):
    me = f"{sys.executable} {os.path.abspath(__file__)}"
    command = [TOLLWAY, "exec", "--link", f"{mbps}Mbps rtt={rtt}ms limit=1BDP", "--link-up", "1Gbps limit=1000packets"]
    command += ["--json", "--serve", f"{me} --serve {law} {seconds}", "--", *me.split(), "--receive", str(flows), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    rates = [line for line in done.stderr.splitlines() if line.startswith("[")]
    return json.loads(rates[-1]), json.loads(done.stdout)["kept_up"]


def simulated(law, flows, mbps, rtt, seconds):
    scenario = f"""
name = "kernel-tcp"
duration = "{seconds} s"
[measure]
warmup = "{seconds / 3} s"
[node.server]
[node.program]
[link.down]
from = "server"
to = "program"
rate = "{mbps} Mbps"
delay = "{rtt / 2} ms"
limit = "1 BDP"
[link.down.reverse]
rate = "1 Gbps"
[flow.f]
from = "server"
to = "program"
count = {flows}
start = {{ first = "0 s", last = "{0.1 * (flows - 1)} s" }}
law = "{law}"
header = "52 B"
receive-buffer = "6 MB"
loss-detection = "rack"
"""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(scenario)
        file.flush()
        done = subprocess.run([TOLLWAY, "run", file.name, "--json", "-q"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return [flow["goodput_mbps"] for flow in json.loads(done.stdout)["flows"]]


def jain(rates):
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two settings only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=int, default=30, help="length of each run")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--receive", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve[0], float(options.serve[1]))
    if options.receive:
        return receive(int(options.receive[0]), float(options.receive[1]))

    settings = list(itertools.product(["reno", "cubic"], [1, 4], [10, 50], [40, 100]))
    if options.quick:
        settings = [("reno", 1, 10, 40), ("cubic", 4, 10, 40)]
    rows = []
    for law, flows, mbps, rtt in settings:
        kernel, kept_up = live(law, flows, mbps, rtt, options.seconds)
        ours = simulated({"reno": "newreno", "cubic": "cubic"}[law], flows, mbps, rtt, options.seconds)
        row = {
            "law": law, "flows": flows, "mbps": mbps, "rtt_ms": rtt, "kept_up": kept_up,
            "kernel_mbps": sum(kernel), "simulated_mbps": sum(ours),
            "kernel_jain": jain(kernel), "simulated_jain": jain(ours),
        }
        row["agrees"] = (
            abs(row["kernel_mbps"] / row["simulated_mbps"] - 1) <= 0.10
            and abs(row["kernel_jain"] - row["simulated_jain"]) <= 0.05
        )
        rows.append(row)
        if not options.json:
            print(
                f"{law:6}{flows} flows {mbps:3} Mb/s {rtt:4} ms   kernel {row['kernel_mbps']:6.2f} Mb/s J {row['kernel_jain']:.3f}"
                f"   simulated {row['simulated_mbps']:6.2f} Mb/s J {row['simulated_jain']:.3f}   {'agrees' if row['agrees'] else 'DIFFERS'}",
                flush=True,
            )
    if options.json:
        print(json.dumps({"settings": rows}, indent=2))


if __name__ == "__main__":
    main()
