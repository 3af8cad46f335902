//! Packets by the bytes that they carry: a device may merge them, or cut them in pieces.
//!
//! A packet before the device is found behind it where its last byte left, in whatever packet that
//! was. The bytes are followed forwards: behind the first byte of a packet that left is the packet
//! that came with it, and behind that one's last byte the next. Segments of TCP say which bytes these are,
//! and for others the [order of their flow](crate::chains) does.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::chains::Chains;
use crate::edges::{Covered, Edges, Span};
use crate::equals::{AsItIs, Verdict};
use crate::key::Segment;
use crate::losses::Losses;
use crate::matching::{Fates, Finished, Match, Matching};
use crate::table::State;

/// A packet before the device.
#[derive(Clone, Copy)]
struct Waiting {
    time: u64,
    segment: Segment,
    state: State,
    /// Where its rest is expected, when a piece of it has left.
    rest: Option<u64>,
}

/// The packets before the device that can still be matched, by where they begin in their stream.
pub struct Streams {
    packets: HashMap<u64, Waiting, BuildHasherDefault<AsItIs>>,
    /// The packet whose rest is expected at a place.
    rests: HashMap<u64, u64, BuildHasherDefault<AsItIs>>,
    /// Times and keys in the order in which they came.
    order: VecDeque<(u64, u64)>,
    window: u64,
    trim_before: u64,
    span: Span,
    fates: Fates,
    losses: Losses,
    covered: Covered,
    edges: Edges,
    merged: u64,
    /// What is followed by what it carries.
    chains: Chains,
}

impl Streams {
    fn insert(&mut self, key: u64, time: u64, segment: Segment) {
        self.order.push_back((time, key));
        if segment.bytes > 0 {
            self.chains.push(key, time, &segment);
        }
        let waiting = Waiting { time, segment, state: State::Open, rest: None };
        let Some(before) = self.packets.insert(key, waiting) else { return };
        if time.abs_diff(before.time) < self.window {
            // Sent again: nobody knows which of them left.
            self.retire(key, Waiting { state: State::Repeated, ..before });
            if let Some(waiting) = self.packets.get_mut(&key) {
                waiting.state = State::Repeated;
            }
        } else {
            self.retire(key, before);
        }
    }

    /// Counts a packet of which nothing can become any more.
    fn retire(&mut self, key: u64, packet: Waiting) {
        if let Some(rest) = packet.rest {
            self.rests.remove(&rest);
        }
        if !self.span.contains(packet.time) {
            return;
        }
        match packet.state {
            State::Matched => {}
            _ if packet.time < self.trim_before => self.fates.trimmed += 1,
            State::Repeated => self.fates.repeated += 1,
            State::NonCausal => self.fates.early += 1,
            State::Open => {
                self.fates.lost += 1;
                if !self.edges.add(packet.time, self.covered, self.window) {
                    self.losses.push(packet.time, key);
                }
            }
        }
    }

    /// Forgets packets that are out of reach from a time on.
    fn forget(&mut self, frontier: u64) {
        while let Some(&(time, key)) = self.order.front()
            && time.saturating_add(self.window) <= frontier
        {
            self.order.pop_front();
            // One that came later has its place where it was sent again.
            if self.packets.get(&key).is_some_and(|waiting| waiting.time == time)
                && let Some(waiting) = self.packets.remove(&key)
            {
                self.chains.forget(waiting.segment.flow, time);
                self.retire(key, waiting);
            }
        }
    }

    /// Finds what left in a packet that is followed by what it carries, and hands each to `each`.
    fn follow(&mut self, time: u64, left: &Segment, mut each: impl FnMut(Verdict)) {
        let (whole, part) = self.chains.follow(left);
        let (mut found, mut other) = (0, if part { Verdict::Part } else { Verdict::Unmatched });
        for key in whole {
            let Some(packet) = self.packets.get_mut(&key) else { continue };
            match packet.state {
                _ if packet.time.abs_diff(time) >= self.window => {}
                State::Open if packet.time > time => {
                    packet.state = State::NonCausal;
                    other = Verdict::NonCausal;
                }
                State::Open => {
                    packet.state = State::Matched;
                    found += 1;
                    each(Verdict::Match { ingress_ns: packet.time });
                }
                State::Matched => other = Verdict::Duplicate,
                State::NonCausal => other = Verdict::NonCausal,
                State::Repeated => {}
            }
        }
        match found {
            0 => each(other),
            1 => {}
            _ => self.merged += found,
        }
    }

