//! The comparison of two runs, from the files that runs write.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::Generator;
use crate::server::{Server, right};

fn compare(base: &Path, new: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-loadgen"));
    command.arg("compare").args([base, new]).args(options).output().unwrap()
}

/// Multiplies p99, and says that the generator was or was not the bottleneck.
pub(crate) fn with_p99(mut json: Value, factor: f64, is_limited: bool) -> Value {
    let p99 = &mut json["latencyMicros"]["intended"]["all"]["p99"];
    *p99 = json!(p99.as_f64().unwrap() * factor);
    json["generator"]["bottleneck"] = json!(is_limited);
    json
}

#[test]
fn changes_of_two_runs_fail_as_asked() {
    let (server, generator) = (Server::start(right), Generator::new());
    let json = generator.run(&server, "--rate 300 --connections 2 --requests 150", 0);
    let [base, new, limited] = ["base.json", "new.json", "limited.json"].map(|name| generator.file(name));
    std::fs::write(&base, with_p99(json.clone(), 1.0, false).to_string()).unwrap();
    std::fs::write(&new, with_p99(json.clone(), 1.2, false).to_string()).unwrap();
    std::fs::write(&limited, with_p99(json, 1.0, true).to_string()).unwrap();
    let cases: [(&PathBuf, &[&str], i32); 7] = [
        (&new, &[], 0),
        (&new, &["--fail-if", "p99>+10%"], 1),
        (&new, &["--fail-if", "p99>+30%"], 0),
        (&new, &["--fail-if", "p50>+1%,errors>+0", "--fail-if", "p99>+30%"], 0),
        (&new, &["--fail-if", "p98>+10%"], 2),
        (&limited, &["--fail-if", "p99>+10%"], 3),
        (&limited, &[], 0),
    ];
    for (new, options, code) in cases {
        let output = compare(&base, new, options);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {output:?}");
    }
    let output = compare(&base, &new, &["--fail-if", "p99>+10%"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("+20.0%"), "{text}");
    assert!(text.contains("failed      p99>+10%"), "{text}");
    let output = compare(&base, Path::new("/nowhere/at/all"), &["--fail-if", "p99"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/nowhere/at/all"), "{text}");
    assert!(text.contains("invalid condition `p99`"), "{text}");
}
