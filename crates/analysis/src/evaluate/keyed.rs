//! Keys and times of packets, outside of an evaluation.

use crate::key::Extract;
use crate::source::Source;

/// So many packets of each capture are looked at.
pub(super) const LOOK: usize = 1 << 20;

/// Keys and times of the first packets of a capture, so many of them at most.
pub(super) fn keyed<X: Extract>(
    source: &Source,
    extract: X,
    look: usize,
) -> Option<Vec<(u64, u64)>> {
    let mut packets = Vec::new();
    let mut capture = source.open().ok()?;
    let read = capture.read(look, |packet| {
        if let Ok((key, _)) = extract.extract(packet.content) {
            packets.push((key, packet.time_ns));
        }
    });
    read.ok().map(|_| packets)
}

/// Those of some keys with times whose key occurs once, by key.
pub(super) fn once<T: Copy + Ord>(mut packets: Vec<(u64, T)>) -> Vec<(u64, T)> {
    packets.sort_unstable();
    let mut found = Vec::new();
    for group in packets.chunk_by(|one, other| one.0 == other.0) {
        if let [packet] = group {
            found.push(*packet);
        }
    }
    found
}

/// The times of what is in both, which are in the order of their keys.
pub(super) fn common<T: Copy>(first: &[(u64, T)], mut second: &[(u64, T)]) -> Vec<(T, T)> {
    let mut found = Vec::new();
    for &(key, time) in first {
        let ahead = second.iter().take_while(|packet| packet.0 < key).count();
        second = &second[ahead..];
        if let Some(&(other, later)) = second.first()
            && other == key
        {
            found.push((time, later));
        }
    }
    found
}