    /// Finds what left in a packet, and hands each packet before the device that did to `each`.
    fn look_up(&mut self, key: u64, time: u64, left: Segment, mut each: impl FnMut(Verdict)) {
        if left.bytes > 0 && !self.packets.contains_key(&key) {
            return self.follow(time, &left, each);
        }
        let mut found = 0;
        let mut other = Verdict::Unmatched;
        let mut at = left.start;
        let end = left.start.wrapping_add(left.len);
        loop {
            let place = if left.len == 0 { key } else { left.at(at) };
            let (of, expected) = match self.rests.get(&place) {
                _ if self.packets.contains_key(&place) => (place, false),
                Some(&of) => (of, true),
                None => break,
            };
            let Some(packet) = self.packets.get_mut(&of) else { break };
            if packet.time.abs_diff(time) >= self.window {
                break;
            }
            // Where it came again later, what stands behind it is found all the same.
            if packet.time > time && packet.state != State::Repeated {
                if packet.state == State::Open {
                    packet.state = State::NonCausal;
                }
                other = Verdict::NonCausal;
                break;
            }
            let its_end = packet.segment.start.wrapping_add(packet.segment.len);
            if its_end.wrapping_sub(at) > end.wrapping_sub(at) {
                // The rest of it is yet to come.
                let rest = left.at(end);
                let before = packet.rest.replace(rest);
                before.map(|before| self.rests.remove(&before));
                self.rests.insert(rest, of);
                other = Verdict::Part;
                break;
            }
            match packet.state {
                State::Open | State::NonCausal => {
                    packet.state = State::Matched;
                    found += 1;
                    each(Verdict::Match { ingress_ns: packet.time });
                }
                State::Matched => other = Verdict::Duplicate,
                State::Repeated => {}
            }
            if expected {
                packet.rest = None;
                self.rests.remove(&place);
            }
            at = its_end;
            if at == end {
                break;
            }
        }
        match found {
            0 => each(other),
            1 => {}
            _ => self.merged += found,
        }
    }
}

impl Match<Segment> for Streams {
    fn new(how: &Matching) -> Self {
        Self {
            packets: HashMap::default(),
            rests: HashMap::default(),
            order: VecDeque::new(),
            window: how.window,
            trim_before: how.trim_before,
            span: how.span,
            fates: Fates::default(),
            losses: Losses::new(how.losses),
            covered: how.covered,
            edges: Edges::default(),
            merged: 0,
            chains: Chains::default(),
        }
    }

    fn insert_all(&mut self, keys: &[u64], times: &[u64], shown: &[Segment], frontier: u64) {
        if let Some(&first) = times.first() {
            self.forget(frontier.min(first));
        }
        for ((&key, &time), &segment) in keys.iter().zip(times).zip(shown) {
            self.insert(key, time, segment);
        }
    }

    fn look_up_all(
        &mut self,
        keys: &[u64],
        times: &[u64],
        shown: &[Segment],
        mut each: impl FnMut(usize, Verdict),
    ) {
        for (i, ((&key, &time), &segment)) in keys.iter().zip(times).zip(shown).enumerate() {
            self.look_up(key, time, segment, |verdict| each(i, verdict));
        }
    }

    fn close(&mut self, covered: Covered) {
        self.covered = covered;
    }

