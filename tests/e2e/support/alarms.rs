//! Alarms in the status, the metrics and the log.

use serde_json::Value;

use crate::support::http::Wire;
use crate::support::node::{Node, wait_until};

/// Returns the alarms that are on.
pub(crate) fn alarms(status: &Value) -> Vec<&str> {
    let all = status["alarms"].as_array().expect("a list of alarms").iter();
    all.filter(|alarm| alarm["cleared"].is_null()).map(|alarm| alarm["name"].as_str().expect("a name")).collect()
}

/// Waits until an alarm is on, and until metrics and log know of it as well.
pub(crate) fn is_seen(node: &Node, alarm: &str) {
    wait_until(&format!("the alarm {alarm}"), || alarms(&node.status()).contains(&alarm));
    is_measured_and_logged(node, alarm);
}

pub(crate) fn is_measured_and_logged(node: &Node, alarm: &str) {
    let metric = format!("carom_alarm_active{{alarm=\"{alarm}\"}} 1\n");
    // An alarm may come and go.
    wait_until(&format!("{alarm} in the metrics"), || Wire::open(node.admin).get("/metrics").text().contains(&metric));
    let line = format!("alarm=\"{alarm}\"");
    wait_until(&format!("{alarm} in the log"), || node.log().contains(&line));
}
