//! The keys of captures between which packets were merged or cut: their bytes.

use serde::{Deserialize, Serialize};
use tailtap_wire::inner::Inner;
use tailtap_wire::{ipv4, ipv6, tcp, udp};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::packet::{payload, ports};
use super::{Extract, Keeps, Name, NoKey, Packet, Seen};
use crate::capture::Content;
use crate::streams::Streams;

/// So many bytes at the start of what a packet carries tell it from others.
const HEAD: usize = 40;

/// Segments of TCP by their bytes, and datagrams of UDP that were merged or cut; all other packets as
/// [`Keeps::All`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Whether segments are known by what they carry, as a proxy numbers bytes anew. Nothing else of TCP
    /// passes it.
    pub carried: bool,
    /// So many bytes of the payload count at most, of other packets.
    pub most: u32,
}

/// What a packet carries of a stream of TCP, or else what it carries in the order of its flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// Hash of addresses and ports.
    pub flow: u64,
    /// The number of its first byte.
    pub start: u32,
    /// How many bytes it carries; 0 for packets that are no data of TCP.
    pub len: u32,
    /// How many bytes it carries, if it is followed by these.
    pub bytes: u32,
    /// The hash of the first of them.
    pub head: u64,
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
        Self { flow, start, len, ..Self::default() }
    }

    /// Whether it is of TCP: all that its flow carries comes, and in order.
    pub fn is_of_tcp(&self) -> bool {
        self.seen.protocol == Some(tcp::PROTOCOL)
    }

    /// The data of a packet of TCP or UDP.
    fn of(bytes: &[u8], inner: &Inner, seen: Seen, carried: bool) -> Option<Self> {
        let of_tcp = inner.protocol == tcp::PROTOCOL;
        if !(of_tcp || inner.protocol == udp::PROTOCOL) || inner.fragment.is_some() {
            return None;
        }
        let (begin, _) = payload(bytes, inner)?;
        let len = u32::try_from(inner.end.checked_sub(begin)?).ok().filter(|&len| len > 0)?;
        let (from, to) = ports(bytes, inner)?;
        let addresses = if inner.v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
        let addresses =
            bytes.get(inner.network + addresses.start..inner.network + addresses.end)?;
        let ports = xxh3_64(&(u32::from(from) << 16 | u32::from(to)).to_be_bytes());
        let flow = xxh3_64_with_seed(addresses, ports);
        if of_tcp && !carried {
            let number = bytes.get(inner.transport + 4..inner.transport + 8)?;
            let start = u32::from_be_bytes(number.try_into().expect("four"));
            return Some(Self { flow, start, len, seen, ..Self::default() });
        }
        let head = xxh3_64_with_seed(bytes.get(begin..begin + HEAD.min(len as usize))?, 0);
        Some(Self { flow, bytes: len, head, seen, ..Self::default() })
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
        let inner = Inner::of(bytes, link);
        let segment = inner.and_then(|inner| Segment::of(bytes, &inner, seen, self.carried));
        match segment {
            Some(segment) if segment.len > 0 => return Ok((segment.at(segment.start), segment)),
            Some(segment) if self.carried => {
                return Ok((
                    xxh3_64_with_seed(&segment.bytes.to_le_bytes(), segment.head),
                    segment,
                ));
            }
            None if self.carried && seen.protocol == Some(tcp::PROTOCOL) => {
                return Err(NoKey::Foreign);
            }
            _ => {}
        }
        let (key, seen) = Packet { keeps: Keeps::All, most: self.most }.extract(content)?;
        Ok((key, segment.unwrap_or(Segment { flow: key, seen, ..Segment::default() })))
    }

    fn name(_: u64, segment: Segment) -> Name {
        Name::Packet(segment.seen)
    }

    /// A segment may be one of several that left as one.
    fn known_by(_: u64, segment: Segment) -> u64 {
        segment.flow
    }
}
