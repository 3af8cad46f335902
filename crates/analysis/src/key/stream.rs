//! The key of captures between which segments of TCP were merged or cut: their bytes.

use serde::{Deserialize, Serialize};
use tailtap_wire::inner::Inner;
use tailtap_wire::{ipv4, ipv6, tcp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::packet::{payload, ports};
use super::{Extract, Keeps, Name, NoKey, Packet, Seen};
use crate::capture::Content;
use crate::streams::Streams;

/// Segments of TCP by their bytes; all other packets as [`Keeps::All`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// So many bytes of the payload count at most, of other packets.
    pub most: u32,
}

/// What a packet carries of a stream of TCP.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Hash of addresses and ports.
    flow: u64,
    /// The number of its first byte.
    pub start: u32,
    /// How many bytes it carries; 0 for packets that are no data of TCP.
    pub len: u32,
    seen: Seen,
}

impl Segment {
    /// The key of what begins at a byte of the stream.
    pub fn at(&self, byte: u32) -> u64 {
        xxh3_64_with_seed(&byte.to_le_bytes(), self.flow)
    }

    /// So many bytes from one on.
    #[cfg(test)]
    pub fn of_stream(flow: u64, start: u32, len: u32) -> Self {
        Self { flow, start, len, seen: Seen::default() }
    }

    /// The data of a packet of TCP.
    fn of(bytes: &[u8], inner: &Inner, seen: Seen) -> Option<Self> {
        if inner.protocol != tcp::PROTOCOL || inner.fragment.is_some() {
            return None;
        }
        let (begin, _) = payload(bytes, inner)?;
        let len = u32::try_from(inner.end.checked_sub(begin)?).ok().filter(|&len| len > 0)?;
        let (from, to) = ports(bytes, inner)?;
        let addresses = if inner.v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
        let addresses =
            bytes.get(inner.network + addresses.start..inner.network + addresses.end)?;
        let number = bytes.get(inner.transport + 4..inner.transport + 8)?;
        Some(Self {
            flow: xxh3_64_with_seed(addresses, u64::from(from) << 16 | u64::from(to)),
            start: u32::from_be_bytes(number.try_into().expect("four")),
            len,
            seen,
        })
    }
}

impl Extract for Stream {
    const IS_ID: bool = false;
    const SHOWN_BEFORE: bool = true;
    type Shown = Segment;
    type Matcher = Streams;

    fn extract(self, content: Content<'_>) -> Result<(u64, Segment), NoKey> {
        let Content::Frame { bytes, link, .. } = content else {
            return Err(NoKey::NoFrame);
        };
        // Nothing of the payload: a merged segment is rarely captured whole.
        let (_, seen) = Packet { keeps: Keeps::Flow, most: 0 }.extract(content)?;
        if let Some(inner) = Inner::of(bytes, link)
            && let Some(segment) = Segment::of(bytes, &inner, seen)
        {
            return Ok((segment.at(segment.start), segment));
        }
        let (key, seen) = Packet { keeps: Keeps::All, most: self.most }.extract(content)?;
        Ok((key, Segment { flow: key, start: 0, len: 0, seen }))
    }

    fn name(_: u64, segment: Segment) -> Name {
        Name::Packet(segment.seen)
    }

    /// A segment may be one of several that left as one.
    fn known_by(_: u64, segment: Segment) -> u64 {
        segment.flow
    }
}
