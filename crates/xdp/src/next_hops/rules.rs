//! Policy rules (`ip rule`): the tables from which the route of a packet comes. No I/O.
//!
//! A rule is compared with what packets of carom are for the kernel: TCP of this machine, without a mark and without a
//! service class. Rules that select by ports or users, or that jump, are not followed; [`PolicyRule::parse`] tells.

use std::net::IpAddr;

use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, IpProtocol};

use super::prefix::{bits_of, masked};

/// The table of all routes that name no other.
pub(super) const MAIN: u32 = 254;

/// The table of the machine's own addresses, which are nobody's next hop.
const LOCAL: u32 = 255;

/// Most rules of a family. A look-up compares with each.
const RULES_MAX: usize = 1_024;

/// The effect of a rule on the packets that it matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RuleEffect {
    /// Takes a route of the table, unless its prefix is as short as `suppressed_len` or shorter. Without a route, the
    /// next rule is asked.
    LookUp { table: u32, suppressed_len: Option<u32> },
    /// Drops the packets.
    Refuse,
    /// Leaves the packets to the next rule.
    Nothing,
}

/// A policy rule of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PolicyRule {
    priority: u32,
    /// The first bits of the source, and their number.
    source: (u128, u8),
    destination: (u128, u8),
    is_inverted: bool,
    /// False if another selector leaves out the packets of carom.
    fits: bool,
    effect: RuleEffect,
}

impl PolicyRule {
    /// Returns a rule, and whether it is of IPv6; `None` for one that is not followed.
    pub(crate) fn parse(message: &RuleMessage) -> Option<(bool, PolicyRule)> {
        let header = &message.header;
        let (mut table, mut suppressed_len) = (u32::from(header.table), None);
        let (mut mark, mut mask) = (0, u32::MAX);
        let mut rule = PolicyRule {
            priority: 0,
            source: (0, header.src_len),
            destination: (0, header.dst_len),
            is_inverted: header.flags.contains(RuleFlags::Invert),
            fits: header.tos == 0,
            effect: RuleEffect::Nothing,
        };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Source(address) => rule.source.0 = bits_of(*address).1,
                RuleAttribute::Destination(address) => rule.destination.0 = bits_of(*address).1,
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(number) => table = *number,
                // The kernel says -1 where nothing is suppressed.
                RuleAttribute::SuppressPrefixLen(len) => suppressed_len = Some(*len).filter(|len| *len != u32::MAX),
                RuleAttribute::FwMark(number) => mark = *number,
                RuleAttribute::FwMask(number) => mask = *number,
                RuleAttribute::Iifname(name) => rule.fits &= name == "lo",
                RuleAttribute::TunId(id) => rule.fits &= *id == 0,
                RuleAttribute::IpProtocol(protocol) => rule.fits &= *protocol == IpProtocol::Tcp,
                RuleAttribute::Oifname(_) | RuleAttribute::L3MDev(true) => rule.fits = false,
                RuleAttribute::UidRange(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_)
                | RuleAttribute::SuppressIfGroup(_) => return None,
                _ => {}
            }
        }
        rule.fits &= mark & mask == 0;
        rule.effect = match header.action {
            RuleAction::ToTable if table == LOCAL => RuleEffect::Nothing,
            RuleAction::ToTable => RuleEffect::LookUp { table, suppressed_len },
            RuleAction::Blackhole | RuleAction::Unreachable | RuleAction::Prohibit => RuleEffect::Refuse,
            RuleAction::Nop => RuleEffect::Nothing,
            _ => return None,
        };
        Some((header.family == AddressFamily::Inet6, rule))
    }

    fn matches(&self, source: u128, destination: u128) -> bool {
        let is_within = |bits: u128, (prefix, len): (u128, u8)| masked(bits, len) == masked(prefix, len);
        let is_selected = is_within(source, self.source) && is_within(destination, self.destination);
        (self.fits && is_selected) != self.is_inverted
    }
}

/// The rules of both families.
#[derive(Debug, Default)]
pub(super) struct PolicyRules {
    /// In the order in which the kernel asks them; by family (true for IPv6).
    rules: [Vec<PolicyRule>; 2],
}

impl PolicyRules {
    /// Takes in a rule that the kernel has.
    pub(super) fn add(&mut self, message: &RuleMessage) {
        let Some((is_v6, rule)) = PolicyRule::parse(message) else { return };
        let rules = &mut self.rules[usize::from(is_v6)];
        // A rule that is made during a dump comes twice.
        if rules.len() < RULES_MAX && !rules.contains(&rule) {
            let at = rules.partition_point(|known| known.priority <= rule.priority);
            rules.insert(at, rule);
        }
    }

    /// Takes out a rule that the kernel has removed.
    pub(super) fn remove(&mut self, message: &RuleMessage) {
        let Some((is_v6, rule)) = PolicyRule::parse(message) else { return };
        self.rules[usize::from(is_v6)].retain(|known| *known != rule);
    }

