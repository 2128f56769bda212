//! `carom config`, completions, man pages and the version: what the binary says without a node.

use crate::support::cli_user::CliUser;

#[test]
fn first_settings_are_valid_and_shown() {
    let user = CliUser::new();
    let written = user.run(&["config", "init", "--data-dir", "./links"]);
    assert!(written.code == 0, "{written:?}");
    assert!(written.err.contains("carom config check carom.toml"), "{written:?}");
    user.refused(&["config", "init"], 2, &["exists already"]);
    assert_eq!(user.done(&["config", "check", "carom.toml"]), "carom.toml: the settings are valid\n");
    assert_eq!(user.done(&["config", "check", "--config", "carom.toml"]), "carom.toml: the settings are valid\n");
    let shown = user.done(&["config", "show", "carom.toml"]);
    assert!(shown.contains("data_dir = \"./links\"  # "), "{shown}");
    // The former name prints the effective settings, too.
    assert_eq!(user.done(&["check-config", "carom.toml"]), shown);
    let printed = user.done(&["config", "init", "-", "--data-dir", "./links"]);
    assert_eq!(printed, std::fs::read_to_string(user.home().join("carom.toml")).unwrap());
}

#[test]
fn mistakes_are_reported_at_once() {
    let user = CliUser::new();
    user.file("wrong.toml", "colour = 'red'\n[limits]\nhead_seconds = 0\n");
    for command in [&["config", "check"][..], &["config", "show"], &["check-config"]] {
        let arguments = [command, &["wrong.toml"]].concat();
        user.refused(&arguments, 2, &["wrong.toml:1: colour", "wrong.toml:3: limits.head_seconds"]);
    }
    // Valid by themselves, but a file that they name is missing.
    let home = user.home().display();
    user.file("missing.toml", &format!("[tls]\ncert = ['{home}/none.pem']\nkey = ['{home}/none.key']\n"));
    user.done(&["config", "show", "missing.toml"]);
    user.refused(&["config", "check", "missing.toml"], 22, &["none.pem"]);
}

#[test]
fn imports_name_the_default_directory() {
    let user = CliUser::new();
    let line = |code: &str| format!("{{\"shortCode\":\"{code}\",\"longUrl\":\"https://example.org/\"}}\n");
    let ran = user.run_with_input(&["import", "-"], &line("first"));
    let data_dir = user.home().canonicalize().unwrap().join("carom-data");
    assert!(ran.code == 0, "{ran:?}");
    assert!(data_dir.join("links").is_dir(), "{ran:?}");
    let told = format!("{}, which has no links yet; --data-dir", data_dir.display());
    assert!(ran.err.contains("importing into "), "{ran:?}");
    assert!(ran.err.contains(&told), "{ran:?}");
    let named = user.run_with_input(&["import", "--data-dir", "carom-data", "-"], &line("second"));
    assert!(named.code == 0, "{named:?}");
    assert!(!named.err.contains("importing into"), "{named:?}");
}

#[test]
fn binary_documents_itself() {
    let user = CliUser::new();
    assert_eq!(user.done(&["-V"]), concat!("carom ", env!("CARGO_PKG_VERSION"), "\n"));
    let version = user.done(&["--version"]);
    assert!(["\ncommit: ", "\ndate:   ", "\ntarget: "].iter().all(|part| version.contains(part)), "{version}");
    for (shell, part) in [("bash", "_carom()"), ("zsh", "#compdef carom"), ("fish", "complete -c carom")] {
        let script = user.done(&["completions", shell]);
        assert!(script.contains(part), "{shell}: {script}");
        assert!(script.contains("find-if-exists"), "{shell}: {script}");
    }
    user.refused(&["completions", "tcsh"], 2, &["bash"]);
    user.done(&["man", "pages/man1"]);
    let page = std::fs::read_to_string(user.home().join("pages/man1/carom-link-create.1")).unwrap();
    assert!(page.contains("find\\-if\\-exists"), "{page}");
    user.refused(&["man", "/proc/carom"], 16, &["/proc/carom"]);
}
