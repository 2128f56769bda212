//! Kernel bypass in `carom status`: a line for the node, and a table of the cores that have it.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::text::{cores, grouped, number, plain, rate, write_table};

/// Columns of the table. Rates are averages between the two samples; the others count since the start.
const TITLES: [&str; 15] = [
    "core",
    "queue",
    "mode",
    "frames in/s",
    "frames out/s",
    "open",
    "retransmitted",
    "timeouts",
    "SYN cookies",
    "resets in",
    "resets out",
    "out of order",
    "dropped",
    "kernel drops",
    "ring full",
];

/// Writes the table of the cores that have bypass; nothing if none has.
pub(super) fn render_cores(page: &mut String, before: &Value, now: &Value, time: Duration, width: Option<usize>) {
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    for (index, core) in cores(now).iter().enumerate().filter(|(_, core)| core["bypass"].is_object()) {
        let bypass = &core["bypass"];
        let earlier = cores(before).get(index).map_or(&Value::Null, |core| &core["bypass"]);
        let per_second = |name: &str| grouped(rate(number(earlier, name), number(bypass, name), time));
        let count = |name: &str| grouped(number(bypass, name));
        let copies = if bypass["zeroCopy"] == true { "zero copy" } else { "copies" };
        rows.push(vec![
            grouped(number(core, "/core")),
            count("/queue"),
            format!("{}, {copies}", plain(bypass["mode"].as_str().unwrap_or("?"))),
            per_second("/framesIn"),
            per_second("/framesOut"),
            count("/open"),
            count("/retransmissions"),
            count("/timeouts"),
            count("/cookiesSent"),
            count("/resetsReceived"),
            grouped(number(bypass, "/resetsSentUnknown") + number(bypass, "/resetsSentAbort")),
            count("/outOfOrder"),
            count("/dropped"),
            count("/kernelDrops"),
            count("/ringFull"),
        ]);
    }
    if rows.len() > 1 {
        write_table(page, &rows, width);
    }
}

/// Writes whether bypass is in use; nothing if the settings name no interface.
pub(super) fn render_node(page: &mut String, now: &Value) {
    let bypass = &now["bypass"];
    let Some(interface) = bypass["interface"].as_str().map(plain) else { return };
    // Writing to a string cannot fail.
    let _ = match bypass["obstacle"].as_str() {
        None => writeln!(page, "bypass  in use on {interface}"),
        Some(obstacle) => {
            writeln!(page, "bypass  NOT IN USE on {interface}, serving over the kernel: {}", plain(obstacle))
        }
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cores_with_bypass_have_a_row() {
        let core = |frames: u64| {
            json!({"core": 1, "bypass": {"queue": 1, "mode": "native", "zeroCopy": true,
            "framesIn": frames, "resetsSentUnknown": 2, "resetsSentAbort": 3}})
        };
        let kernel = json!({"core": 0, "bypass": null});
        let before = json!({"cores": [kernel, core(1_000)]});
        let now = json!({"cores": [kernel, core(5_000)], "bypass": {"interface": "eth0", "obstacle": null}});
        let mut page = String::new();
        render_cores(&mut page, &before, &now, Duration::from_secs(2), None);
        render_node(&mut page, &now);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines.len(), 4, "{page}");
        let cells: Vec<&str> = lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[..5], ["1", "1", "native, zero copy", "2,000", "0"], "{page}");
        assert_eq!(cells[10], "5", "{page}");
        assert_eq!(lines[3], "bypass  in use on eth0");
    }

    #[test]
    fn obstacle_is_shown() {
        let now = json!({"cores": [], "bypass": {"interface": "eth0", "obstacle": "the process lacks CAP_BPF"}});
        let mut page = String::new();
        render_cores(&mut page, &now, &now, Duration::from_secs(1), None);
        render_node(&mut page, &now);
        assert_eq!(page, "bypass  NOT IN USE on eth0, serving over the kernel: the process lacks CAP_BPF\n");
        let mut page = String::new();
        render_node(&mut page, &json!({"bypass": null}));
        assert_eq!(page, "");
    }
}
