#!/usr/bin/env python3
"""Makes the release's files from a static binary: a tarball, a Debian and an RPM package, an image, a list of parts, checksums.

    python3 share/dist/dist.py target/static/tollway target/dist

The same binary gives the same bytes: times are those of the last commit (or SOURCE_DATE_EPOCH), owners are root. The RPM package
needs `rpmbuild`, the Debian one `dpkg-deb`; each is skipped loudly without.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = "Explicit rate control for ensembles of flows"
DESCRIPTION = (
    "Emulates networks for programs, simulates them, and divides uplinks, connections and messages among tenants, servers and sites."
)
DOCS = "usr/share/doc/tollway"
# What runs once the files are there, and before they go.
AFTER = """\
if command -v systemd-sysusers >/dev/null; then systemd-sysusers tollway.conf; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
BEFORE = """\
if [ -d /run/systemd/system ]; then systemctl disable --now 'tollway-*.service' || true; fi
"""


@dataclass
class File:
    data: bytes
    mode: int = 0o644


def text_of(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def now() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH") or text_of("git", "log", "-1", "--format=%ct"))


def staged(binary: Path) -> dict[str, File]:
    """The files of a package, by their path from the root."""
    files = {"usr/bin/tollway": File(binary.read_bytes(), 0o755)}
    shells = {
        "bash": "usr/share/bash-completion/completions/tollway",
        "zsh": "usr/share/zsh/vendor-completions/_tollway",
        "fish": "usr/share/fish/vendor_completions.d/tollway.fish",
    }
    for shell, path in shells.items():
        files[path] = File(text_of(binary, "completions", shell).encode())
    with tempfile.TemporaryDirectory() as folder:
        text_of(binary, "man", folder)
        for page in Path(folder).iterdir():
            files[f"usr/share/man/man1/{page.name}.gz"] = File(gzip.compress(page.read_bytes(), mtime=0))
    for unit in (ROOT / "share/systemd").glob("*.service"):
        files[f"usr/lib/systemd/system/{unit.name}"] = File(unit.read_bytes())
    files["usr/lib/sysusers.d/tollway.conf"] = File(b'u tollway - "Tollway" /var/lib/tollway\n')
    for example in (ROOT / "share/etc").glob("*.toml"):
        files[f"etc/tollway/{example.name}"] = File(example.read_bytes())
    for name in ("README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"):
        files[f"{DOCS}/{name}"] = File((ROOT / name).read_bytes())
    files[f"{DOCS}/copyright"] = File(b"MIT OR Apache-2.0\n\n" + (ROOT / "LICENSE-MIT").read_bytes())
    for scenario in text_of("git", "ls-files", "scenarios").split():
        files[f"{DOCS}/examples/{scenario.removeprefix('scenarios/')}"] = File((ROOT / scenario).read_bytes())
    return dict(sorted(files.items()))


def tar(files: dict[str, File], when: int, top: str = "") -> bytes:
    """An archive with the folders that the files need."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        seen: set[str] = set()

        def add(name: str, kind: bytes, mode: int, data: bytes = b"") -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime, entry.size = kind, mode, when, len(data)
            entry.uname = entry.gname = "root"
            archive.addfile(entry, io.BytesIO(data))

        for path, file in files.items():
            name = top + path
            for parent in reversed(Path(name).parents[:-1]):
                if str(parent) not in seen:
                    seen.add(str(parent))
                    add(str(parent), tarfile.DIRTYPE, 0o1777 if str(parent) == "tmp" else 0o755)
            add(name, tarfile.REGTYPE, file.mode, file.data)
    return out.getvalue()


def write(files: dict[str, File], folder: Path, when: int) -> None:
    for path, file in files.items():
        at = folder / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(file.data)
        at.chmod(file.mode)
    for at in [folder, *folder.rglob("*")]:
        if at.is_dir():
            at.chmod(0o755)
        os.utime(at, (when, when))


def fields(pairs: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in pairs.items() if value)


def deb(files: dict[str, File], out: Path, version: str, arch: str, origin: dict[str, str], when: int) -> Path | None:
    if not shutil.which("dpkg-deb"):
        return skipped("the Debian package", "dpkg-deb")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[arch]
    control = fields(
        {
            "Package": "tollway",
            "Version": version,
            "Architecture": arch,
            "Maintainer": origin["maintainer"] or "none stated",
            "Installed-Size": str(sum(len(file.data) for file in files.values()) // 1024),
            "Section": "net",
            "Priority": "optional",
            "Homepage": origin["homepage"],
            "Description": f"{SUMMARY}\n {DESCRIPTION}",
        }
    )
    kept = "".join(f"/{path}\n" for path in files if path.startswith("etc/"))
    scripts = {
        "DEBIAN/control": File(control.encode()),
        "DEBIAN/conffiles": File(kept.encode()),
        "DEBIAN/postinst": File(f"#!/bin/sh\nset -e\n{AFTER}".encode(), 0o755),
        "DEBIAN/prerm": File(f'#!/bin/sh\nset -e\n[ "$1" = remove ] || exit 0\n{BEFORE}'.encode(), 0o755),
    }
    path = out / f"tollway_{version}_{arch}.deb"
    with tempfile.TemporaryDirectory() as folder:
        write(files | scripts, Path(folder), when)
        subprocess.run(
            ["dpkg-deb", "--build", "--root-owner-group", "-Zxz", folder, path],
            env=os.environ | {"SOURCE_DATE_EPOCH": str(when)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return path


def rpm(files: dict[str, File], out: Path, version: str, arch: str, origin: dict[str, str], when: int) -> Path | None:
    if not shutil.which("rpmbuild"):
        return skipped("the RPM package", "rpmbuild (Debian: apt install rpm)")
    head = fields(
        {
            "Name": "tollway",
            "Version": version,
            "Release": "1",
            "Summary": SUMMARY,
            "License": "MIT OR Apache-2.0",
            "URL": origin["homepage"],
            "Packager": origin["maintainer"],
            "AutoReqProv": "no",
        }
    )
    listed = "".join(f"{'%config(noreplace) ' if path.startswith('etc/') else ''}/{path}\n" for path in files)
    with tempfile.TemporaryDirectory() as place:
        tree, spec = Path(place, "tree"), Path(place, "tollway.spec")
        write(files, tree, when)
        spec.write_text(
            f"{head}\n%description\n{DESCRIPTION}\n\n%install\ncp -a {tree}/. %{{buildroot}}/\n\n"
            f"%post\n{AFTER}\n%preun\nif [ $1 = 0 ]; then\n{BEFORE}fi\n\n%files\n%defattr(-,root,root)\n{listed}"
        )
        settings = {
            "_topdir": place,
            "_rpmdir": place,
            "_buildhost": "reproducible",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "_build_id_links": "none",
            "__os_install_post": "%{nil}",
            "_binary_payload": "w9.gzdio",
        }
        defines = [word for name, value in settings.items() for word in ("--define", f"{name} {value}")]
        done = subprocess.run(
            ["rpmbuild", "-bb", "--target", arch, *defines, str(spec)],
            env=os.environ | {"SOURCE_DATE_EPOCH": str(when)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"rpmbuild failed:\n{done.stderr}")
        (made,) = Path(place).rglob("*.rpm")
        return Path(shutil.copy(made, out / made.name))


def image(files: dict[str, File], out: Path, version: str, arch: str, when: int) -> Path:
    """An image of the Open Container Initiative, with one layer, as `podman load` and `docker load` read it."""
    stamp = text_of("date", "--utc", f"--date=@{when}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    wanted = ("usr/bin/", "usr/share/doc/tollway/LICENSE", "usr/share/doc/tollway/copyright")
    within = {path: file for path, file in files.items() if path.startswith(wanted)}
    within |= {
        "etc/passwd": File(b"root:x:0:0::/:/\ntollway:x:1000:1000::/:/\n"),
        "etc/group": File(b"root:x:0:\ntollway:x:1000:\n"),
        "tmp/.keep": File(b""),
    }
    layer = tar(within, when)
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    oci = "application/vnd.oci.image"
    packed = blob(gzip.compress(layer, mtime=0), f"{oci}.layer.v1.tar+gzip")
    config = {
        "created": stamp,
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[arch],
        "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/tollway"], "Cmd": ["--help"], "User": "1000:1000", "WorkingDir": "/tmp"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": stamp, "created_by": "share/dist/dist.py"}],
    }
    settings = blob(json.dumps(config).encode(), f"{oci}.config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": f"{oci}.manifest.v1+json", "config": settings, "layers": [packed]}
    named = blob(json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
    named |= {"annotations": {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"tollway:{version}"}}
    place = lambda about: "blobs/sha256/" + str(about["digest"]).removeprefix("sha256:")  # noqa: E731
    loaded = [{"Config": place(settings), "RepoTags": [f"tollway:{version}"], "Layers": [place(packed)]}]
    blobs |= {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(),
        "manifest.json": json.dumps(loaded).encode(),
    }
    path = out / f"tollway-{version}-{arch}-image.tar"
    path.write_bytes(tar({name: File(data) for name, data in sorted(blobs.items())}, when))
    return path


def parts(version: str, when: int) -> bytes:
    """All crates in the command, with versions, licences and checksums, in CycloneDX 1.5."""
    told = json.loads(text_of("cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"))
    packages = {package["id"]: package for package in told["packages"]}
    nodes = {node["id"]: node for node in told["resolve"]["nodes"]}
    (first,) = (package["id"] for package in told["packages"] if package["name"] == "tollway")
    found, waiting = {first}, [first]
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if linked and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in locked}

    def component(package: dict[str, str]) -> dict[str, object]:
        name, of = package["name"], package["version"]
        checksum = sums.get((name, of))
        return {
            "type": "library",
            "name": name,
            "version": of,
            "purl": f"pkg:cargo/{name}@{of}",
            **({"licenses": [{"expression": package["license"].replace("/", " OR ")}]} if package["license"] else {}),
            **({"hashes": [{"alg": "SHA-256", "content": checksum}]} if checksum else {}),
        }

    components = sorted((component(packages[one]) for one in found - {first}), key=lambda one: (one["name"], one["version"]))
    stamp = text_of("date", "--utc", f"--date=@{when}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    about = {"timestamp": stamp, "component": {"type": "application", "name": "tollway", "version": version}}
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": about, "components": components}
    return (json.dumps(bom, indent=1) + "\n").encode()


def skipped(what: str, needs: str) -> None:
    print(f"SKIPPED: {what}, which needs {needs}", file=sys.stderr)


def main() -> None:
    binary, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    version = text_of(binary, "--version").split()[1]
    arch, when = platform.machine(), now()
    origin = tomllib.loads((ROOT / "share/dist/origin.toml").read_text())
    files = staged(binary)
    top = f"tollway-{version}-{arch}-linux"
    tarball = out / f"{top}.tar.gz"
    placed = {path.removeprefix("usr/"): file for path, file in files.items()}
    tarball.write_bytes(gzip.compress(tar(dict(sorted(placed.items())), when, f"{top}/"), mtime=0))
    made = [
        tarball,
        deb(files, out, version, arch, origin, when),
        rpm(files, out, version, arch, origin, when),
        image(files, out, version, arch, when),
        out / f"tollway-{version}.cdx.json",
    ]
    made[-1].write_bytes(parts(version, when))
    # Wheels and source packages are there already.
    others = [*out.glob("*.whl"), *out.glob(f"tollway-{version}.tar.gz")]
    there = sorted({path for path in [*made, *others] if path}, key=lambda path: path.name)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in there)
    (out / "SHA256SUMS").write_text(sums)
    print(f"{len(files['usr/bin/tollway'].data) / 1e6:6.1f} MB  the static binary")
    for path in there:
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path}")


if __name__ == "__main__":
    main()
