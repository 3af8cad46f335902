//! Packets that did not leave the device, and were not to: what no bridge forwards, what no router does,
//! and what was for the device itself.
//!
//! The captures have the last word. Of packets that share a reason none may have left: a bridge that
//! forwards LLDP loses what does not leave.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use tailtap_wire::ethernet::{self, Mac};
use tailtap_wire::inner::Inner;
use tailtap_wire::vlan;

use crate::capture::Content;
use crate::source::{End, Source, ends, frame, macs};

const ARP: u16 = 0x0806;
/// PAUSE and priority-based flow control.
const MAC_CONTROL: u16 = 0x8808;
/// Where ARP has its sender's address of IP, from the ethertype on.
const ARP_SENDER: usize = 16;
/// What groups begin with that end at the next bridge.
const GROUPS: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];
/// Times to live that packets have where they are made.
const FRESH: [u8; 3] = [64, 128, 255];
/// Addresses that packets left for; where there are more, none is taken for the device's own.
const MOST: usize = 1 << 16;

/// Why a packet is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reason {
    /// It is for a group that ends at the next bridge, 01-80-C2-00-00-00 to -0F.
    Group(Mac),
    MacControl,
    /// A router answers it, or does not.
    Arp,
    /// This address is of one link.
    LinkScope(IpAddr),
    /// Its time to live is used up.
    TimeToLive,
}

/// What of a packet bears on whether it is to be forwarded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traits {
    reason: Option<Reason>,
    /// Its source and destination, and by which addresses its sender and its receiver are known.
    macs: Option<[Mac; 2]>,
    from: Option<IpAddr>,
    to: Option<IpAddr>,
    time_to_live: Option<u8>,
}

impl Traits {
    pub fn of(content: Content<'_>) -> Self {
        let Some((bytes, link)) = frame(content) else { return Self::default() };
        let mut traits = Self { macs: macs(bytes, link), ..Self::default() };
        let group = |to: Mac| to[..5] == GROUPS && to[5] < 16;
        if let Some([_, to]) = traits.macs.filter(|macs| group(macs[1])) {
            traits.reason = Some(Reason::Group(to));
        } else if let Some([End::Ip(from), End::Ip(to)]) = ends(bytes, link)
            && let Some(inner) = Inner::of(bytes, link).filter(|inner| inner.tunnels == 0)
        {
            let time_to_live = bytes[inner.network + if inner.v6 { 7 } else { 8 }];
            let used_up = (time_to_live <= 1).then_some(Reason::TimeToLive);
            let bound = is_of_a_link(from) || is_of_a_link(to);
            traits.reason = if bound { Some(Reason::LinkScope(to)) } else { used_up };
            (traits.from, traits.to) = (Some(from), Some(to));
            traits.time_to_live = Some(time_to_live);
        } else if traits.macs.is_some() {
            let mut behind = bytes.get(ethernet::ADDRESSES_LEN..).unwrap_or_default();
            let number = |bytes: &[u8]| bytes.first_chunk().map(|&two| u16::from_be_bytes(two));
            while number(behind).is_some_and(vlan::is_tag) {
                behind = behind.get(vlan::LEN..).unwrap_or_default();
            }
            traits.reason = match number(behind) {
                Some(ARP) => Some(Reason::Arp),
                Some(MAC_CONTROL) => Some(Reason::MacControl),
                _ => None,
            };
            if traits.reason == Some(Reason::Arp) {
                let sender = behind.get(ARP_SENDER..).and_then(|rest| rest.first_chunk::<4>());
                traits.from = sender.map(|&octets| Ipv4Addr::from(octets).into());
            }
        }
        traits
    }

    /// Whether whoever sent it made it: that a packet was not forwarded shows.
    fn is_fresh(&self) -> bool {
        matches!(self.reason, Some(Reason::Arp | Reason::LinkScope(_)))
            || self.time_to_live.is_some_and(|left| FRESH.contains(&left))
    }

    fn is_from(&self, macs: &HashSet<Mac>) -> bool {
        self.macs.is_some_and(|[from, _]| macs.contains(&from))
    }
}

fn is_of_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.octets()[..3] == [224, 0, 0] || v4.is_broadcast() || v4.is_link_local()
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            first & 0xffc0 == 0xfe80 || matches!(first & 0xff0f, 0xff01 | 0xff02)
        }
    }
}

/// What became of a packet that did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    NotForwarded,
    ToDevice,
}

/// What the packets of a capture show that did leave.
pub(super) struct Passed {
    /// Whether the device is a router: it changes the time to live.
    routes: bool,
    reasons: HashSet<Reason>,
    /// Where packets were sent that left: of a router, its own address on the link.
    macs: HashSet<Mac>,
    to: HashSet<IpAddr>,
}

impl Passed {
    /// Nothing so far, of a device that `routes` or not.
    pub fn new(routes: bool) -> Self {
        Self { routes, reasons: HashSet::new(), macs: HashSet::new(), to: HashSet::new() }
    }

    /// Whether it bears on packets that did not leave what else did.
    pub fn matters(&self, packets: &[Traits]) -> bool {
        self.routes || packets.iter().any(|one| one.reason.is_some())
    }

    /// Adds a packet that left.
    pub fn add(&mut self, content: Content<'_>) {
        let traits = Traits::of(content);
        self.reasons.extend(traits.reason);
        if self.routes && traits.reason.is_none() && self.to.len() < MOST {
            self.to.extend(traits.to);
            self.macs.extend(traits.macs.filter(|_| traits.to.is_some()).map(|macs| macs[1]));
        }
    }

    /// What became of packets that did not leave. `source` is the capture that they are in.
    pub fn judge(&self, packets: &[Traits], source: &Source) -> Vec<Fate> {
        let asked =
            |one: &Traits| one.to.filter(|to| one.reason.is_none() && !self.to.contains(to));
        // Of too many addresses nobody knows which had packets that left.
        let knows = self.routes && self.to.len() < MOST;
        let own = match knows && packets.iter().any(|one| asked(one).is_some()) {
            true => self.own(source),
            false => HashSet::new(),
        };
        let judge = |one: &Traits| match one.reason {
            Some(reason) if self.reasons.contains(&reason) => Fate::Lost,
            Some(Reason::Group(_) | Reason::MacControl) => Fate::NotForwarded,
            Some(_) if self.routes => Fate::NotForwarded,
            None if asked(one).is_some_and(|to| own.contains(&to)) => Fate::ToDevice,
            // Its own packets came to nobody.
            _ if self.routes && one.is_from(&self.macs) => Fate::NotForwarded,
            _ => Fate::Lost,
        };
        packets.iter().map(judge).collect()
    }

    /// The router's own addresses: those of packets that it made.
    fn own(&self, source: &Source) -> HashSet<IpAddr> {
        const AT_ONCE: usize = 1 << 16;
        let mut own = HashSet::new();
        let Ok(mut capture) = source.whole().open() else { return own };
        while let Ok(true) = capture.read(AT_ONCE, |packet| {
            let traits = Traits::of(packet.content);
            if traits.is_from(&self.macs) && traits.is_fresh() && own.len() < MOST {
                own.extend(traits.from);
            }
        }) {}
        own
    }
}
