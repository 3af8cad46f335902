//! The packets of several flows, in the order in which they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use tailtap_wire::moonsniff::Kind;

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// When it is due, by the clock.
    pub(super) due: u64,
    /// Its number among the measured packets of its flow, or among those of the warm-up.
    pub(super) id: u32,
    /// Whether it is measured.
    pub(super) kind: Kind,
}

/// The packets of one flow, in the order in which they are due.
pub(super) type Packets = Box<dyn Iterator<Item = Packet>>;

/// Takes the packet that is due next from any of several flows. Of packets that are due together,
/// that of the first flow is taken first.
pub(super) struct Merge {
    flows: Vec<Packets>,
    /// The next packet of each flow.
    heads: Vec<Option<Packet>>,
    /// When that is due, and the flow.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Merge {
    pub(super) fn new(mut flows: Vec<Packets>) -> Self {
        let heads: Vec<_> = flows.iter_mut().map(Iterator::next).collect();
        let due =
            |(flow, head): (usize, &Option<Packet>)| head.map(|head| Reverse((head.due, flow)));
        let next = heads.iter().enumerate().filter_map(due).collect();
        Self { flows, heads, next }
    }

    /// The packet that is due next, and its flow.
    #[inline]
    pub(super) fn peek(&self) -> Option<(usize, Packet)> {
        let &Reverse((_, flow)) = self.next.peek()?;
        self.heads[flow].map(|packet| (flow, packet))
    }

    /// Takes the packet that is due next.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(usize, Packet)> {
        let mut first = self.next.peek_mut()?;
        let Reverse((due, flow)) = &mut *first;
        let flow = *flow;
        let following = self.flows[flow].next();
        match following {
            Some(packet) => *due = packet.due,
            None => drop(PeekMut::pop(first)),
        }
        std::mem::replace(&mut self.heads[flow], following).map(|packet| (flow, packet))
    }

    /// Whether packets of a flow are left.
    pub(super) fn has_more_of(&self, flow: usize) -> bool {
        self.heads[flow].is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets(times: &[u64]) -> Packets {
        let packet =
            |(id, &due): (usize, &u64)| Packet { due, id: id as u32, kind: Kind::Measured };
        Box::new(times.iter().enumerate().map(packet).collect::<Vec<_>>().into_iter())
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_sorted_union(
            mut flows in prop::collection::vec(prop::collection::vec(0..50u64, 0..30), 0..8),
        ) {
            flows.iter_mut().for_each(|times| times.sort_unstable());
            let mut expected: Vec<(u64, usize, u32)> = flows
                .iter()
                .enumerate()
                .flat_map(|(flow, times)| {
                    times.iter().enumerate().map(move |(id, &due)| (due, flow, id as u32))
                })
                .collect();
            expected.sort_unstable();

            let mut merge = Merge::new(flows.iter().map(|times| packets(times)).collect());
            let mut found = Vec::new();
            loop {
                let peeked = merge.peek();
                let taken = merge.take();
                prop_assert_eq!(peeked, taken);
                let Some((flow, packet)) = taken else { break };
                found.push((packet.due, flow, packet.id));
                let left = expected[found.len()..].iter().any(|&(_, other, _)| other == flow);
                prop_assert_eq!(merge.has_more_of(flow), left);
            }
            prop_assert_eq!(found, expected);
        }
    }
}