    /// Returns what the kernel tries for packets, in order, until one leads to a route. A kernel without rules uses the
    /// table `main`.
    pub(super) fn effects(&self, source: IpAddr, destination: IpAddr) -> impl Iterator<Item = RuleEffect> {
        let ((is_v6, destination), source) = (bits_of(destination), bits_of(source).1);
        let rules = &self.rules[usize::from(is_v6)];
        let usual = rules.is_empty().then_some(RuleEffect::LookUp { table: MAIN, suppressed_len: None });
        let matching = rules.iter().filter(move |rule| rule.matches(source, destination)).map(|rule| rule.effect);
        usual.into_iter().chain(matching)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::rule::RulePortRange;

    use super::*;

    fn rule(priority: u32, table: u8, attributes: &[RuleAttribute]) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.table = table;
        message.header.action = RuleAction::ToTable;
        message.attributes = attributes.to_vec();
        message.attributes.push(RuleAttribute::Priority(priority));
        message.attributes.push(RuleAttribute::SuppressPrefixLen(u32::MAX));
        message
    }

    fn from(mut rule: RuleMessage, address: &str, len: u8) -> RuleMessage {
        rule.header.src_len = len;
        rule.attributes.push(RuleAttribute::Source(address.parse().unwrap()));
        rule
    }

    /// Returns the tables that packets from an address try.
    fn tables(rules: &PolicyRules, source: &str) -> Vec<u32> {
        let effects = rules.effects(source.parse().unwrap(), "203.0.113.9".parse().unwrap());
        let tables = effects.filter_map(|effect| match effect {
            RuleEffect::LookUp { table, .. } => Some(table),
            _ => None,
        });
        tables.collect()
    }

    #[test]
    fn rules_are_asked_by_priority() {
        let mut rules = PolicyRules::default();
        assert_eq!(tables(&rules, "10.0.0.1"), [254], "without rules");
        let second = from(rule(100, 12, &[]), "10.0.0.0", 8);
        for message in [
            rule(32_766, 254, &[]),
            rule(32_767, 253, &[]),
            rule(0, 255, &[]),
            second.clone(),
            from(rule(50, 11, &[]), "10.0.0.1", 32),
            second.clone(),
        ] {
            rules.add(&message);
        }
        assert_eq!(tables(&rules, "10.0.0.1"), [11, 12, 254, 253]);
        assert_eq!(tables(&rules, "10.0.0.2"), [12, 254, 253]);
        assert_eq!(tables(&rules, "192.0.2.1"), [254, 253]);
        rules.remove(&second);
        assert_eq!(tables(&rules, "10.0.0.2"), [254, 253]);
    }

    #[test]
    fn selectors_leave_out_other_packets() {
        let mut inverted = from(rule(1, 9, &[]), "10.0.0.0", 8);
        inverted.header.flags = RuleFlags::Invert;
        let mut of_class = rule(1, 9, &[]);
        of_class.header.tos = 16;
        for (message, is_matched) in [
            (rule(1, 9, &[RuleAttribute::FwMark(7)]), false),
            (rule(1, 9, &[RuleAttribute::FwMark(0x100), RuleAttribute::FwMask(0xff)]), true),
            (rule(1, 9, &[RuleAttribute::Iifname("eth1".to_owned())]), false),
            (rule(1, 9, &[RuleAttribute::Iifname("lo".to_owned())]), true),
            (rule(1, 9, &[RuleAttribute::Oifname("eth1".to_owned())]), false),
            (rule(1, 9, &[RuleAttribute::L3MDev(true)]), false),
            (rule(1, 9, &[RuleAttribute::IpProtocol(IpProtocol::Udp)]), false),
            (rule(1, 9, &[RuleAttribute::IpProtocol(IpProtocol::Tcp)]), true),
            (of_class, false),
            (inverted, false),
        ] {
            let mut rules = PolicyRules::default();
            rules.add(&message);
            assert_eq!(tables(&rules, "10.0.0.1") == [9], is_matched, "{message:?}");
        }
        let ports = RuleAttribute::SourcePortRange(RulePortRange { start: 80, end: 80 });
        assert_eq!(PolicyRule::parse(&rule(1, 9, &[ports])), None, "not followed");
    }

    #[test]
    fn refusing_rules_come_in_their_order() {
        let mut refusing = from(rule(1, 0, &[]), "10.0.0.1", 32);
        refusing.header.action = RuleAction::Prohibit;
        let mut rules = PolicyRules::default();
        rules.add(&rule(32_766, 254, &[]));
        rules.add(&refusing);
        let effects: Vec<_> = rules.effects("10.0.0.1".parse().unwrap(), "203.0.113.9".parse().unwrap()).collect();
        assert_eq!(effects[0], RuleEffect::Refuse);
    }
}
