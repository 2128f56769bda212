//! Dependencies: their licences, their sources, and that there is one version of each, by the lists of `deny.toml`.
//!
//! `make deny` checks the same lists with cargo-deny. Compiling that takes minutes, so this holds them on every machine.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

/// A package that is built on this machine, for the product or for its tests.
#[derive(Clone, Debug)]
struct Package {
    name: String,
    version: String,
    /// An SPDX expression.
    licence: String,
}

/// A second version that `deny.toml` names: a package, and how its version begins.
#[derive(Clone, Debug)]
struct Skip {
    name: String,
    version: String,
}

impl Skip {
    fn covers(&self, package: &Package) -> bool {
        let rest = package.version.strip_prefix(&self.version);
        self.name == package.name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[test]
fn licences_are_allowed() {
    let deny = read("deny.toml");
    let allowed = texts(&deny["licenses"]["allow"]);
    let exceptions = deny["licenses"]["exceptions"].as_array().expect("a list");
    let wrong: Vec<Package> = packages()
        .into_iter()
        .filter(|package| {
            let of_package =
                exceptions.iter().filter(|exception| exception["crate"].as_str() == Some(package.name.as_str()));
            let more = of_package.flat_map(|exception| texts(&exception["allow"]));
            !is_allowed(&package.licence, &allowed.iter().copied().chain(more).collect::<Vec<_>>())
        })
        .collect();
    assert!(wrong.is_empty(), "licences that deny.toml does not allow: {wrong:?}");
}

#[test]
fn packages_come_from_one_registry() {
    let lock = read("Cargo.lock");
    let packages = lock["package"].as_array().expect("a list");
    // Members of the workspace have no source.
    let sources: BTreeSet<&str> =
        packages.iter().filter_map(|package| package.get("source").and_then(Value::as_str)).collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(sources.iter().all(|source| source.starts_with("registry+")), "{sources:?}");
}

#[test]
fn second_versions_are_listed_and_exist() {
    let deny = read("deny.toml");
    let entries = deny["bans"]["skip"].as_array().expect("a list").iter();
    let skips: Vec<Skip> = entries
        .map(|entry| {
            let (name, version) = entry["crate"].as_str().and_then(|text| text.split_once(':')).expect("name:version");
            Skip { name: name.to_owned(), version: version.to_owned() }
        })
        .collect();
    assert_eq!(wrong_versions(&packages(), &skips), Vec::<String>::new());
}

#[test]
fn each_dependency_has_its_reason() {
    let crates = root().join("crates").read_dir().expect("a folder of the repository").flatten();
    let mut folders: Vec<String> =
        crates.map(|entry| format!("crates/{}/", entry.file_name().to_string_lossy())).collect();
    folders.extend(["", "bench/", "loadgen/", "shards/"].map(str::to_owned));
    let mut bare = Vec::new();
    for manifest in folders.iter().map(|folder| format!("{folder}Cargo.toml")) {
        let text = std::fs::read_to_string(root().join(&manifest)).expect("each crate has a manifest");
        bare.extend(without_reason(&text).into_iter().map(|name| format!("{manifest}: {name}")));
    }
    assert!(bare.is_empty(), "say in a comment why the crate is there: {bare:?}");
}

/// Returns the dependencies of a manifest that have a comment neither behind nor above them. Those of tests need none.
fn without_reason(manifest: &str) -> Vec<&str> {
    let (mut is_listed, mut before) = (false, "");
    let mut bare = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_listed = line == "[dependencies]";
        } else if is_listed && !line.contains('#') && !before.starts_with('#') {
            bare.extend(line.split_once(" = ").map(|(name, _)| name));
        }
        before = line;
    }
    bare
}

#[test]
fn planted_dependencies_without_reason_are_found() {
    let manifest = "[dependencies]\na = \"1\" # Why.\n# Why.\nb = \"1\"\nc = \"1\"\n\n[dev-dependencies]\nd = \"1\"\n";
    assert_eq!(without_reason(manifest), ["c"]);
}

