#!/usr/bin/env python3
"""Installs each of the release's files where there is neither a compiler nor this tree, and uses it.

    python3 share/dist/try.py target/dist [--sizes]

`--sizes` also compares the files' sizes with what is promised of a release. As root with `debootstrap` the packages go into a Debian
system made for it, in a folder of its own; otherwise that is skipped, loudly.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SIZES = "--sizes" in sys.argv
# Largest sizes, bytes.
BINARY = 30e6
IMAGE = 35e6
EXAMPLES = "share/doc/tollway/examples"
# A server of 50 000 bytes, in what a Debian base has.
SERVER = (
    "perl -MIO::Socket::INET -e '$s=IO::Socket::INET->new(LocalPort=>8000,Listen=>1,ReuseAddr=>1);"
    "while($c=$s->accept){print $c \"x\" x 50000;close $c}'"
)


def say(text: str) -> None:
    print(text, flush=True)


def skip(what: str, why: str) -> None:
    print(f"\n*** SKIPPED, {what}: {why}\n", file=sys.stderr, flush=True)


def run(*command: str | Path, **more: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def expect(holds: object, what: str) -> None:
    if not holds:
        sys.exit(f"not so: {what}")


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    expect(len(found) == 1, f"one {pattern} in {folder}, but {len(found)}")
    return found[0]


def sums(dist: Path) -> None:
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)


def tarball(dist: Path, scratch: Path) -> None:
    run("tar", "-xzf", only(dist, "tollway-*-linux.tar.gz"), "-C", scratch)
    (top,) = scratch.iterdir()
    binary = top / "bin/tollway"
    expect(not SIZES or binary.stat().st_size <= BINARY, f"the static binary has at most {BINARY / 1e6:.0f} MB")
    expect("statically linked" in run_ldd(binary), "the binary is static")
    began = time.monotonic()
    run(binary, "run", top / EXAMPLES / "quickstart.toml", "--out", scratch / "out", env={}, cwd=scratch)
    expect(list((scratch / "out").rglob("*.png")), "the tarball's first run draws a picture")
    say(f"tarball: its first picture after {time.monotonic() - began:.1f} s")


def run_ldd(binary: Path) -> str:
    done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).replace("not a dynamic executable", "statically linked")


def image(dist: Path, scratch: Path) -> None:
    path = only(dist, "tollway-*-image.tar")
    expect(not SIZES or path.stat().st_size <= IMAGE, f"the image has at most {IMAGE / 1e6:.0f} MB")
    with tarfile.open(path) as archive:
        archive.extractall(scratch / "image", filter="data")
    place = scratch / "image"

    def blob(about: dict[str, str]) -> Path:
        return place / "blobs/sha256" / about["digest"].removeprefix("sha256:")

    (named,) = json.loads((place / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(named).read_text())
    config = json.loads(blob(manifest["config"]).read_text())["config"]
    (layer,) = manifest["layers"]
    root = scratch / "root"
    with tarfile.open(blob(layer)) as archive:
        archive.extractall(root, filter="fully_trusted")
    if os.geteuid() != 0:
        return skip("a run of the image", "it takes root to change the root")
    shutil.copy(Path(__file__).parents[2] / "scenarios/quickstart.toml", root / "tmp/quickstart.toml")
    entry = config["Entrypoint"]
    run("chroot", f"--userspec={config['User']}", root, *entry, "run", "/tmp/quickstart.toml", "--out", "/tmp/out")
    expect(list((root / "tmp/out").rglob("*.png")), "the image's run draws a picture")
    say("image: runs as an ordinary user, alone in its root")


def system(scratch: Path) -> Path | None:
    """A Debian system with nothing but its base."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        return skip("the packages' trial", "it takes root and debootstrap (Debian: apt install debootstrap)")
    root = scratch / "debian"
    release = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    name = release[1] if release else "stable"
    done = subprocess.run(["debootstrap", "--variant=minbase", name, root], capture_output=True, text=True, check=False)
    if done.returncode:
        return skip("the packages' trial", f"debootstrap made no system: {done.stdout[-300:]}")
    return root


