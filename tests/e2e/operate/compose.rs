//! The compose files in `deploy/compose/`: what they mount exists, and each program accepts its configuration.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::balancer::check;
use crate::support::node::{CAROM, PATIENCE, free_address, wait_for};
use crate::support::scripts::{Ran, run};

/// Both folders with a compose file.
const FOLDERS: [&str; 2] = ["one-node", "three-nodes"];

/// A code secret.
const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/compose").join(name)
}

/// Reads a YAML file with Debian's Python, whose package python3-yaml `make test` installs.
fn yaml(path: &Path) -> Value {
    let program = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let read = run(Command::new("/usr/bin/python3").args(["-c", program]).arg(path));
    assert_eq!(read.code, 0, "{}: {}", path.display(), read.err);
    serde_json::from_str(&read.out).unwrap()
}

fn compose(name: &str) -> Value {
    yaml(&folder(name).join("compose.yaml"))
}

/// The services that run carom, by name.
fn nodes(compose: &Value) -> Vec<(&str, &Value)> {
    let services = compose["services"].as_object().unwrap().iter();
    let is_node = |service: &Value| service["image"].as_str().unwrap().starts_with("carom:");
    services.filter(|(_, service)| is_node(service)).map(|(name, service)| (name.as_str(), service)).collect()
}

/// The address of a service in the network of the fleet.
fn address_of<'c>(compose: &'c Value, service: &str) -> &'c str {
    let path = format!("/services/{service}/networks/carom/ipv4_address");
    compose.pointer(&path).and_then(Value::as_str).unwrap_or_else(|| panic!("{service} has no address"))
}

/// The sources and targets of the volumes of a service.
fn mounts(service: &Value) -> Vec<(&str, &str)> {
    let volumes = service["volumes"].as_array().into_iter().flatten();
    volumes
        .map(|volume| {
            let mut parts = volume.as_str().unwrap().split(':');
            (parts.next().unwrap(), parts.next().unwrap())
        })
        .collect()
}

#[test]
fn mounted_files_exist() {
    for name in FOLDERS {
        let compose = compose(name);
        let mut count = 0;
        for (service, description) in compose["services"].as_object().unwrap() {
            for (source, _) in mounts(description) {
                // `prepare.sh` writes the key.
                let exists = source == "./secrets/prometheus.key"
                    || source.starts_with('.') && folder(name).join(source).is_file()
                    || compose["volumes"].as_object().unwrap().contains_key(source);
                assert!(exists, "{name}: {service} mounts {source}, which does not exist");
                count += 1;
            }
        }
        assert!(count >= 2, "{name}");
    }
}

#[test]
fn nodes_have_their_rights_and_limits() {
    let image = format!("carom:${{CAROM_VERSION:-{}}}", env!("CARGO_PKG_VERSION"));
    for (name, count) in FOLDERS.into_iter().zip([1, 3]) {
        let compose = compose(name);
        let nodes = nodes(&compose);
        assert_eq!(nodes.len(), count);
        for (_, node) in nodes {
            assert_eq!(node["image"], image.as_str());
            assert_eq!(node["cap_drop"], json!(["ALL"]));
            assert_eq!(node["read_only"], true);
            assert_eq!(node["restart"], "unless-stopped");
            // As in the unit of systemd.
            let both = |limit: u64| json!({"soft": limit, "hard": limit});
            assert_eq!(node["ulimits"], json!({"nofile": both(1 << 20), "memlock": both(64 << 20)}));
            assert_eq!(node["stop_grace_period"], "90s");
            assert_eq!(node["healthcheck"]["test"], json!(["CMD", "carom", "health"]));
            assert_eq!(node["security_opt"][0], "no-new-privileges:true");
            let profile = node["security_opt"][1].as_str().unwrap().strip_prefix("seccomp:").unwrap();
            let profile = fs::read_to_string(folder(name).join(profile)).unwrap();
            assert!(profile.contains("io_uring_setup"));
        }
    }
}

/// Runs `carom config check` as in a container of these files.
fn checked(name: &str, data_dir: &Path) -> Ran {
    let mut command = Command::new(CAROM);
    command.args(["config", "check"]).arg(folder(name).join("carom.toml")).env("CAROM_DATA_DIR", data_dir);
    if name == "three-nodes" {
        command.envs([("CAROM_SPACE_KEY", SECRET), ("CAROM_FLEET_PASSWORD", SECRET), ("CAROM_FLEET_NODE", "node1")]);
    }
    run(&mut command)
}

