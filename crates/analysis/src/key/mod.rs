//! Matching keys: what makes a packet before the device the same as one after it.

mod field;
mod packet;
mod sample;
mod stream;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tailtap_wire::frame::{self, Layers, Version};
use tailtap_wire::link::Link;
use tailtap_wire::{ethernet, ipv4, moonsniff, tcp, udp};
use xxhash_rust::xxh3::xxh3_64;

use crate::capture::Content;
use crate::matching::{Match, Matcher};

pub use field::{Field, Place};
pub use packet::{Keeps, Packet, Seen, cut};
pub use sample::Sampling;
pub use stream::{Segment, Stream};

/// The part of the frame that the papers' importer takes as the key.
const SIGNATURE: Range<usize> = 12..64;
/// Length of a signature in bytes.
pub const SIGNATURE_LEN: usize = SIGNATURE.end - SIGNATURE.start;

/// What the keys of streams are called: by the numbers of bytes, and by the bytes.
const STREAM: &str = "packet-stream";
const CARRIED: &str = "packet-bytes";

/// Words that hold a signature: as many as the hash takes in one go.
const SIGNATURE_WORDS: usize = 8;

/// A way to tell packets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyKind {
    /// What devices leave of a packet.
    Packet(Packet),
    /// Packets by their bytes, which devices merge and cut.
    Stream(Stream),
    /// UDP payload: u32 little-endian id, then the byte 0x55 (MoonGen's MoonSniff).
    Moonsniff,
    /// Bytes 12 to 63 of the frame with the IPv4, UDP and TCP checksums set to zero.
    Signature,
    /// A number at a place of the packet.
    Field(Field),
    /// A number at one place of the packet before the device, and at another after it.
    Fields([Field; 2]),
}

impl KeyKind {
    /// The key that is this one before the device and another after it. Both must be numbers of one
    /// width.
    pub fn and_after(self, after: Self) -> Result<Self, SidesError> {
        match (self, after) {
            (Self::Field(before), Self::Field(after)) if before == after => Ok(self),
            (Self::Field(before), Self::Field(after)) if before.width == after.width => {
                Ok(Self::Fields([before, after]))
            }
            (Self::Field(before), Self::Field(after)) => Err(SidesError::Widths { before, after }),
            (Self::Field(_), other) | (other, _) => Err(SidesError::NoNumber(other)),
        }
    }

    /// The key before the device, and that after it.
    pub fn sides(self) -> [Self; 2] {
        match self {
            Self::Fields(fields) => fields.map(Self::Field),
            both => [both; 2],
        }
    }

    /// The key of a packet as 64 bits, if it has one; `None` for the two of which more must be kept
    /// ([`Self::fits_marks`]).
    #[inline]
    pub fn of(self, content: Content<'_>) -> Option<u64> {
        match self {
            Self::Packet(packet) => packet.extract(content).ok().map(|found| found.0),
            Self::Moonsniff => Moonsniff.extract(content).ok().map(|found| found.0),
            Self::Field(field) => field.extract(content).ok().map(|found| found.0),
            Self::Stream(_) | Self::Signature | Self::Fields(_) => None,
        }
    }

    /// Whether 64 bits of each packet are enough to match by this key: signatures are shown as they are,
    /// and streams need the places of their bytes.
    pub fn fits_marks(self) -> bool {
        matches!(self, Self::Packet(_) | Self::Moonsniff | Self::Field(_))
    }

    /// Whether a packet carries this key.
    pub fn fits(self, content: Content<'_>) -> bool {
        match self {
            Self::Packet(packet) => packet.extract(content).is_ok(),
            Self::Stream(stream) => stream.extract(content).is_ok(),
            Self::Moonsniff => Moonsniff.extract(content).is_ok(),
            Self::Signature => Signatures.extract(content).is_ok(),
            Self::Field(field) => field.extract(content).is_ok(),
            Self::Fields(fields) => fields.iter().any(|field| field.extract(content).is_ok()),
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(packet) => f.write_str(packet.keeps.name()),
            Self::Stream(stream) => f.write_str(if stream.carried { CARRIED } else { STREAM }),
            Self::Moonsniff => f.write_str("moonsniff"),
            Self::Signature => f.write_str("signature"),
            Self::Field(field) => write!(f, "{field}"),
            Self::Fields([before, after]) => {
                write!(f, "{before} before the device, {after} after it")
            }
        }
    }
}