def within(root: Path, *command: str) -> str:
    """Runs a command in the system, with separate processes, mounts and network; that has an interface `eth0`."""
    script = (
        'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && '
        'ip link add eth0 type veth peer name eth1 && ip link set eth0 up && exec chroot "$0" "$@"'
    )
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, root, *command]
    return run(*words, env={"PATH": "/usr/bin:/usr/sbin:/bin"})


def debian(dist: Path, root: Path) -> None:
    package = only(dist, "tollway_*.deb")
    shutil.copy(package, root / "tmp")
    # Every machine has this file, but debootstrap's smallest system.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    began = time.monotonic()
    within(root, "dpkg", "--install", f"/tmp/{package.name}")
    within(root, "tollway", "run", f"/usr/{EXAMPLES}/quickstart.toml", "--out", "/tmp/out")
    say(f"package: installed, and its first picture, after {time.monotonic() - began:.1f} s")
    expect(list((root / "tmp/out").rglob("*.png")), "the package's first run draws a picture")
    for compiler in ("cargo", "rustc", "cc", "python3"):
        expect(not (root / "usr/bin" / compiler).exists(), f"no {compiler} in the trial")
    for path in ("usr/share/man/man1/tollway-exec.1.gz", "usr/share/bash-completion/completions/tollway"):
        expect((root / path).is_file(), f"/{path} is installed")
    got = within(root, "tollway", "exec", "--link", "10Mbps 20ms", "--serve", SERVER, "--", "bash", "-c", "wc -c </dev/tcp/server/8000")
    expect("50000" in got and "down" in got, f"a program's bytes come over an emulated link: {got}")
    within(root, "tollway", "reproduce", "xcp/step", "--quick", "--out", "/tmp/papers")
    units(root)
    within(root, "dpkg", "--purge", "tollway")
    left = [path for path in root.rglob("*tollway*") if not str(path).startswith((f"{root}/tmp", f"{root}/run", f"{root}/var/log", f"{root}/proc"))]
    expect(not left, f"nothing is left of the package: {left}")


# The control group that `host.toml` names.
SLICE = "$(awk '$3 == \"cgroup2\" { print $2; exit }' /proc/mounts)/system.slice"
GROUP = f"{SLICE}/nginx.service"
# The unit's service, its check, its status.
SERVICES = {
    "host": ("host.toml", ""),
    "router": ("router.toml", "--socket /run/tollway-router/router.sock"),
    "shape": ("policies.toml", ""),
    "switch": ("switch.toml", "--socket /run/tollway-switch/switch.sock"),
    "overlay": ("overlay.toml", "--socket /run/tollway-overlay/overlay.sock"),
}


def units(root: Path) -> None:
    """Starts each service as its unit says, and asks for its status."""
    folder = root / "usr/lib/systemd/system"
    for unit in sorted(folder.glob("tollway-*.service")):
        if shutil.which("systemd-analyze"):
            said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
            missing = ("/usr/bin/tollway is not executable", "'man ")
            wrong = [line for line in said.stderr.splitlines() if unit.name in line and not any(word in line for word in missing)]
            expect(not wrong, f"systemd takes {unit.name}: {wrong}")
        else:
            skip(f"the check of {unit.name}", "systemd-analyze is missing")
        expect("[Install]" in unit.read_text(), f"{unit.name} can be enabled")
    links = [link for link in (root / "etc/systemd").rglob("tollway-*") if link.is_symlink()]
    expect(not links, f"services are disabled at first: {links}")
    for name, (file, socket) in SERVICES.items():
        within(root, "tollway", name, "check", f"/etc/tollway/{file}")
        start = re.search(r"^ExecStart=(.*)$", (folder / f"tollway-{name}.service").read_text(), re.M)
        expect(start, f"tollway-{name}.service starts something")
        status = f"tollway {name} status {socket}"
        script = (
            f"mkdir -p /run/tollway {GROUP} /run/tollway-{name}; chmod 700 /run/tollway-{name}; {start[1]} & "
            f"for n in $(seq 100); do {status} >/tmp/said 2>&1 && break; sleep 0.1; done; kill $!; wait $!; cat /tmp/said; rmdir {GROUP} {SLICE} 2>/dev/null; {status} >/dev/null 2>&1 && exit 1; true"
        )
        said = within(root, "bash", "-c", script)
        expect("nothing" not in said.split("\n")[0] and f"no `tollway {name}`" not in said, said)
        say(f"tollway-{name}.service: starts as its unit says, {said.splitlines()[0] if said else 'says nothing'}")


