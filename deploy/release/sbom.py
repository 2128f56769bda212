#!/usr/bin/env python3
"""Writes the bill of materials of a release (CycloneDX 1.5, JSON) and the licences of what is linked into its binaries.

`cargo metadata` describes the crates, and `cargo tree` lists those that the binaries need for one target, without those that only tests
need. A crate that only a build script or a macro needs has the scope "excluded": it is not part of a binary. The same input always gives
the same bytes.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import sys
import uuid

# Names of files with a licence, in capitals and without an ending.
LICENCE_NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")

# The programs of a release.
PROGRAMS = ("carom", "carom-loadgen")


def fail(text):
    sys.exit(f"sbom.py: {text}")


def checksums_of(lock):
    """Returns the SHA-256 checksums in Cargo.lock by name and version. A member of the workspace has none."""
    found, entry = {}, {}
    for line in lock.splitlines() + ["[[package]]"]:
        if line == "[[package]]":
            if "checksum" in entry:
                found[entry["name"], entry["version"]] = entry["checksum"]
            entry = {}
        name, separator, value = line.partition(" = ")
        if separator and value.startswith('"'):
            entry[name] = value.strip('"')
    return found


def listed_in(tree):
    """Returns the names and versions in the output of cargo tree with `--prefix none --format {p}`."""
    lines = [line.split() for line in tree.splitlines() if line.strip()]
    return {(words[0], words[1].removeprefix("v")) for words in lines}


def uses(node, kinds, needed):
    """Returns the needed packages that a package uses in one of these ways: None for normal, "build" or "dev"."""
    found = [dependency for dependency in node["deps"] if kinds & {kind["kind"] for kind in dependency["dep_kinds"]}]
    return [dependency["pkg"] for dependency in found if dependency["pkg"] in needed]


def linked_into(nodes, packages, needed, roots):
    """Returns the packages whose code is in the binaries."""

    def is_macro(package):
        return any("proc-macro" in target["kind"] for target in packages[package]["targets"])

    linked, waiting = set(), list(roots)
    while waiting:
        package = waiting.pop()
        if package not in linked and not is_macro(package):
            linked.add(package)
            waiting += uses(nodes[package], {None}, needed)
    return linked


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def expression(package):
    """Returns the licence as SPDX writes it. A slash is an old way to write OR."""
    licence = package["license"]
    if not licence:
        fail(f"{package['name']} {package['version']} names no licence")
    return licence.replace("/", " OR ").replace("  ", " ")


def component(package, checksums, is_linked):
    made = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if is_linked else "excluded",
        "licenses": [{"expression": expression(package)}],
        "purl": purl(package),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    elif package["source"]:
        fail(f"Cargo.lock has no checksum of {package['name']} {package['version']}")
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def bill(metadata, listed, checksums, version, target, time):
    packages = {package["id"]: package for package in metadata["packages"]}
    needed = {key for key, package in packages.items() if (package["name"], package["version"]) in listed}
    if len(needed) != len(listed):
        fail(f"cargo tree lists {len(listed)} packages, and cargo metadata describes {len(needed)} of them")
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = {packages[member]["name"]: member for member in metadata["workspace_members"]}
    missing = [name for name in PROGRAMS if name not in members]
    if missing:
        fail(f"the workspace has no package {' or '.join(missing)}")
    roots = [members[name] for name in PROGRAMS]
    linked = linked_into(nodes, packages, needed, roots)
    order = sorted(needed, key=lambda package: (packages[package]["name"], packages[package]["version"]))
    components = [component(packages[package], checksums, package in linked) for package in order]
    dependencies = [
        {
            "ref": purl(packages[package]),
            "dependsOn": sorted(purl(packages[used]) for used in uses(nodes[package], {None, "build"}, needed)),
        }
        for package in order
    ]
    release = f"pkg:generic/carom-release@{version}"
    dependencies.insert(0, {"ref": release, "dependsOn": sorted(purl(packages[root]) for root in roots)})
    made = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": release,
                "name": "carom",
                "version": version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "purl": release,
                "properties": [{"name": "carom:target", "value": target}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }
    # A number that depends on the content alone, where a random one would differ each time.
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
    made["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"
    return made, [packages[package] for package in order if package in linked]


def licence_texts(package):
    """Returns the licence files in the source of a crate."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [path for path in folder.iterdir() if path.is_file() and path.name.upper().startswith(LICENCE_NAMES)]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in sorted(files)]


def notices(packages):
    """Returns the licences of all crates, each text once, after the crates to which it applies."""
    users, without = {}, []
    for package in packages:
        # Members of the workspace have the licence of carom itself.
        if not package["source"]:
            continue
        name = f"{package['name']} {package['version']} ({expression(package)})"
        texts = licence_texts(package)
        if not texts:
            without.append(name)
        for text in texts:
            users.setdefault(text, []).append(name)
    parts = ["carom contains the crates below, under their licences. carom itself is licensed under MIT or Apache-2.0.\n"]
    for text, names in sorted(users.items(), key=lambda item: (item[1], item[0])):
        parts.append("=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n" + text + "\n")
    if without:
        parts.append("=" * 80 + "\nThese crates name a licence, and have no file with its text:\n" + "\n".join(without) + "\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, type=pathlib.Path, help="output of cargo metadata --filter-platform TARGET")
    parser.add_argument("--tree", required=True, type=pathlib.Path, help="output of cargo tree --prefix none --format {p}")
    parser.add_argument("--lock", required=True, type=pathlib.Path, help="Cargo.lock")
    parser.add_argument("--version", required=True, help="version of the release")
    parser.add_argument("--target", required=True, help="target triple of the binaries")
    parser.add_argument("--time", required=True, type=int, help="time of the release, in seconds since 1970")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the bill of materials")
    parser.add_argument("--notices", required=True, type=pathlib.Path, help="the file of licences")
    arguments = parser.parse_args()
    metadata = json.loads(arguments.metadata.read_text(encoding="utf-8"))
    checksums = checksums_of(arguments.lock.read_text(encoding="utf-8"))
    listed = listed_in(arguments.tree.read_text(encoding="utf-8"))
    made, linked = bill(metadata, listed, checksums, arguments.version, arguments.target, arguments.time)
    arguments.out.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    arguments.notices.write_text(notices(linked), encoding="utf-8")


main()