/// A text that names no key.
#[derive(Debug, thiserror::Error)]
#[error("'{text}' is not a key: {why}")]
pub struct ParseKeyError {
    text: String,
    why: String,
}

impl FromStr for KeyKind {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "moonsniff" => return Ok(Self::Moonsniff),
            "signature" => return Ok(Self::Signature),
            STREAM | CARRIED => {
                return Ok(Self::Stream(Stream { most: u32::MAX, carried: text == CARRIED }));
            }
            _ => {}
        }
        if let Some(keeps) = Keeps::ALL.into_iter().find(|keeps| keeps.name() == text) {
            return Ok(Self::Packet(Packet::new(keeps)));
        }
        text.parse().map(Self::Field).map_err(|why| {
            let names = "give auto, packet, packet-nat, packet-flow, packet-payload, packet-stream, \
                         packet-bytes, packet-id, moonsniff, signature or a number; ";
            // What has a colon was meant for a number.
            let names = if text.contains(':') { "" } else { names };
            ParseKeyError { text: text.to_owned(), why: format!("{names}{why}") }
        })
    }
}

/// Keys that cannot be one before the device and the other after it.
#[derive(Debug, thiserror::Error)]
pub enum SidesError {
    /// It is no number at a place.
    #[error(
        "a key for each side is a number at a place, and '{0}' is none: give, say, \
         udp.payload+0:4:le for one side and udp.payload+8:4:be for the other"
    )]
    NoNumber(KeyKind),
    /// Numbers of several widths.
    #[error(
        "the key before the device, '{before}', has {} bytes, and that after it, '{after}', has {}: \
         a number is found on both sides by the same width", before.width, after.width
    )]
    Widths {
        /// That before the device.
        before: Field,
        /// That after it.
        after: Field,
    },
}

/// Why a packet has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// The packet is not of the kind that carries this key.
    Foreign,
    /// The capture's snap length cut the key off.
    Short,
    /// The capture holds packet ids, not frames.
    NoFrame,
    /// The packet was captured without the header of Ethernet that places count from.
    NoEthernet,
}

/// The bytes of a signature as little-endian words, zeros behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature([u64; SIGNATURE_WORDS]);

impl Signature {
    /// A hash of the bytes.
    #[inline]
    fn hash(&self) -> u64 {
        xxh3_64(bytemuck::bytes_of(&self.0))
    }

    /// The bytes.
    fn bytes(&self) -> Box<[u8]> {
        let bytes = self.0.iter().flat_map(|word| word.to_le_bytes());
        bytes.take(SIGNATURE_LEN).collect()
    }
}

/// Takes the key from a packet. One implementation for each kind of key, so that the loops over
/// packets are compiled for it.
pub trait Extract: Copy + Send + Sync {
    /// Whether the key is an id, and ids may well count up; otherwise it is a hash.
    const IS_ID: bool;
    /// Whether packets of one key are equal, and their order may tell which is which.
    const IN_ORDER: bool = false;
    /// Whether what is shown of packets before the device is kept, too, as the matcher needs it.
    const SHOWN_BEFORE: bool = false;
    /// What is kept of a packet to show its key to people; nothing where the key itself will do.
    type Shown: Copy + Send;
    /// What finds packets of this key again.
    type Matcher: Match<Self::Shown>;