/// Returns what is wrong with the versions of packages: second ones that are not listed, and entries that nothing
/// needs.
fn wrong_versions(packages: &[Package], skips: &[Skip]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    packages.iter().for_each(|package| by_name.entry(&package.name).or_default().push(package));
    let mut wrong = Vec::new();
    for (name, versions) in &by_name {
        let unlisted: Vec<&str> = versions
            .iter()
            .filter(|package| !skips.iter().any(|skip| skip.covers(package)))
            .map(|package| package.version.as_str())
            .collect();
        if unlisted.len() > 1 {
            wrong.push(format!("{name} has the versions {}: make it one, or list it", unlisted.join(" and ")));
        }
    }
    for skip in skips {
        let versions = by_name.get(skip.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        if versions.len() < 2 || !versions.iter().any(|package| skip.covers(package)) {
            wrong.push(format!("{} {} is no second version any more: remove the entry", skip.name, skip.version));
        }
    }
    wrong
}

/// True if a list of licences satisfies an SPDX expression. A slash is an old way to write OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let is_met = any_is_met(&mut words, allowed);
    is_met && words.next().is_none()
}

fn any_is_met<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[&str]) -> bool {
    let mut is_met = all_are_met(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_met |= all_are_met(words, allowed);
    }
    is_met
}

fn all_are_met<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[&str]) -> bool {
    let mut are_met = one_is_met(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        are_met &= one_is_met(words, allowed);
    }
    are_met
}

fn one_is_met<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[&str]) -> bool {
    match words.next() {
        Some("(") => {
            let is_met = any_is_met(words, allowed);
            words.next() == Some(")") && is_met
        }
        Some(licence) => {
            // `MPL-2.0+` is that version or a later one.
            let mut licence = licence.trim_end_matches('+').to_owned();
            if words.next_if_eq(&"WITH").is_some() {
                licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
            }
            allowed.contains(&licence.as_str())
        }
        None => false,
    }
}

/// The packages of the workspace as cargo resolves them for this machine, each version once.
fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--workspace", "--edges", "normal,build,dev", "--prefix", "none"])
        .args(["--format", "{p}\t{l}"])
        .current_dir(root())
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = BTreeMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        // Members are set apart by empty lines, and `(*)` marks what was listed before.
        let Some((package, licence)) = line.split_once('\t') else { continue };
        let (name, rest) = package.split_once(" v").expect("a name and a version");
        let version = rest.split(' ').next().unwrap_or_default();
        let licence = licence.trim_end_matches(" (*)");
        found.insert((name.to_owned(), version.to_owned()), licence.to_owned());
    }
    let packages = found.into_iter().map(|((name, version), licence)| Package { name, version, licence });
    let packages: Vec<Package> = packages.collect();
    assert!(packages.len() > 100, "cargo lists only {packages:?}");
    packages
}

fn read(file: &str) -> Table {
    let text = std::fs::read_to_string(root().join(file)).expect("a file of the repository can be read");
    text.parse().expect("it is TOML")
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn expressions_are_read_as_spdx_defines_them() {
    let allowed = ["MIT", "ISC", "Apache-2.0", "MPL-2.0"];
    for met in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "MIT/Unlicense",
        "ISC AND (Unlicense OR MIT)",
        "GPL-2.0-only OR ISC AND MIT",
        "MPL-2.0+",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        assert!(is_allowed(met, &allowed), "{met}");
    }
    for unmet in [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "ISC AND (Unlicense OR Zlib)",
        "Apache-2.0 WITH LLVM-exception",
        "(MIT",
        "MIT MIT",
    ] {
        assert!(!is_allowed(unmet, &allowed), "{unmet}");
    }
}

#[test]
fn second_versions_are_found_and_so_are_spare_entries() {
    let package = |(name, version): (&str, &str)| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        licence: "MIT".to_owned(),
    };
    let skip = |(name, version): (&str, &str)| Skip { name: name.to_owned(), version: version.to_owned() };
    let wrong = |packages: &[(&str, &str)], skips: &[(&str, &str)]| {
        let packages: Vec<Package> = packages.iter().copied().map(package).collect();
        wrong_versions(&packages, &skips.iter().copied().map(skip).collect::<Vec<_>>()).len()
    };
    let two = [("a", "1.2.3"), ("a", "0.10.0"), ("b", "1.0.0")];
    assert_eq!(wrong(&two, &[("a", "1")]), 0);
    assert_eq!(wrong(&two, &[("a", "0.10")]), 0);
    assert_eq!(wrong(&two, &[]), 1);
    assert_eq!(wrong(&two, &[("a", "0.1")]), 2, "0.10 is not 0.1");
    assert_eq!(wrong(&two, &[("a", "1"), ("b", "1")]), 1);
    assert_eq!(wrong(&two, &[("a", "1"), ("c", "1")]), 1);
}
