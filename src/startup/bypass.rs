//! The checks of kernel bypass, for the start of a node and for `carom config check`.

use std::io;

use carom_limits::BYPASS_FRAMES;
use carom_settings::{BypassMode, Settings};
use carom_xdp::config::ZeroCopy;
use carom_xdp::preflight::{self, BypassPlan, Finding};
use carom_xdp::program::AttachMode;

/// Returns what the settings ask of the machine; `None` if they name no interface.
pub(crate) fn plan(settings: &Settings) -> Option<BypassPlan> {
    let bypass = &settings.bypass;
    Some(BypassPlan {
        interface: bypass.interface.clone()?,
        mode: match bypass.mode {
            BypassMode::Auto => AttachMode::Auto,
            BypassMode::Native => AttachMode::Native,
            BypassMode::Generic => AttachMode::Generic,
        },
        zero_copy: match bypass.zero_copy {
            None => ZeroCopy::Auto,
            Some(true) => ZeroCopy::On,
            Some(false) => ZeroCopy::Off,
        },
        cores: settings.cores.cpus.len() as u32,
        queues: bypass.queues.clone(),
        frames: BYPASS_FRAMES,
    })
}

/// Compares a plan with this process and this machine. Returns the findings, the most serious first.
///
/// # Errors
/// If the kernel does not tell the capabilities of the process.
pub(crate) fn findings(plan: &BypassPlan) -> io::Result<Vec<Finding>> {
    Ok(preflight::findings(plan, &preflight::read_machine(&plan.interface)?))
}
