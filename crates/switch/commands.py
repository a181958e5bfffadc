#!/usr/bin/env python3
"""Writes src/redis/commands.txt: the commands of Redis, from the answer of an installed `redis-server` to COMMAND.

  python3 crates/switch/commands.py > crates/switch/src/redis/commands.txt

One command a line, in the order of names: name, flags, request policy, response policy, then the places of its keys.
Flags are `w` (writes), `b` (may block); `-` stands for none. A place is BEGIN:FIND. BEGIN is `iN` (index N), `kWORD@N` (after WORD,
searched from index N on) or `?` (Redis does not say). FIND is `rLAST,STEP,LIMIT` or `nCOUNT,FIRST,STEP`, as in Redis' key specifications.
"""

import json
import os
import socket
import subprocess
import tempfile
import time


def commands():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "redis.sock")
        server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", ""], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            for _ in range(500):
                try:
                    socket.socket(socket.AF_UNIX).connect(path)
                    break
                except OSError:
                    time.sleep(0.01)
            ask = lambda *words: subprocess.run(["redis-cli", "-s", path, "--json", *words], check=True, capture_output=True, text=True).stdout
            version = ask("INFO", "server").split("redis_version:")[1].split()[0]
            return version, json.loads(ask("COMMAND"))
        finally:
            server.kill()
            server.wait()


def place(spec):
    begin, find = spec["begin_search"], spec["find_keys"]
    at = begin["spec"]
    if begin["type"] == "index":
        start = f"i{at['index']}"
    elif begin["type"] == "keyword" and at["startfrom"] > 0:
        start = f"k{at['keyword']}@{at['startfrom']}"
    else:
        return "?"
    found = find["spec"]
    if find["type"] == "range":
        return f"{start}:r{found['lastkey']},{found['keystep']},{found['limit']}"
    if find["type"] == "keynum":
        return f"{start}:n{found['keynumidx']},{found['firstkey']},{found['keystep']}"
    return "?"


def lines(command):
    name, _, flags, _, _, _, _, tips, specs, subcommands = command[:10]
    tip = lambda kind: next((tip.split(":")[1] for tip in tips if tip.startswith(kind)), "-")
    flag = "".join(letter for letter, word in (("w", "write"), ("b", "blocking")) if word in flags) or "-"
    yield " ".join([name.upper(), flag, tip("request_policy"), tip("response_policy"), *map(place, specs)])
    for subcommand in subcommands:
        yield from lines(subcommand)


if __name__ == "__main__":
    version, all_commands = commands()
    print(f"# Redis {version}, by crates/switch/commands.py")
    print("\n".join(sorted(line for command in all_commands for line in lines(command))))
