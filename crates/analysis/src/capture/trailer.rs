//! Trailers: stamps that switches put behind the frames that they mirror or pass on.
//!
//! A switch stamps packets where they come in, with far less jitter than whoever captures them later. Two
//! formats have the whole time in each frame: that of Arista's 7130 series, once Metamako's, which stands
//! behind the frame's original check sequence and may have further fields, and that of Cisco's Nexus 3550,
//! once Exablaze's ExaLINK Fusion. Neither has a magic number: any frame's last bytes may look like one, and
//! many frames together show whether they are.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailtap_wire::ethernet::FCS_LEN;
use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;

use super::{Content, LATEST_NS, Packet, Sink};

const SECOND_NS: u64 = 1_000_000_000;
/// Two clocks that were set are not farther apart than this, nor do they drift so far while captures last.
pub(crate) const NEAR_NS: u64 = 24 * 3600 * SECOND_NS;

/// Seconds, nanoseconds, flags, the number of the device and that of its port.
const METAMAKO_LEN: usize = 12;
const METAMAKO_EXTENDED: u8 = 0x02;
/// The last word of each further field of Metamako's says what it is: how many words stand before it, and
/// whether it is the first of all. A field of the second kind has room for more words.
const FIELD_LEN: usize = 4;
const FIELD_WORDS_SHIFT: u32 = 6;
const FIELD_WORDS: u32 = 0x3;
const FIELD_LONG: u32 = 0x1f;
const FIELD_LONG_WORDS: u32 = 0x3ff;
const FIELD_FIRST: u32 = 0x20;

/// The number of the device and that of its port, seconds, units of 2^-40 s, and a byte without meaning.
const EXABLAZE_LEN: usize = 12;

/// A format of trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trailer {
    /// Arista's 7130 series, formerly Metamako.
    Metamako,
    /// Cisco's Nexus 3550, formerly Exablaze.
    Exablaze,
}

impl fmt::Display for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metamako => "Arista 7130 (Metamako)",
            Self::Exablaze => "Cisco Nexus 3550 (Exablaze)",
        })
    }
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamped {
    pub time_ns: u64,
    /// The device's number above, its port's number in the lowest byte.
    pub port: u32,
    /// Bytes of the trailer and the original check sequence in front of it.
    len: usize,
}

/// Trailers that stamps are taken from, and how far their clock is ahead of that of the records.
pub(crate) type Restamping = (Trailer, i64);

/// How far a trailer's clock is ahead of a record's, in nanoseconds.
pub(crate) fn ahead_ns(stamped: &Stamped, packet: &Packet<'_>) -> i64 {
    stamped.time_ns as i64 - packet.time_ns as i64
}

impl Trailer {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Metamako, Self::Exablaze];

    /// A whole frame without the trailer that it may end in, and what that says. It stands behind all that
    /// belongs to a packet of IP.
    pub(crate) fn split<'a>(self, packet: &Packet<'a>) -> Option<(&'a [u8], Stamped)> {
        let Content::Frame { bytes, wire_len, link: Link::Ethernet } = packet.content else {
            return None;
        };
        if bytes.len() < wire_len as usize {
            return None;
        }
        let stamped = match self {
            Self::Metamako => metamako(bytes),
            Self::Exablaze => exablaze(bytes),
        }?;
        let frame = &bytes[..bytes.len().checked_sub(stamped.len)?];
        let behind = |inner: Inner| inner.end <= frame.len();
        let fits = stamped.time_ns <= LATEST_NS;
        (fits && Inner::of(bytes, Link::Ethernet).is_none_or(behind)).then_some((frame, stamped))
    }
}

fn metamako(frame: &[u8]) -> Option<Stamped> {
    let (mut rest, &[s0, s1, s2, s3, n0, n1, n2, n3, flags, d0, d1, port]) =
        frame.split_last_chunk::<METAMAKO_LEN>()?;
    let mut len = METAMAKO_LEN + FCS_LEN;
    let mut more = flags & METAMAKO_EXTENDED != 0;
    while more {
        let (before, word) = rest.split_last_chunk::<FIELD_LEN>()?;
        let word = u32::from_be_bytes(*word);
        let words = match word & FIELD_LONG {
            FIELD_LONG => (word >> FIELD_WORDS_SHIFT & FIELD_LONG_WORDS) + 1,
            _ => word >> FIELD_WORDS_SHIFT & FIELD_WORDS,
        };
        let field = FIELD_LEN * words as usize;
        rest = before.get(..before.len().checked_sub(field)?)?;
        len += FIELD_LEN + field;
        more = word & FIELD_FIRST == 0;
    }
    let nanoseconds = u64::from(u32::from_be_bytes([n0, n1, n2, n3]));
    let seconds = u64::from(u32::from_be_bytes([s0, s1, s2, s3]));
    (nanoseconds < SECOND_NS).then_some(Stamped {
        time_ns: seconds * SECOND_NS + nanoseconds,
        port: u32::from_be_bytes([0, d0, d1, port]),
        len,
    })
}