    fn finish(mut self) -> Finished {
        for (key, waiting) in std::mem::take(&mut self.packets) {
            self.retire(key, waiting);
        }
        let Self { fates, losses, edges, merged, .. } = self;
        Finished { fates, losses, edges: edges.sorted(), equals: None, merged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 1_000_000;
    const HOW: Matching = Matching {
        ids: false,
        window: WINDOW,
        trim_before: 0,
        span: Span::ALL,
        expected: 0,
        losses: crate::losses::MOST,
        covered: Covered::ALL,
    };

    /// Packets of a stream that begin where the one before ends: each its time, first byte and length.
    type Packets = Vec<(u64, u32, u32)>;

    fn found(before: &Packets, after: &Packets) -> (Vec<(u32, u64, u64)>, Finished) {
        let mut streams = Streams::new(&HOW);
        let columns = |packets: &Packets| -> (Vec<u64>, Vec<u64>, Vec<Segment>) {
            let segment = |start, len| Segment::of_stream(7, start, len);
            let rows = packets.iter().map(|&(time, start, len)| (time, segment(start, len)));
            let (times, segments): (Vec<_>, Vec<_>) = rows.unzip();
            (segments.iter().map(|segment| segment.at(segment.start)).collect(), times, segments)
        };
        let (keys, times, segments) = columns(before);
        streams.insert_all(&keys, &times, &segments, 0);
        let (keys, times, segments) = columns(after);
        let mut matched = Vec::new();
        streams.look_up_all(&keys, &times, &segments, |i, verdict| {
            if let Verdict::Match { ingress_ns } = verdict {
                let of = before.iter().find(|packet| packet.0 == ingress_ns).expect("it came");
                matched.push((of.1, ingress_ns, times[i]));
            }
        });
        (matched, streams.finish())
    }

    /// Where a stream is cut: lengths that add up to `bytes`.
    fn cut(bytes: u32, lengths: &[u32]) -> Vec<(u32, u32)> {
        let (mut at, mut pieces) = (0, Vec::new());
        for &length in lengths.iter().cycle() {
            let length = length.min(bytes - at);
            if length == 0 {
                return pieces;
            }
            pieces.push((at, length));
            at += length;
        }
        pieces
    }

    proptest! {
        /// Every packet whose bytes all left is found where the last of them did, however the stream
        /// was cut on either side, wherever its numbers wrap.
        #[test]
        fn packets_are_found_by_their_bytes(
            bytes in 1..4_000u32,
            first in any::<u32>(),
            ours in proptest::collection::vec(1..400u32, 1..9),
            theirs in proptest::collection::vec(1..400u32, 1..9),
            lost in proptest::collection::vec(0..12u8, 1..20),
        ) {
            let place = |at: u32| first.wrapping_add(at);
            let before: Packets = cut(bytes, &ours)
                .into_iter()
                .map(|(at, len)| (u64::from(at) * 10, place(at), len))
                .collect();
            // Each leaves when its last byte has come, and a little later.
            let all = cut(bytes, &theirs);
            let out: Vec<(u32, u32)> = all
                .into_iter()
                .enumerate()
                .filter(|(i, _)| lost[i % lost.len()] > 0)
                .map(|(_, piece)| piece)
                .collect();
            let after: Packets = out
                .iter()
                .map(|&(at, len)| (u64::from(at + len) * 10 + 3, place(at), len))
                .collect();
            let left = |byte: u32| out.iter().find(|(at, len)| (*at..at + len).contains(&byte));
            let expected: Vec<(u32, u64, u64)> = cut(bytes, &ours)
                .into_iter()
                .filter(|&(at, len)| (at..at + len).all(|byte| left(byte).is_some()))
                .map(|(at, len)| {
                    let (start, length) = left(at + len - 1).expect("it left");
                    (place(at), u64::from(at) * 10, u64::from(start + length) * 10 + 3)
                })
                .collect();
            let (matched, finished) = found(&before, &after);
            // Behind a lost piece the place of the next byte is not known until a packet begins there.
            if out.len() == cut(bytes, &theirs).len() {
                prop_assert_eq!(&matched, &expected);
                prop_assert_eq!(finished.fates.lost, 0);
            }
            for pair in &matched {
                prop_assert!(expected.contains(pair));
            }
            let count = before.len() as u64;
            prop_assert_eq!(matched.len() as u64 + finished.fates.lost, count);
        }
    }

    #[test]
    fn merged_packets_each_have_their_latency() {
        let before = vec![(10, 0, 5), (20, 5, 5), (30, 10, 5)];
        let (matched, finished) = found(&before, &vec![(40, 0, 10), (50, 10, 5)]);
        assert_eq!(matched, [(0, 10, 40), (5, 20, 40), (10, 30, 50)]);
        assert_eq!(finished.merged, 2);
    }

    #[test]
    fn a_lost_piece_that_was_sent_again_by_itself_is_a_packet() {
        let before = vec![(10, 0, 10), (50, 6, 2)];
        let (matched, finished) = found(&before, &vec![(20, 0, 6), (30, 8, 2), (60, 6, 2)]);
        assert_eq!(matched, [(6, 50, 60)]);
        assert_eq!(finished.fates.lost, 1);
    }

    #[test]
    fn a_packet_that_was_sent_again_is_left_out() {
        let before = vec![(10, 0, 5), (20, 0, 5), (30, 5, 5)];
        let (matched, finished) = found(&before, &vec![(40, 0, 10)]);
        assert_eq!(matched, [(5, 30, 40)]);
        assert_eq!(finished.fates.repeated, 2);
        // Also where it came again after it had left with others.
        let before = vec![(10, 0, 5), (30, 5, 5), (60, 0, 5)];
        let (matched, finished) = found(&before, &vec![(40, 0, 10)]);
        assert_eq!((matched, finished.fates.repeated), (vec![(5, 30, 40)], 2));
    }
}