#[test]
fn settings_pass_the_check() {
    let dir = tempfile::tempdir().unwrap();
    for name in FOLDERS {
        let said = checked(name, dir.path());
        assert_eq!(said.code, 0, "{name}: {}", said.err);
        assert!(said.out.contains("the settings are valid"), "{name}: {}", said.out);
    }
}

#[test]
fn addresses_of_the_fleet_agree() {
    let compose = compose("three-nodes");
    let text = fs::read_to_string(folder("three-nodes").join("carom.toml")).unwrap();
    let settings: toml::Table = text.parse().unwrap();
    let text_at = |value: &toml::Value| value.as_str().unwrap().to_owned();
    assert_eq!(text_at(&settings["redis"]), format!("redis://{}:6379", address_of(&compose, "redis")));
    let trusted: Vec<String> = settings["trusted_proxies"].as_array().unwrap().iter().map(text_at).collect();
    assert_eq!(trusted, [address_of(&compose, "haproxy")]);
    let balancer = fs::read_to_string(folder("three-nodes").join("haproxy.cfg")).unwrap();
    let prometheus = yaml(&folder("three-nodes").join("prometheus.yml"));
    let targets = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"];
    let hosts: Vec<String> = settings["admin"]["hosts"].as_array().unwrap().iter().map(text_at).collect();
    let mut names = Vec::new();
    for (name, node) in nodes(&compose) {
        let server = format!("  server {name} {}:8080\n", address_of(&compose, name));
        assert!(balancer.contains(&server), "haproxy.cfg lacks {server}");
        assert_eq!(node["environment"]["CAROM_FLEET_NODE"], name);
        names.push(name.to_owned());
    }
    assert_eq!(hosts, names);
    assert_eq!(targets, &json!(names.iter().map(|name| format!("{name}:8081")).collect::<Vec<_>>()));
    assert_eq!(balancer.matches("  server ").count(), names.len());
    // Other services get their addresses from the upper half, so that none takes one that is named.
    assert_eq!(
        compose["networks"]["carom"]["ipam"]["config"],
        json!([{"subnet": "172.30.81.0/24", "gateway": "172.30.81.1", "ip_range": "172.30.81.128/25"}])
    );
    let services = compose["services"].as_object().unwrap().values();
    let fixed = services.filter_map(|service| service.pointer("/networks/carom/ipv4_address"));
    let fixed: BTreeSet<Ipv4Addr> = fixed.map(|address| address.as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(fixed.len(), 5);
    for address in fixed {
        let [network @ .., host] = address.octets();
        assert!(network == [172, 30, 81], "{address}");
        assert!((2..128).contains(&host), "{address}");
    }
    // Each node has data of its own.
    let volumes: BTreeSet<String> = nodes(&compose).iter().map(|(_, node)| mounts(node)[0].0.to_owned()).collect();
    assert_eq!(volumes.len(), names.len());
}

#[test]
fn balancer_and_monitoring_are_valid() {
    let fleet = folder("three-nodes");
    check("haproxy", &["-c", "-f", fleet.join("haproxy.cfg").to_str().unwrap()]);
    // The files as they are mounted.
    let dir = tempfile::tempdir().unwrap();
    let rules = fleet.join("../../prometheus/carom.rules.yml");
    fs::copy(fleet.join("prometheus.yml"), dir.path().join("prometheus.yml")).unwrap();
    fs::copy(rules, dir.path().join("carom.rules.yml")).unwrap();
    fs::write(dir.path().join("carom.key"), "carom_ak_\n").unwrap();
    check("promtool", &["check", "config", dir.path().join("prometheus.yml").to_str().unwrap()]);
    let prometheus = yaml(&fleet.join("prometheus.yml"));
    // The alerts and the dashboard rely on this name.
    assert_eq!(prometheus["scrape_configs"][0]["job_name"], "carom");
    let sources = yaml(&fleet.join("grafana/datasources.yml"));
    assert_eq!((&sources["apiVersion"], &sources["datasources"][0]["type"]), (&json!(1), &json!("prometheus")));
    let compose = compose("three-nodes");
    let url = sources["datasources"][0]["url"].as_str().unwrap();
    assert_eq!(url, "http://prometheus:9090");
    assert!(!compose["services"]["prometheus"].is_null());
    // Grafana looks for dashboards where the dashboard is mounted.
    let provider = yaml(&fleet.join("grafana/dashboards.yml"));
    let path = provider["providers"][0]["options"]["path"].as_str().unwrap();
    let dashboard = format!("{path}/carom.json");
    let grafana = &compose["services"]["grafana"];
    assert!(mounts(grafana).contains(&("../../grafana/carom.json", dashboard.as_str())), "{grafana}");
    assert_eq!(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"], dashboard);
}

/// A server that is killed at the end of its test. The shell that started it has become the server.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_starts_as_in_its_container() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let address = free_address();
    let compose = compose("three-nodes");
    let script = compose["services"]["redis"]["entrypoint"][2].as_str().unwrap();
    let here = script
        .replace("$$", "$")
        .replace("/etc/redis/single.conf", folder("three-nodes").join("../../redis/single.conf").to_str().unwrap())
        .replace("/tmp/redis.conf", &format!("{place}/redis.conf"))
        .replace("dir /data", &format!("dir {place}"))
        .replace("bind * -::*", &format!("bind 127.0.0.1\\nport {}", address.port()));
    assert!(here.contains(place), "{here}");
    assert!(!here.contains("$$"), "{here}");
    let mut command = Command::new("sh");
    command.args(["-ec", &here]).env("CAROM_FLEET_PASSWORD", SECRET).stdout(Stdio::null());
    let _server = Server(command.spawn().unwrap());
    let ask = |question: &str| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(format!("{question}\r\nQUIT\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let stranger = wait_for("Redis", || ask("PING"));
    let answer = ask(&format!("AUTH {SECRET}\r\nPING")).unwrap_or_default();
    assert!(stranger.starts_with("-NOAUTH"), "{stranger}");
    assert!(answer.starts_with("+OK\r\n+PONG"), "{answer}");
    // The health check fails after any error, such as that of a Redis that loads its data.
    let test: Vec<&str> = compose["services"]["redis"]["healthcheck"]["test"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(test[..2], ["CMD", "redis-cli"]);
    let health = |password: &str| {
        let port = address.port().to_string();
        run(Command::new("redis-cli").args(["-p", &port]).args(&test[2..]).env("REDISCLI_AUTH", password)).code
    };
    assert_eq!(health(SECRET), 0);
    assert_ne!(health("wrong"), 0);
}

/// Runs a copy of `prepare.sh` with an engine that runs the binary under test in place of a container.
fn prepare(dir: &Path, engine: &str) -> Ran {
    fs::copy(folder("three-nodes").join("prepare.sh"), dir.join("prepare.sh")).unwrap();
    let stand_in = dir.join("engine");
    fs::write(&stand_in, engine).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    run(Command::new("bash").arg(dir.join("prepare.sh")).env("ENGINE", &stand_in))
}

#[test]
fn secrets_are_prepared_once() {
    let dir = tempfile::tempdir().unwrap();
    let failed = prepare(dir.path(), "#!/bin/sh\nexit 125\n");
    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(failed.err.contains("is the image loaded"), "{}", failed.err);
    let data = dir.path().join("data").display().to_string();
    let engine = format!(
        "#!/bin/sh\n[ \"$1 $2 $3 $4 $5 $6\" = 'compose run --rm --no-deps -T node1' ] || exit 1\nshift 6\nexec {CAROM} \"$@\" --data-dir {data}\n"
    );
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let secrets = text(".env");
    let made = prepare(dir.path(), &engine);
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(text(".env"), secrets, "the failed run had written it");
    let values: Vec<(&str, &str)> = secrets.lines().map(|line| line.split_once('=').unwrap()).collect();
    let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["CAROM_SPACE_KEY", "CAROM_FLEET_PASSWORD", "GRAFANA_PASSWORD"]);
    assert!(values.iter().all(|(_, value)| value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit())));
    assert_ne!(values[0].1, values[1].1);
    let key = text("secrets/prometheus.key");
    assert!(key.starts_with("carom_ak_"), "{key}");
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(".env"), mode("secrets"), mode("secrets/prometheus.key")), (0o600, 0o700, 0o644));
    assert_eq!(prepare(dir.path(), &engine).code, 0);
    assert_eq!(text(".env"), secrets);
    assert_eq!(text("secrets/prometheus.key"), key);
}
