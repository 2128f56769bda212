//! `carom login` and `carom logout`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key};
use crate::support::cli_user::CliUser;
use crate::support::node::{Setup, free_address, wait_until};
use crate::support::openapi::is_described;
use crate::support::terminal::pseudo_terminal;

const API_KEY: &str = "/rest/v3/api-key";

#[test]
fn api_tells_what_a_key_may_do() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path());
    let node = setup.start();
    let open = node.wire().get(API_KEY);
    is_described(&node, "get", API_KEY, &open);
    let all = json!({"apiKey": {"required": false, "app": null, "name": null, "role": "admin", "domains": null}});
    assert_eq!(open.json(), all);
    let setup = node.terminate();
    let key = new_key(&setup, "shop", "read");
    let node = setup.start();
    let reply = ApiClient::new(&node, &key).get(API_KEY);
    is_described(&node, "get", API_KEY, &reply);
    let own = json!({"apiKey": {"required": true, "app": "shop", "name": null, "role": "read", "domains": null}});
    assert_eq!(reply.json(), own);
    node.wire().get(API_KEY).problem(401, "/missing-authentication");
    node.terminate();
}

#[test]
fn login_checks_and_stores_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).over_kernel();
    let key = new_key(&setup, "shop", "write-own");
    let node = setup.start();
    let user = CliUser::new();
    let url = node.url("");
    let file = user.file("key", &format!("{key}\n"));
    let file = file.to_str().unwrap();
    // Without a key and without a terminal, nobody can be asked.
    user.refused(&["login", &url], 2, &["error: ", "requires an API key", "hint: ", "--key-file"]);
    let wrong = user.file("wrong", "carom_wrong");
    user.refused(&["login", &url, "--key-file", wrong.to_str().unwrap()], 2, &["API key"]);
    let profile = user.home().join(".config/carom/profile.json");
    assert!(!profile.exists(), "a login that failed was stored");
    let out = user.done(&["login", &url, "--key-file", file]);
    assert!(out.contains("as shop with the role write-own"), "{out}");
    assert!(!out.contains(&key), "{out}");
    let status = user.done(&["login", "--status"]);
    assert_eq!(status, format!("Commands use {url} (the login) as shop with the role write-own.\n"));
    user.refused(&["login", "--status", &url], 2, &["cannot be used with"]);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&profile), mode(profile.parent().unwrap())), (0o600, 0o700));
    let stored: Value = serde_json::from_slice(&std::fs::read(&profile).unwrap()).unwrap();
    assert_eq!(stored, json!({"url": url, "key": key, "plainHttp": false}));
    // The address of the last login is the default, and standard input works in place of a file.
    let again = user.run_with_input(&["login", "--key-file", "-"], &key);
    assert!(again.code == 0, "{again:?}");
    assert!(again.out.contains("write-own"), "{again:?}");
    assert!(user.done(&["logout"]).contains(&url));
    assert!(!profile.exists());
    assert!(user.done(&["logout"]).contains("no login"));
    node.terminate();
}

#[test]
fn login_needs_no_key_while_none_exists() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new().env("CAROM_URL", &node.url("/"));
    assert!(user.done(&["login"]).contains("without a key"));
    node.terminate();
    user.refused(&["login"], 1, &["does not answer", "check that the node runs"]);
}

#[test]
fn login_keeps_keys_off_plain_http() {
    let user = CliUser::new();
    let key = user.file("key", "geheim");
    let key = key.to_str().unwrap();
    let url = "http://carom.invalid";
    user.refused(&["login", url, "--key-file", key], 2, &["carom.invalid unencrypted", "--plain-http"]);
    // With consent, the name is looked up, and does not exist.
    let agreed = user.run(&["login", url, "--key-file", key, "--plain-http"]);
    assert!(agreed.code == 1, "{agreed:?}");
    assert!(agreed.err.contains("does not answer"), "{agreed:?}");
    assert!(!agreed.err.contains("geheim"), "{agreed:?}");
    user.refused(&["login", "ftp://go.example"], 2, &["expected http or https"]);
    let nobody = format!("http://{}", free_address());
    user.refused(&["login", &nobody], 1, &[&nobody]);
}

#[test]
fn killed_prompt_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).over_kernel();
    new_key(&setup, "shop", "read");
    let (node, user) = (setup.start(), CliUser::new());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (_screen, terminal) = pseudo_terminal();
        let mut command = user.command(&["login", &node.url("")]);
        command.stdin(terminal.try_clone().unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let echoes = || tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ECHO);
        wait_until("a prompt", || {
            assert!(child.try_wait().unwrap().is_none(), "the command has ended");
            !echoes()
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        // The parent sees the signal, as without a prompt.
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert!(echoes(), "the terminal is left without echo after {signal:?}");
    }
    node.terminate();
}

/// Answers one request without a status of a node, and returns its head.
fn heard_by(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    String::from_utf8(head).unwrap()
}

#[test]
fn key_of_one_node_is_not_sent_to_another() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heard = |user: &CliUser, arguments: &[&str]| {
        std::thread::scope(|scope| {
            let head = scope.spawn(|| heard_by(&listener));
            let ran = user.run(arguments);
            (head.join().unwrap(), ran.err)
        })
    };
    let user = CliUser::new();
    let key = user.file("key", "geheim");
    let key = key.to_str().unwrap();
    let user = user.env("CAROM_KEY_FILE", key).env("CAROM_URL", "https://go.example");
    let (head, said) = heard(&user, &["link", "list", "--url", &url]);
    assert!(!head.contains("geheim"), "{head}");
    assert!(said.contains("is for https://go.example and is not sent to http://127.0.0.1"), "{said}");
    // With an option, or for the node of the environment, it is on purpose.
    let (head, said) = heard(&user, &["link", "list", "--url", &url, "--key-file", key]);
    assert!(head.contains("geheim"), "{head} {said}");
    assert!(!said.contains("is not sent"), "{head} {said}");
    let user = user.env("CAROM_URL", &url);
    let (head, said) = heard(&user, &["link", "list", "--url", &format!("{url}/")]);
    assert!(head.contains("geheim"), "{head} {said}");
    assert!(!said.contains("is not sent"), "{head} {said}");
}