fn exablaze(frame: &[u8]) -> Option<Stamped> {
    let &[device, port, s0, s1, s2, s3, f0, f1, f2, f3, f4, _] =
        frame.last_chunk::<EXABLAZE_LEN>()?;
    let seconds = u64::from(u32::from_be_bytes([s0, s1, s2, s3]));
    let fraction = u64::from_be_bytes([0, 0, 0, f0, f1, f2, f3, f4]);
    let nanoseconds = (u128::from(fraction) * u128::from(SECOND_NS)) >> 40;
    Some(Stamped {
        time_ns: seconds * SECOND_NS + nanoseconds as u64,
        port: u32::from_be_bytes([0, 0, device, port]),
        len: EXABLAZE_LEN + FCS_LEN,
    })
}

/// Gives packets the stamps of their trailers, and takes these off. Those without one are counted, and
/// left out: times of two clocks do not mix.
pub(super) struct Restamped<'a, S> {
    pub sink: &'a mut S,
    pub from: Restamping,
    pub without: &'a mut u64,
}

impl<S: Sink> Sink for Restamped<'_, S> {
    fn take(&mut self, packet: Packet<'_>) {
        let (trailer, ahead) = self.from;
        let near = |found: &(_, Stamped)| ahead_ns(&found.1, &packet).abs_diff(ahead) < NEAR_NS;
        let Some((bytes, stamped)) = trailer.split(&packet).filter(near) else {
            *self.without += 1;
            return;
        };
        let wire_len = bytes.len() as u32;
        let content = Content::Frame { bytes, wire_len, link: Link::Ethernet };
        let (time_ns, interface) = (stamped.time_ns, stamped.port);
        self.sink.take(Packet { time_ns, interface, content, ..packet });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIME_NS: u64 = 1_760_000_000_123_456_789;

    /// A frame of IP with a payload of zeros, and with its check sequence.
    fn frame() -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46]);
        bytes
    }

    fn metamako(time_ns: u64, flags: u8, fields: &[u8]) -> Vec<u8> {
        let mut bytes = frame();
        bytes.extend(fields);
        bytes.extend(((time_ns / SECOND_NS) as u32).to_be_bytes());
        bytes.extend(((time_ns % SECOND_NS) as u32).to_be_bytes());
        bytes.extend([flags, 0, 7, 3]);
        bytes
    }

    fn exablaze(time_ns: u64) -> Vec<u8> {
        let mut bytes = frame();
        bytes.extend([7, 3]);
        bytes.extend(((time_ns / SECOND_NS) as u32).to_be_bytes());
        let fraction = (u128::from(time_ns % SECOND_NS) << 40).div_ceil(u128::from(SECOND_NS));
        bytes.extend(&(fraction as u64).to_be_bytes()[3..]);
        bytes.push(0);
        bytes
    }

    fn packet(bytes: &[u8], time_ns: u64) -> Packet<'_> {
        let content = Content::Frame { bytes, wire_len: bytes.len() as u32, link: Link::Ethernet };
        Packet { time_ns, interface: 0, outgoing: None, content }
    }

    fn split(trailer: Trailer, bytes: &[u8]) -> Option<(usize, u64, u32)> {
        let (frame, stamped) = trailer.split(&packet(bytes, TIME_NS + 77))?;
        Some((frame.len(), stamped.time_ns, stamped.port))
    }

    #[test]
    fn a_stamp_is_what_stands_behind_the_frame() {
        let expected = Some((60, TIME_NS, 0x0703));
        assert_eq!(split(Trailer::Metamako, &metamako(TIME_NS, 1, &[])), expected);
        assert_eq!(split(Trailer::Exablaze, &exablaze(TIME_NS)), expected);
        // A field of one word, one of none before it, and a long one of two words.
        let one = [1, 2, 3, 4, 0, 0, 0, 0x40];
        let none = [0, 0, 9, 0x20];
        let long = [&[7; 8][..], &[0, 0, 0, 0x40 | 0x1f]].concat();
        for fields in [[&none[..], &one].concat(), [&none[..], &long].concat(), none.to_vec()] {
            assert_eq!(split(Trailer::Metamako, &metamako(TIME_NS, 3, &fields)), expected);
        }
    }

    #[test]
    fn what_could_be_payload_is_no_stamp() {
        for trailer in Trailer::ALL {
            let mut within = match trailer {
                Trailer::Metamako => metamako(TIME_NS, 1, &[]),
                Trailer::Exablaze => exablaze(TIME_NS),
            };
            // The packet of IP is one byte longer than where the trailer would begin.
            within[17] += 1;
            assert_eq!(split(trailer, &within), None);
        }
        // Further fields that do not fit.
        assert_eq!(split(Trailer::Metamako, &metamako(TIME_NS, 3, &[0xff; 8])), None);
        assert_eq!(split(Trailer::Metamako, &metamako(TIME_NS, 3, &[])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_stamp_or_not(
            bytes in proptest::collection::vec(any::<u8>(), 0..120), fields in any::<[u8; 12]>(),
        ) {
            for bytes in [&bytes, &metamako(TIME_NS, 3, &fields), &metamako(TIME_NS, 3, &bytes)] {
                for trailer in Trailer::ALL {
                    if let Some((frame, _)) = trailer.split(&packet(bytes, TIME_NS)) {
                        prop_assert!(frame.len() + METAMAKO_LEN <= bytes.len());
                    }
                }
            }
        }
    }
}
