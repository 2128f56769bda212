//! Arbitrary bytes, and valid frames with changes: none panics, and nothing is left behind.

#[path = "../../../fuzz/net_checks.rs"]
mod net_checks;

use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a frame of a client of IPv4.
fn frame(flags: u8, seq: u32, payload: &[u8], options: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let tcp_len = 20 + options.len();
    let total = (20 + tcp_len + payload.len()) as u16;
    frame.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend([0x10, 0, 0, 80]);
    frame.extend(seq.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend([(tcp_len as u8 / 4) << 4, flags, 0x40, 0, 0, 0, 0, 0]);
    frame.extend(options);
    frame.extend(payload);
    frame
}

/// Returns a step of a conversation: mostly what fits, now and then with a changed byte.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let flags =
        prop_oneof![4 => Just(0x10_u8), 2 => Just(0x18), 1 => Just(0x11), 1 => Just(2), 1 => Just(4), 1 => any::<u8>()];
    let offset = prop_oneof![4 => 1_u32..40, 1 => Just(0), 1 => any::<u32>()];
    let change = prop_oneof![5 => Just(None), 1 => any::<(u8, u8)>().prop_map(Some)];
    let options = prop_oneof![3 => Just(vec![]), 1 => vec(any::<u8>(), 12..=12)];
    (any::<u8>(), flags, offset, vec(any::<u8>(), 0..30), options, change).prop_map(
        |(step, flags, offset, payload, options, change)| {
            let mut bytes = frame(flags, 1000_u32.wrapping_add(offset), &payload, &options);
            if let Some((at, by)) = change {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= by;
            }
            packed(step | 0x80, &bytes)
        },
    )
}

fn packed(step: u8, frame: &[u8]) -> Vec<u8> {
    let mut packed = vec![step];
    packed.extend((frame.len() as u16).to_be_bytes());
    packed.extend(frame);
    packed
}

proptest! {
    #[test]
    fn arbitrary_bytes_leave_nothing(input in vec(any::<u8>(), 0..2000)) {
        net_checks::check_frames(&input);
        net_checks::check_tunnels(&input);
    }

    #[test]
    fn changed_conversations_leave_nothing(steps in vec(step(), 1..60)) {
        let mut input = packed(0, &frame(2, 1000, &[], &[2, 4, 1, 0]));
        input.extend(packed(0x80, &frame(0x10, 1001, &[], &[])));
        steps.iter().for_each(|step| input.extend(step));
        net_checks::check_frames(&input);
    }
}