    /// The key of a packet.
    fn extract(self, content: Content<'_>) -> Result<(u64, Self::Shown), NoKey>;

    /// The key as people see it.
    fn name(key: u64, shown: Self::Shown) -> Name;

    /// What both copies of a packet have in common, in its flow.
    fn known_by(key: u64, _: Self::Shown) -> u64 {
        key
    }
}

/// A key as people see it: a decimal id, a signature in hexadecimal, or a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Name {
    /// An id.
    Id(u64),
    /// The bytes of a signature.
    Signature(Box<[u8]>),
    /// A packet.
    Packet(Seen),
    /// What a protocol says of a request.
    Text(Box<str>),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Packet(seen) => write!(f, "{seen}"),
            Self::Text(text) => f.write_str(text),
            Self::Signature(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// MoonSniff's packet ids.
#[derive(Clone, Copy, Debug)]
pub struct Moonsniff;

impl Extract for Moonsniff {
    const IS_ID: bool = true;
    type Shown = ();
    type Matcher = Matcher;

    #[inline]
    fn extract(self, content: Content<'_>) -> Result<(u64, ()), NoKey> {
        match content {
            Content::Id(id) => Ok((u64::from(id), ())),
            Content::Mark { key, .. } => Ok((key, ())),
            Content::Frame { bytes, wire_len, link } => {
                let payload = frame::udp_payload(bytes, link).map(|at| &bytes[at..]);
                let header = payload
                    .and_then(moonsniff::Header::parse)
                    .ok_or_else(|| foreign_or_short(bytes, wire_len))?;
                match header.measured() {
                    Some(id) => Ok((u64::from(id), ())),
                    None => Err(NoKey::Foreign),
                }
            }
        }
    }

    fn name(key: u64, (): ()) -> Name {
        Name::Id(key)
    }
}

/// The papers' signatures.
///
/// Packets are matched by a 64-bit hash of it. Among ten million packets within the window, the
/// chance that any two different signatures share theirs is three in a million (n^2 / 2^65); the
/// two packets are then taken for a repeated key, left out, and counted as that.
#[derive(Clone, Copy, Debug)]
pub struct Signatures;

impl Extract for Signatures {
    const IS_ID: bool = false;
    type Shown = Signature;
    type Matcher = Matcher;

    #[inline]
    fn extract(self, content: Content<'_>) -> Result<(u64, Signature), NoKey> {
        let (bytes, wire_len) = ethernet_frame(content)?;
        let signature = signature(bytes, wire_len)?;
        Ok((signature.hash(), signature))
    }

    fn name(_: u64, signature: Signature) -> Name {
        Name::Signature(signature.bytes())
    }
}

/// The bytes of a whole frame, whose places are known, and its length on the wire.
#[inline]
fn ethernet_frame(content: Content<'_>) -> Result<(&[u8], u32), NoKey> {
    match content {
        Content::Frame { bytes, wire_len, link: Link::Ethernet } => Ok((bytes, wire_len)),
        Content::Frame { .. } => Err(NoKey::NoEthernet),
        Content::Id(_) | Content::Mark { .. } => Err(NoKey::NoFrame),
    }
}

#[cold]
fn foreign_or_short(bytes: &[u8], wire_len: u32) -> NoKey {
    if (bytes.len() as u64) < u64::from(wire_len) { NoKey::Short } else { NoKey::Foreign }
}

/// Bytes 12 to 63 with the checksums zeroed; a whole frame that is shorter is padded with zeros.
#[inline]
fn signature(bytes: &[u8], wire_len: u32) -> Result<Signature, NoKey> {
    // The smallest frames have 60 bytes where the FCS is not captured.
    const LEAST: usize = SIGNATURE.end - ethernet::FCS_LEN;
    if let Some(head) = bytes.first_chunk::<LEAST>()
        && frame::is_plain_udp(head)
    {
        let last = match bytes.get(LEAST..SIGNATURE.end) {
            Some(last) => u32::from_le_bytes(last.try_into().expect("four bytes")),
            None if (bytes.len() as u64) < u64::from(wire_len) => return Err(NoKey::Short),
            None => bytes[LEAST..].iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)),
        };
        // Whole words throughout: a load that spans stores of other sizes waits for them.
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
        let zero = |word: u64, from: usize, at: usize| word & !(0xffff << (8 * (at - from)));
        return Ok(Signature([
            word(12),
            zero(word(20), 20, ethernet::LEN + ipv4::CHECKSUM.start),
            word(28),
            zero(word(36), 36, frame::PLAIN_UDP + udp::CHECKSUM.start),
            word(44),
            word(52),
            u64::from(last),
            0,
        ]));
    }
    odd_signature(bytes, wire_len)
}

