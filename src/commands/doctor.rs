//! `carom doctor`: checks of a machine and of the settings of a node, each problem with the command that solves it.
//!
//! The checks of a start are those of [`crate::startup::preflight`]. Further ones concern what a start cannot refuse:
//! slow disks, interrupts, names, certificates that expire soon, clocks and proxies.

mod finding;
mod machine;
mod network;
mod running;

use std::path::Path;

use serde_json::{Value, json};

use self::finding::{CheckResult, CheckSeverity};
use self::running::RunningNode;
use super::cli::DoctorArgs;
use super::output::print;
use super::terminal::{has_colours, json_text, plain};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Flags, Settings, Warning, environment};
use carom_telemetry::readable;

/// Runs all checks and prints their findings.
///
/// # Errors
/// Every mistake in the settings, without which nothing can be checked, and [`Reason::Incomplete`] if a check found an
/// error.
pub fn run(arguments: &DoctorArgs) -> Result<(), Exit> {
    let flags = Flags { data_dir: arguments.place.data_dir.clone(), ..Flags::default() };
    let (mut settings, warnings) = Settings::load(arguments.place.config.as_deref(), environment(), flags)?;
    let mut findings: Vec<CheckResult> =
        warnings.into_iter().map(|Warning(text)| CheckResult::warning(text, "correct or remove it")).collect();
    if let Some(node) = RunningNode::find(&arguments.place) {
        // Unless one is asked for, a directory that does not exist says nothing of the node that runs.
        let other = node.in_place_of(&settings.data_dir).filter(|_| arguments.place.data_dir.is_none());
        let other = other.map(Path::to_owned);
        findings.push(node.compare(&settings.data_dir, other.is_some()));
        settings.data_dir = other.unwrap_or(settings.data_dir);
    }
    findings.extend(machine::findings(&settings));
    findings.extend(network::findings(&settings));
    if arguments.json {
        print(&json_text(&Value::Array(findings.iter().map(as_json).collect())));
    } else {
        print(&rendered(&findings, has_colours()));
    }
    let count = |health: CheckSeverity| findings.iter().filter(|finding| finding.health == health).count() as u64;
    let (errors, warnings) = (count(CheckSeverity::Error), count(CheckSeverity::Warning));
    if errors == 0 {
        return Ok(());
    }
    let what = format!("{}, {}", readable::count(errors, "error"), readable::count(warnings, "warning"));
    Err(Exit::new(Reason::Incomplete, what).with_remedy("each line above says what to do"))
}

fn name(health: CheckSeverity) -> &'static str {
    match health {
        CheckSeverity::Ok => "ok",
        CheckSeverity::Warning => "warning",
        CheckSeverity::Error => "error",
    }
}

fn as_json(finding: &CheckResult) -> Value {
    let CheckResult { health, text, remedy } = finding;
    json!({"result": name(*health), "text": text, "remedy": if remedy.is_empty() { None } else { Some(remedy) }})
}

/// Lays findings out, one on a line, with the remedy below.
fn rendered(findings: &[CheckResult], has_colours: bool) -> String {
    let mut page = String::new();
    for CheckResult { health, text, remedy } in findings {
        let colour = match health {
            CheckSeverity::Ok => "32",
            CheckSeverity::Warning => "33",
            CheckSeverity::Error => "31",
        };
        let name = format!("{:<7}", name(*health));
        let name = if has_colours { format!("\x1b[{colour}m{name}\x1b[0m") } else { name };
        page.push_str(&format!("{name}  {}\n", plain(&text.replace('\n', "; "))));
        if !remedy.is_empty() {
            page.push_str(&format!("         {}\n", plain(remedy)));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_say_what_to_do() {
        let exit = Exit::new(Reason::DiskFull, "1 KiB\nleft").with_remedy("free 5 MiB");
        let findings =
            [CheckResult::ok("fine"), CheckResult::warning("slow\u{1b}[1m", "use an SSD"), CheckResult::of(Err(exit))];
        assert_eq!(
            rendered(&findings, false),
            "ok       fine\nwarning  slow[1m\n         use an SSD\nerror    1 KiB; left\n         free 5 MiB\n"
        );
        assert!(rendered(&findings, true).starts_with("\x1b[32mok     \x1b[0m  fine\n"));
        assert_eq!(as_json(&findings[0]), json!({"result": "ok", "text": "fine", "remedy": null}));
    }
}
