//! An invalid field of a request.

use serde_json::Value;

use carom_model::link::fields::{FaultKind, FieldFault, with_value};

/// An invalid field of a request: its name, the fault and the expected value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::api) struct Invalid {
    pub(in crate::api) field: String,
    pub(in crate::api) reason: String,
    /// The kind of the fault, if clients can recognise it.
    pub(in crate::api) kind: Option<FaultKind>,
}

impl Invalid {
    pub(in crate::api) fn new(field: impl Into<String>, reason: impl Into<String>) -> Invalid {
        Invalid { field: field.into(), reason: reason.into(), kind: None }
    }

    /// A field with a fault that clients may recognise.
    pub(in crate::api) fn fault(field: impl Into<String>, fault: FieldFault) -> Invalid {
        Invalid { field: field.into(), reason: fault.reason, kind: fault.kind }
    }

    /// A field whose value is wrong. The reason repeats a short value, but never a destination, which may contain a
    /// password.
    pub(in crate::api) fn value(field: &str, reason: &str, value: &Value) -> Invalid {
        Invalid::new(field, with_value(field, reason, value))
    }
}
