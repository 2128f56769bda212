//! Errors of saves of destination rules.

use hyper::StatusCode;
use serde_json::Value;

use super::Problem;

impl Problem {
    /// 409: other rules apply than those that a save replaces. `rules` describes those that apply.
    pub(in crate::api) fn rules_changed(rules: Value) -> Problem {
        let detail = "The destination rules have changed since you read them, and nothing was saved. The member \"rules\" has the rules that apply. Compare them with yours, and save again with their version.";
        Problem::own(StatusCode::CONFLICT, "rules-changed", "Rules have changed", detail).and("rules", rules)
    }

    /// 503: a save of destination rules cannot be confirmed.
    pub(in crate::api) fn rules_in_doubt(why: &str) -> Problem {
        Problem::in_doubt(format!(
            "The save cannot be confirmed: {why}. Read the destination rules before you try again."
        ))
    }
}