/// The signature of a frame that is not plain UDP, or very short.
#[cold]
#[inline(never)]
fn odd_signature(bytes: &[u8], wire_len: u32) -> Result<Signature, NoKey> {
    let mut head = [0u8; SIGNATURE.end];
    if let Some(first) = bytes.first_chunk::<{ SIGNATURE.end }>() {
        head = *first;
    } else if (bytes.len() as u64) < u64::from(wire_len) {
        return Err(NoKey::Short);
    } else if bytes.len() <= SIGNATURE.start {
        return Err(NoKey::Foreign);
    } else {
        head[..bytes.len()].copy_from_slice(bytes);
    }
    if let Some(Layers { version, network, transport }) = Layers::of(bytes, Link::Ethernet) {
        if version == Version::V4 {
            zero(&mut head, network, ipv4::CHECKSUM);
        }
        match transport {
            Some((udp::PROTOCOL, at)) => zero(&mut head, at, udp::CHECKSUM),
            Some((tcp::PROTOCOL, at)) => zero(&mut head, at, tcp::CHECKSUM),
            _ => {}
        }
    }
    let mut words = [0u64; SIGNATURE_WORDS];
    bytemuck::bytes_of_mut(&mut words)[..SIGNATURE_LEN].copy_from_slice(&head[SIGNATURE]);
    Ok(Signature(words.map(u64::from_le)))
}