def redhat(dist: Path, scratch: Path) -> None:
    packages = list(dist.glob("tollway-*.rpm"))
    if not packages or os.geteuid() != 0:
        return skip("the RPM package's trial", "it takes root and a package")
    root = scratch / "rpm"
    for folder in ("proc", "dev", "sys"):
        (root / folder).mkdir(parents=True)
    run("rpm", "--root", root, "--install", "--nodeps", "--noscripts", "--ignoreos", packages[0])
    got = within(root, "/usr/bin/tollway", "run", f"/usr/{EXAMPLES}/quickstart.toml", "--quiet", "--out", "/tmp/out")
    expect(list((root / "tmp/out").rglob("*.png")), f"the RPM package's first run draws a picture: {got}")
    expect((root / "usr/lib/systemd/system/tollway-shape.service").is_file(), "its units are installed")
    say("RPM package: installed, and draws a picture")


def wheel(dist: Path, scratch: Path) -> None:
    wheels = list(dist.glob("tollway-*.whl"))
    if not wheels:
        return skip("the wheel's trial", "there is none (make wheel)")
    expect("manylinux" in wheels[0].name and "abi3" in wheels[0].name, f"{wheels[0].name} runs on other systems")
    place = scratch / "environment"
    run(sys.executable, "-m", "venv", place)
    run(place / "bin/pip", "--quiet", "--disable-pip-version-check", "install", wheels[0], "pandas>=2")
    notebook = json.loads((Path(__file__).parents[2] / "python/examples/first_study.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # It loads a scenario two folders above.
    folder = scratch / "python/examples"
    folder.mkdir(parents=True)
    shutil.copytree(Path(__file__).parents[2] / "scenarios", scratch / "scenarios")
    (folder / "study.py").write_text("\n".join(cells))
    began = time.monotonic()
    run(place / "bin/python", "study.py", cwd=folder, env={"PATH": f"{place}/bin"})
    say(f"wheel: {wheels[0].stat().st_size / 1e6:.1f} MB; the notebook's cells run in {time.monotonic() - began:.1f} s")


def action(dist: Path, scratch: Path) -> None:
    """The action's installation, from a release that is served here."""
    root = Path(__file__).parents[2]
    version = only(dist, "tollway-*-linux.tar.gz").name.split("-")[1]
    release = scratch / "owner/project/releases/download" / f"v{version}"
    release.parent.mkdir(parents=True)
    shutil.copytree(dist, release)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=scratch)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "GITHUB_SERVER_URL": f"http://127.0.0.1:{server.server_port}",
            "GITHUB_ACTION_REPOSITORY": "owner/project",
            "GITHUB_ACTION_PATH": str(root),
            "GITHUB_PATH": str(scratch / "path"),
            "RUNNER_TEMP": str(scratch),
            "PATH": "/usr/bin:/bin",
        }
        install = root / "share/action/install.sh"
        run(install, env=settings)
        place = (scratch / "path").read_text().strip()
        expect(f"tollway {version}" in run(f"{place}/tollway", "--version"), "the action installs the release's binary")
        with (release / f"tollway-{version}-{platform.machine()}-linux.tar.gz").open("ab") as file:
            file.write(b"x")
        refused = subprocess.run([install], env=settings, capture_output=True, text=True, check=False)
        expect(refused.returncode == 1 and "checksum" in refused.stdout, "a changed tarball is refused")
        server.shutdown()
    say("action: installs the release by its checksum")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing about requests."""


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    sums(dist)
    with tempfile.TemporaryDirectory(prefix="tollway-dist-") as folder:
        scratch = Path(folder)
        for trial in (tarball, action, image, redhat, wheel):
            place = scratch / trial.__name__
            place.mkdir()
            trial(dist, place)
        if root := system(scratch):
            debian(dist, root)


if __name__ == "__main__":
    main()
