//! Packets of a flow in their order, where some carry together what others carry apart and no number that
//! both sides know says which: datagrams of UDP, and TCP behind a proxy.
//!
//! A packet behind the device begins where a packet before it begins with the same bytes, or else where
//! the one before it in its flow ended. From there on bytes are counted.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::equals::AsItIs;
use crate::key::Segment;

type By<T> = HashMap<u64, T, BuildHasherDefault<AsItIs>>;

/// A packet before the device.
struct Link {
    time: u64,
    key: u64,
    head: u64,
    bytes: u32,
}

/// The packets of a flow before the device, and how many came before these.
#[derive(Default)]
struct Chain {
    links: VecDeque<Link>,
    gone: usize,
}

/// A place in a flow before the device: its packet, and how many of its bytes are yet to come, if some came.
#[derive(Clone, Copy)]
struct Place {
    flow: u64,
    packet: usize,
    rest: Option<u32>,
}

/// Packets before the device by their flows and by their first bytes.
#[derive(Default)]
pub(crate) struct Chains {
    flows: By<Chain>,
    /// Where packets begin with the same bytes, nobody knows which.
    heads: By<Option<Place>>,
    /// Where flows behind the device go on.
    next: By<Place>,
}

impl Chains {
    /// Adds a packet before the device.
    pub fn push(&mut self, key: u64, time: u64, segment: &Segment) {
        let &Segment { flow, head, bytes, .. } = segment;
        let chain = self.flows.entry(flow).or_default();
        let place = Place { flow, packet: chain.gone + chain.links.len(), rest: None };
        self.heads.entry(head).and_modify(|known| *known = None).or_insert(Some(place));
        chain.links.push_back(Link { time, key, head, bytes });
    }

    /// Forgets the packets of a flow until a time.
    pub fn forget(&mut self, flow: u64, time: u64) {
        let Some(chain) = self.flows.get_mut(&flow) else { return };
        while let Some(link) = chain.links.front().filter(|link| link.time <= time) {
            self.heads.remove(&link.head);
            chain.links.pop_front();
            chain.gone += 1;
        }
        if chain.links.is_empty() {
            self.flows.remove(&flow);
        }
    }

    /// The packets before the device that are whole with one behind it, and whether a part of another is in
    /// that.
    pub fn follow(&mut self, left: &Segment) -> (Vec<u64>, bool) {
        let mut whole = Vec::new();
        let goes_on = self.next.remove(&left.flow);
        let begins = self.heads.get(&left.head).copied().flatten().or(goes_on);
        let Some(Place { flow, mut packet, mut rest }) = begins else { return (whole, false) };
        let mut bytes = left.bytes;
        let Some(chain) = self.flows.get(&flow) else { return (whole, false) };
        let link = |packet: usize| chain.links.get(packet.checked_sub(chain.gone)?);
        while bytes > 0
            && let Some(found) = link(packet)
        {
            let of = rest.take().unwrap_or(found.bytes);
            if of > bytes {
                rest = Some(of - bytes);
                break;
            }
            whole.push(found.key);
            bytes -= of;
            packet += 1;
        }
        // What comes next of UDP may be anything.
        if rest.is_some() || left.is_of_tcp() {
            self.next.insert(left.flow, Place { flow, packet, rest });
        }
        (whole, rest.is_some())
    }
}