/// Zeroes the checksum of a header that begins at `header`, if it is within the bytes.
fn zero(head: &mut [u8], header: usize, checksum: Range<usize>) {
    if let Some(checksum) = head.get_mut(header + checksum.start..header + checksum.end) {
        checksum.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u32 = 0x0102_0304;

    /// An Ethernet frame with the given VLAN tags, network header and UDP header, then `ID`.
    fn frame(tags: &[u16], ethertype: u16, network: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2u8; 12];
        for tag in tags {
            bytes.extend(0x8100u16.to_be_bytes());
            bytes.extend(tag.to_be_bytes());
        }
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(network);
        bytes.extend([4, 0, 0, 53, 0, 26, 0xab, 0xcd]);
        bytes.extend(ID.to_le_bytes());
        bytes.extend([moonsniff::Kind::Measured as u8, 0, 0, 0, 0]);
        bytes
    }

    fn ipv4(options: usize) -> Vec<u8> {
        let mut header = vec![0u8; 20 + options];
        header[0] = 0x45 + (options / 4) as u8;
        header[9] = udp::PROTOCOL;
        header[10..12].copy_from_slice(&[0x12, 0x34]);
        header
    }

    fn ipv6(extension: &[u8]) -> Vec<u8> {
        let mut header = vec![0u8; 40];
        header[0] = 0x60;
        header[6] = if extension.is_empty() { udp::PROTOCOL } else { 0 };
        header.extend(extension);
        header
    }

    fn whole(bytes: &[u8]) -> Content<'_> {
        Content::Frame { bytes, wire_len: bytes.len() as u32, link: Link::Ethernet }
    }

    #[test]
    fn moonsniff_id_is_found_behind_any_headers() {
        for bytes in [
            frame(&[], 0x0800, &ipv4(0)),
            frame(&[], 0x0800, &ipv4(8)),
            frame(&[5], 0x0800, &ipv4(0)),
            frame(&[5, 6], 0x86dd, &ipv6(&[])),
            frame(&[], 0x86dd, &ipv6(&[udp::PROTOCOL, 0, 0, 0, 0, 0, 0, 0])),
        ] {
            assert_eq!(Moonsniff.extract(whole(&bytes)), Ok((u64::from(ID), ())));
            let link = Link::Network(u16::from_be_bytes([bytes[12], bytes[13]]));
            let cooked = Content::Frame { bytes: &bytes[14..], wire_len: 100, link };
            assert_eq!(Moonsniff.extract(cooked), Ok((u64::from(ID), ())));
            assert_eq!(Signatures.extract(cooked), Err(NoKey::NoEthernet));
            let field: Field = "0:1:be".parse().expect("a number");
            assert_eq!(field.extract(cooked), Err(NoKey::NoEthernet));
        }
    }

    #[test]
    fn packets_without_an_id_are_foreign_and_cut_ones_short() {
        let mut bytes = frame(&[], 0x0800, &ipv4(0));
        let (wire_len, link) = (bytes.len() as u32, Link::Ethernet);
        let cut = Content::Frame { bytes: &bytes[..44], wire_len, link };
        assert_eq!(Moonsniff.extract(cut), Err(NoKey::Short));
        bytes[46] = 0; // the type byte of a warm-up packet
        assert_eq!(Moonsniff.extract(whole(&bytes)), Err(NoKey::Foreign));
        bytes[23] = tcp::PROTOCOL;
        assert_eq!(Moonsniff.extract(whole(&bytes)), Err(NoKey::Foreign));
        assert_eq!(Moonsniff.extract(whole(&[])), Err(NoKey::Foreign));
    }

    #[test]
    fn the_quick_way_to_a_signature_gives_the_same() {
        let mut bytes = frame(&[], 0x0800, &ipv4(0));
        for length in bytes.len()..70 {
            bytes.resize(length, length as u8);
            for wire_len in [length as u32, 1500] {
                let found = signature(&bytes, wire_len);
                assert_eq!(found, odd_signature(&bytes, wire_len), "{length} of {wire_len} bytes");
                assert_eq!(found.is_ok(), length >= SIGNATURE.end || wire_len != 1500);
            }
        }
    }

    #[test]
    fn signature_ignores_checksums_and_nothing_else() {
        for (tags, ethertype, network) in
            [(&[][..], 0x0800, ipv4(0)), (&[7], 0x0800, ipv4(0)), (&[], 0x86dd, ipv6(&[]))]
        {
            let bytes = frame(tags, ethertype, &network);
            let start = 14 + 4 * tags.len();
            let udp = start + network.len();
            let mut checksums = vec![udp + 6, udp + 7];
            if ethertype == 0x0800 {
                checksums.extend([start + 10, start + 11]);
            }
            let (original, _) = Signatures.extract(whole(&bytes)).unwrap();
            for at in SIGNATURE.start..bytes.len().min(SIGNATURE.end) {
                let mut changed = bytes.clone();
                changed[at] ^= 0x40;
                // A changed length or protocol moves the checksums: those are other packets.
                let same = Signatures.extract(whole(&changed)).unwrap().0 == original;
                assert_eq!(same, checksums.contains(&at), "byte {at} of {ethertype:#x}");
            }
        }
    }

    #[test]
    fn signature_of_a_cut_frame_is_refused_and_of_a_short_one_padded() {
        let bytes = frame(&[], 0x0800, &ipv4(0));
        assert!(bytes.len() < SIGNATURE.end);
        assert!(Signatures.extract(whole(&bytes)).is_ok());
        let cut = Content::Frame { bytes: &bytes, wire_len: 100, link: Link::Ethernet };
        assert_eq!(Signatures.extract(cut).unwrap_err(), NoKey::Short);
    }

    #[test]
    fn texts_that_name_no_key_are_refused() {
        for text in ["", "moonsnif", "1:2", "1:9:le", "1:0:le", "1:2:me", "-1:2:le", "1:2:le:3"] {
            assert!(text.parse::<KeyKind>().is_err(), "{text}");
        }
        let said = "moonsnif".parse::<KeyKind>().unwrap_err().to_string();
        assert!(said.contains("packet-id, moonsniff, signature or a number"), "{said}");
    }

    #[test]
    fn a_key_for_each_side_is_a_number_of_one_width() {
        let key = |text: &str| text.parse::<KeyKind>().unwrap();
        let both = key("42:4:le").and_after(key("udp.payload+4:4:be")).unwrap();
        assert_eq!(both.sides(), [key("42:4:le"), key("udp.payload+4:4:be")]);
        assert_eq!(key("42:4:le").and_after(key("frame+42:4:le")).unwrap(), key("42:4:le"));
        assert_eq!(key("packet").sides(), [key("packet"); 2]);
        for (before, after, why) in [
            ("42:4:le", "ip.id", "'42:4:le', has 4 bytes, and that after it, 'ip.id', has 2"),
            ("packet", "ip.id", "'packet' is none"),
            ("ip.id", "moonsniff", "'moonsniff' is none"),
        ] {
            let said = key(before).and_after(key(after)).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
