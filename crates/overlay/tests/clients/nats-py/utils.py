"""Servers for nats-py's own tests, whose source package comes without this module.

A server is a site, by the command that TOLLWAY names, or nats-server. KEYS names a folder of `tollway overlay keys`.
"""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

TOLLWAY = os.environ.get("TOLLWAY")
KEYS = os.environ["KEYS"]
SITES = "abc"


class Server:
    """A process at `port`, with these options of a cluster test's class."""

    def __init__(self, port, number=0, user=None, password=None, token=None, tls=None, cluster=False):
        self.port, self.number, self.cluster, self.tls = port, number, cluster, tls
        self.user, self.password, self.token = user, password, token
        self.http_port = port + 4000
        self.process = None

    def site(self):
        """The text of a site's file."""
        name = SITES[self.number]
        lines = [f'site = "{name}"', f'listen = "127.0.0.1:{self.port}"']
        if self.cluster:
            lines.append(f'advertise = "127.0.0.1:{self.port}"')
        if self.tls:
            lines.append('tls = "on"')
        if self.tls or self.cluster:
            names = {"authority": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
            lines += ["[keys]"] + [f'{key} = "{KEYS}/{file}"' for key, file in names.items()]
        if self.cluster:
            lines += ["[links]", f'listen = "127.0.0.1:{self.port + 2000}"']
            for number, other in enumerate(SITES):
                if other != name:
                    lines += [f"[link.{other}]", 'rate = "1 Gbps"']
                if number < self.number:
                    lines.append(f'address = "127.0.0.1:{self.port + 2000 - self.number + number}"')
        if self.user:
            lines += [f"[tenant.{self.user}]", f'password = "{self.password}"']
        elif self.token:
            lines += ["[tenant.holder]", f'token = "{self.token}"']
        elif self.tls:
            lines += ["[tenant.plant]", "certificate = true"]
        return "\n".join(lines)

    def nats(self):
        """The text of a file of nats-server."""
        file = {"listen": f"127.0.0.1:{self.port}", "http": f"127.0.0.1:{self.http_port}"}
        if self.user:
            file["authorization"] = {"user": self.user, "password": self.password}
        elif self.token:
            file["authorization"] = {"token": self.token}
        if self.tls:
            name = f"{KEYS}/{SITES[self.number]}"
            file["tls"] = {"cert_file": name + ".pem", "key_file": name + ".key", "ca_file": KEYS + "/ca.pem"}
            file["tls"].update(self.tls)
        if self.cluster:
            routes = [f"nats://127.0.0.1:{self.port + 2000 - self.number + to}" for to in range(self.number)]
            file["cluster"] = {"name": "c", "listen": f"127.0.0.1:{self.port + 2000}", "routes": routes}
        return json.dumps(file)

    def start(self):
        self.folder = tempfile.mkdtemp()
        path = self.folder + "/file"
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(self.site() if TOLLWAY else self.nats())
        site = [TOLLWAY, "overlay", "--config", path, "--socket", path + ".sock"]
        self.process = subprocess.Popen(site if TOLLWAY else ["nats-server", "-c", path], stderr=subprocess.DEVNULL)
        for _ in range(1000):
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
            if self.process.poll() is not None:
                break
        raise RuntimeError("no server")

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            shutil.rmtree(self.folder)
            self.process = None


class Servers(unittest.TestCase):
    """A test with servers; the first `started` run from its start."""

    started = None

    def setUp(self):
        self.server_pool = self.servers()
        for server in self.server_pool[: self.started]:
            server.start()
        self.ssl_ctx = ssl.create_default_context(cafile=KEYS + "/ca.pem")
        self.ssl_ctx.load_cert_chain(KEYS + "/tenant-plant.pem", KEYS + "/tenant-plant.key")

    def tearDown(self):
        for server in self.server_pool:
            server.stop()


class SingleServerTestCase(Servers):
    def servers(self):
        return [Server(4222)]


class MultiServerAuthTestCase(Servers):
    def servers(self):
        return [Server(4223, user="foo", password="bar"), Server(4224, user="hoge", password="fuga")]


class MultiServerAuthTokenTestCase(Servers):
    def servers(self):
        return [Server(4223, token="token"), Server(4224, token="token"), Server(4225, token="secret")]


class TLSServerTestCase(Servers):
    def servers(self):
        return [Server(4224, tls={"verify": True})]


class MultiTLSServerAuthTestCase(Servers):
    def servers(self):
        tls = {"verify": True}
        return [
            Server(4223, user="foo", password="bar", tls=tls),
            Server(4224, user="hoge", password="fuga", tls=tls),
        ]


class TLSServerHandshakeFirstTestCase(Servers):
    def servers(self):
        return [Server(4224, tls={"verify": True, "handshake_first": True})]


class ClusteringTestCase(Servers):
    started = 1

    def servers(self):
        return [Server(4223 + number, number, cluster=True) for number in range(3)]


class ClusteringDiscoveryAuthTestCase(Servers):
    def servers(self):
        return [Server(4223 + at, at, user="foo", password="bar", cluster=True) for at in range(3)]


class NoAuthUserServerTestCase(Servers):
    def servers(self):
        raise unittest.SkipTest("rights by subject")


def async_test(test):
    """Runs a coroutine to its end."""

    def run(*arguments):
        return asyncio.run(test(*arguments))

    run.__name__ = test.__name__
    return run
