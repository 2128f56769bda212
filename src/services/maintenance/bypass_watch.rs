//! The watch of kernel bypass. It raises alarms when the XDP program is no longer attached, when its interface is down,
//! and when the kernel drops frames. Runs on the pulse thread, once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_telemetry::alarms::Alarm;
use carom_telemetry::bypass::BypassState;
use carom_telemetry::stats::{CoreStats, NodeStats};
use carom_xdp::interface::InterfaceState;

/// Time without a dropped frame after which the alarm clears.
const CALM: Duration = Duration::from_secs(60);

/// The state of the watch between two looks.
#[derive(Default)]
pub(super) struct BypassWatch {
    /// Frames dropped until the last look.
    dropped: u64,
    /// The instant of the last look that saw a drop.
    last_drop: Option<Instant>,
}

impl BypassWatch {
    /// Compares the interface and the counters with those of a node whose bypass is in use.
    pub(super) fn look(&mut self, stats: &NodeStats, cores: &[Arc<CoreStats>], now: Instant) {
        let Some(state) = stats.bypass.get() else { return };
        let Some((interface, program)) = state.attached else { return };
        // Without an answer of the kernel, everything stays as it was.
        if let Ok(link) = InterfaceState::read(interface) {
            check_link(stats, state, link, program);
        }
        self.look_at_drops(stats, state, cores, now);
    }

    /// Raises the alarm if the kernel dropped more frames, and clears it after [`CALM`] without any.
    fn look_at_drops(&mut self, stats: &NodeStats, state: &BypassState, cores: &[Arc<CoreStats>], now: Instant) {
        let sum = |count: fn(&CoreStats) -> u64| cores.iter().map(|core| count(core)).sum::<u64>();
        let ring_full = sum(|core| core.bypass.receive_ring_full.get());
        let fill_empty = sum(|core| core.bypass.fill_ring_empty.get());
        let dropped = ring_full + fill_empty;
        if dropped > self.dropped {
            (self.dropped, self.last_drop) = (dropped, Some(now));
            let text = format!(
                "a core is too slow for the frames of {}; the kernel has dropped {dropped} since the start (ring of \
                 received frames full: {ring_full}, no frame to receive into: {fill_empty}); add cores and queues",
                state.interface
            );
            stats.alarms.raise(Alarm::BypassDrops, text);
        } else if self.last_drop.is_some_and(|last| now.duration_since(last) >= CALM) {
            self.last_drop = None;
            stats.alarms.clear(Alarm::BypassDrops);
        }
    }
}

/// Compares the interface with that of a program which is attached. `link` is `None` if the interface is gone.
fn check_link(stats: &NodeStats, state: &BypassState, link: Option<InterfaceState>, program: u32) {
    let name = &state.interface;
    match link {
        Some(link) if link.is_up => stats.alarms.clear(Alarm::BypassInterfaceDown),
        Some(_) => {
            let text = format!("{name} is down or has no carrier; run `ip link set {name} up`, and check the cable");
            stats.alarms.raise(Alarm::BypassInterfaceDown, text);
        }
        // It cannot come up again: a new one of the name is another interface.
        None => stats.alarms.clear(Alarm::BypassInterfaceDown),
    }
    if state.obstacle().is_some() || link.is_some_and(|link| link.program == Some(program)) {
        return;
    }
    let obstacle = match link {
        Some(_) => format!("the XDP program was detached from {name}"),
        None => format!("interface {name} was removed"),
    };
    let text =
        format!("kernel bypass has ended, serving over the kernel: {obstacle}; restart carom to use bypass again");
    stats.alarms.raise(Alarm::BypassOff, text);
    state.set_obstacle(Some(obstacle));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> NodeStats {
        let stats = NodeStats::default();
        stats.bypass.set(BypassState::attached("eth0", 2, 7)).unwrap();
        stats
    }

    #[test]
    fn lost_program_raises_an_alarm_that_stays() {
        for link in [
            None,
            Some(InterfaceState { is_up: true, program: None }),
            Some(InterfaceState { is_up: true, program: Some(8) }),
        ] {
            let stats = stats();
            let state = stats.bypass.get().unwrap();
            let ours = Some(InterfaceState { is_up: true, program: Some(7) });
            check_link(&stats, state, ours, 7);
            assert!(!stats.alarms.is_on(Alarm::BypassOff));
            assert!(state.obstacle().is_none());
            check_link(&stats, state, link, 7);
            check_link(&stats, state, ours, 7);
            assert!(stats.alarms.is_on(Alarm::BypassOff), "{link:?}");
            assert!(state.obstacle().unwrap().contains("eth0"), "{link:?}");
        }
    }

    #[test]
    fn interface_that_is_down_raises_an_alarm_until_it_is_up() {
        let stats = stats();
        let state = stats.bypass.get().unwrap();
        check_link(&stats, state, Some(InterfaceState { is_up: false, program: Some(7) }), 7);
        assert!(stats.alarms.is_on(Alarm::BypassInterfaceDown));
        assert!(!stats.alarms.is_on(Alarm::BypassOff));
        check_link(&stats, state, Some(InterfaceState { is_up: true, program: Some(7) }), 7);
        assert!(!stats.alarms.is_on(Alarm::BypassInterfaceDown));
    }

    #[test]
    fn dropped_frames_raise_an_alarm_until_it_is_calm() {
        let (stats, cores, start) = (stats(), [Arc::new(CoreStats::default())], Instant::now());
        let mut watch = BypassWatch::default();
        let mut is_on_after = |seconds| {
            watch.look_at_drops(&stats, stats.bypass.get().unwrap(), &cores, start + Duration::from_secs(seconds));
            stats.alarms.is_on(Alarm::BypassDrops)
        };
        assert!(!is_on_after(0));
        cores[0].bypass.receive_ring_full.set(3);
        assert!(is_on_after(1));
        assert!(is_on_after(60));
        assert!(!is_on_after(61));
    }
}
