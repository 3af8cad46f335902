//! Keys that follow a packet: made of what devices on the way leave as it is.
//!
//! Of a packet of IP the innermost one counts, whatever tags, labels and tunnels stand in front of it
//! on either side. Never in a key is what each hop may change: hardware addresses, tags, the time to
//! live, the class of service with its congestion marks, header checksums and options, padding and
//! whatever stands behind the packet. Of what a packet says of others it is the same: a NAT rewrites
//! addresses and ports in the packet that an error of ICMP quotes, a translator between the versions of IP
//! writes the header anew, and a transparent clock adds to PTP's correction.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;
use tailtap_wire::{ethernet, ipv4, ipv6, tag, tcp, udp};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Extract, Name, NoKey, foreign_or_short};
use crate::capture::Content;
use crate::matching::Matcher;

/// Of a long payload so many bytes count at its start, and so many at its end: an id or a number
/// stands at one of them, and the rest would have to be brought from memory.
const HEAD: usize = 128;
const TAIL: usize = 32;
/// A captured payload is cut nowhere.
const UNCUT: u32 = u32::MAX;
pub(super) const SCTP: u8 = 132;
const SCTP_LEN: usize = 12;
const UDP_LITE: u8 = 136;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;
pub(super) const ESP: u8 = 50;
const TIMESTAMPS: u8 = 8;
/// Ports and ethertype of PTP (IEEE 1588), and where its messages have their length, the flag that another
/// message follows, and what clocks on the way add.
const PTP_PORTS: [u16; 2] = [319, 320];
const PTP_ETHERTYPE: u16 = 0x88f7;
const PTP_VERSION: u8 = 2;
const PTP_HEADER_LEN: usize = 34;
const PTP_LEN: usize = 2;
const PTP_FLAGS: usize = 6;
const PTP_FOLLOWED: u8 = 0x02;
const PTP_CORRECTION: Range<usize> = 8..16;

/// What of a packet is its key, from the strictest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Keeps {
    /// Addresses and ports, the IP id, the transport header's numbers and the payload.
    All,
    /// All but addresses and ports, which a NAT or a load balancer changes.
    AcrossNat,
    /// All but the IP id, which some devices make anew.
    Flow,
    /// The transport header's numbers and the payload alone.
    Payload,
    /// Addresses and the IP id, of packets or first fragments, whatever became of the payload.
    Id,
}

impl Keeps {
    /// All, the strictest first.
    pub const ALL: [Self; 5] = [Self::All, Self::AcrossNat, Self::Flow, Self::Payload, Self::Id];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "packet",
            Self::AcrossNat => "packet-nat",
            Self::Flow => "packet-flow",
            Self::Payload => "packet-payload",
            Self::Id => "packet-id",
        }
    }

    fn addresses(self) -> bool {
        matches!(self, Self::All | Self::Flow | Self::Id)
    }

    fn id(self) -> bool {
        matches!(self, Self::All | Self::AcrossNat | Self::Id)
    }

    /// What it is made of, as people are told.
    pub fn told(self) -> &'static str {
        match self {
            Self::All => "addresses, ports, the IP id and the payload",
            Self::AcrossNat => "the IP id and the payload, as addresses or ports differ",
            Self::Flow => "addresses, ports and the payload, as the IP id differs",
            Self::Payload => "the payload, as addresses or ports and the IP id differ",
            Self::Id => "addresses and the IP id, as what stands behind the header of IP differs",
        }
    }
}

/// A key that follows a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// What it is made of.
    pub keeps: Keeps,
    /// So many bytes of the payload count at most: those that both captures have of every packet.
    pub most: u32,
}

impl Packet {
    /// The key of captures that are not cut.
    pub fn new(keeps: Keeps) -> Self {
        Self { keeps, most: UNCUT }
    }
}

/// How many bytes of a packet's payload were captured, if the capture cut it; `None` if it is whole, or
/// has no payload.
pub fn cut(bytes: &[u8], link: Link) -> Option<u32> {
    let inner = Inner::of(bytes, link)?;
    let (start, _) = payload(bytes, &inner)?;
    let captured = bytes.len().saturating_sub(start);
    (inner.end > bytes.len()).then_some(captured as u32)
}

/// A packet as people see it: its protocol, from where to where, and its IP id.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Seen {
    pub(super) protocol: Option<u8>,
    ethertype: u16,
    ends: Option<[(IpAddr, Option<u16>); 2]>,
    id: Option<u32>,
    key: u64,
}

impl Seen {
    /// Whether nothing is known of it but its key.
    fn is_mark(&self) -> bool {
        self.ends.is_none() && self.ethertype == 0
    }

    /// The same of all packets of its flow.
    pub fn of_flow(self) -> Self {
        Self { id: None, key: 0, ..self }
    }

    /// Its protocol, and from where to where it goes; its ethertype where it is not of IP; nothing where
    /// only a mark of it is left.
    pub fn flow(&self) -> String {
        let Some(ends) = self.ends else {
            return if self.is_mark() { String::new() } else { format!("{:#06x}", self.ethertype) };
        };
        let protocol = match self.protocol {
            Some(tcp::PROTOCOL) => "tcp".to_owned(),
            Some(udp::PROTOCOL) => "udp".to_owned(),
            Some(SCTP) => "sctp".to_owned(),
            Some(ICMP) => "icmp".to_owned(),
            Some(ICMPV6) => "icmpv6".to_owned(),
            number => format!("ip{}", number.unwrap_or_default()),
        };
        let [from, to] = ends.map(|(address, port)| match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        });
        format!("{protocol} {from} > {to}")
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_mark() {
            return write!(f, "{:016x}", self.key);
        }
        let flow = self.flow();
        match (self.ends, self.id) {
            (None, _) => write!(f, "{flow} {:016x}", self.key),
            (_, Some(id)) => write!(f, "{flow} id {id}"),
            (_, None) => write!(f, "{flow} {:08x}", self.key >> 32),
        }
    }
}

/// What goes into the hash beside the payload: words of numbers.
#[derive(Default)]
struct Words {
    words: [u64; 14],
    used: usize,
}

impl Words {
    #[inline]
    fn push(&mut self, word: u64) {
        self.words[self.used] = word;
        self.used += 1;
    }

    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.push(chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
    }

    #[inline]
    fn hash(&self) -> u64 {
        xxh3_64(bytemuck::bytes_of(&self.words))
    }
}

impl Extract for Packet {
    const IS_ID: bool = false;
    const IN_ORDER: bool = true;
    type Shown = Seen;
    type Matcher = Matcher;

    #[inline]
    fn extract(self, content: Content<'_>) -> Result<(u64, Seen), NoKey> {
        let (bytes, wire_len, link) = match content {
            Content::Frame { bytes, wire_len, link } => (bytes, wire_len, link),
            Content::Mark { key, .. } => return Ok((key, Seen { key, ..Seen::default() })),
            Content::Id(_) => return Err(NoKey::NoFrame),
        };
        match Inner::of(bytes, link) {
            Some(inner) => self.of_ip(bytes, &inner),
            None => self.of_others(bytes, wire_len, link),
        }
    }

    fn name(_: u64, seen: Seen) -> Name {
        Name::Packet(seen)
    }
}

impl Packet {
    #[inline]
    fn of_ip(self, bytes: &[u8], inner: &Inner) -> Result<(u64, Seen), NoKey> {
        let Inner { v6, network, transport, protocol, id, fragment, .. } = *inner;
        let keeps = self.keeps;
        let mut words = Words::default();
        let addresses = if v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
        let addresses = &bytes[network + addresses.start..network + addresses.end];
        words.push(match keeps {
            // A translator makes one version of IP the other.
            Keeps::Payload => u64::from(if protocol == ICMPV6 { ICMP } else { protocol }),
            _ => u64::from(protocol) << 8 | u64::from(v6),
        });
        if keeps.addresses() {
            words.push_bytes(addresses);
        }
        if keeps.id() {
            words.push(u64::from(id.unwrap_or_default()));
        }
        let first = inner.has_transport();
        let ports = if first { ports(bytes, inner) } else { None };
        let key = if keeps == Keeps::Id {
            if id.is_none() || !first {
                return Err(NoKey::Foreign);
            }
            words.hash()
        } else {
            words.push(fragment.map_or(0, |offset| 1 << 16 | u64::from(offset)));
            let (start, header) = payload(bytes, inner).ok_or(NoKey::Short)?;
            if first && header > 0 {
                numbers(&mut words, keeps, protocol, &bytes[transport..transport + header]);
            }
            let len = inner.end.saturating_sub(start);
            words.push(len as u64);
            let counts = len.min(self.most as usize);
            let payload = bytes.get(start..start + counts).ok_or(NoKey::Short)?;
            let is_ptp = |(from, to)| PTP_PORTS.contains(&from) || PTP_PORTS.contains(&to);
            match protocol {
                udp::PROTOCOL if ports.is_some_and(is_ptp) => {
                    hash_without(ptp, payload, words.hash())
                }
                ICMP | ICMPV6 if first && !keeps.addresses() && is_error(v6, bytes[transport]) => {
                    hash_without(quoting, payload, words.hash())
                }
                _ => hash(payload, words.hash()),
            }
        };
        let end = |at: usize| match v6 {
            true => IpAddr::V6(Ipv6Addr::from(
                <[u8; 16]>::try_from(&addresses[16 * at..][..16]).expect("16"),
            )),
            false => IpAddr::V4(Ipv4Addr::from(
                <[u8; 4]>::try_from(&addresses[4 * at..][..4]).expect("4"),
            )),
        };
        let ends = [(end(0), ports.map(|(from, _)| from)), (end(1), ports.map(|(_, to)| to))];
        Ok((key, Seen { protocol: Some(protocol), ethertype: 0, ends: Some(ends), id, key }))
    }

    /// The key of a frame without IP: what stands behind the tags, without the zeros at its end.
    #[cold]
    fn of_others(self, bytes: &[u8], wire_len: u32, link: Link) -> Result<(u64, Seen), NoKey> {
        let refused = || foreign_or_short(bytes, wire_len);
        let (ethertype, at) = behind_tags(bytes, link).ok_or_else(refused)?;
        if self.keeps == Keeps::Id || is_ip(ethertype) {
            return Err(refused());
        }
        let content = &bytes[at..];
        let content = &content[..content.len().min(self.most as usize)];
        let mut head = Head::of(content);
        let content = if ethertype == PTP_ETHERTYPE { ptp(&mut head) } else { content };
        let zeros = content.iter().rev().take_while(|&&byte| byte == 0).count();
        // A seed that is no hash cancels out differences of a short content.
        let seed = xxh3_64(&ethertype.to_be_bytes());
        let key = xxh3_64_with_seed(&content[..content.len() - zeros], seed);
        Ok((key, Seen { protocol: None, ethertype, ends: None, id: None, key }))
    }
}

/// The hash of a payload: of a long one that of its start and its end.
#[inline]
fn hash(payload: &[u8], seed: u64) -> u64 {
    if payload.len() <= HEAD + TAIL {
        return xxh3_64_with_seed(payload, seed);
    }
    let seed = xxh3_64_with_seed(&payload[..HEAD], seed);
    xxh3_64_with_seed(&payload[payload.len() - TAIL..], seed)
}

/// The hash of what a function leaves of a payload: out of line, as nearly all payloads are hashed whole.
#[cold]
#[inline(never)]
fn hash_without(leaves: fn(&mut Head) -> &[u8], payload: &[u8], seed: u64) -> u64 {
    hash(leaves(&mut Head::of(payload)), seed)
}

/// The start of a payload, of which something is to be left out.
struct Head {
    bytes: [u8; HEAD + TAIL],
    len: usize,
}

impl Head {
    fn of(payload: &[u8]) -> Self {
        let mut bytes = [0; HEAD + TAIL];
        let len = payload.len().min(bytes.len());
        bytes[..len].copy_from_slice(&payload[..len]);
        Self { bytes, len }
    }

    fn leave_out(&mut self, from: usize, part: &Range<usize>) {
        let end = self.len.min(from + part.end);
        self.bytes[(from + part.start).min(end)..end].fill(0);
    }
}

/// A message of PTP without what clocks on the way change, nor what makes up for that in its checksum.
#[cold]
fn ptp(message: &mut Head) -> &[u8] {
    let [.., version, high, low] = message.bytes[..=PTP_LEN + 1] else {
        unreachable!("four bytes")
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if version & 0x0f != PTP_VERSION || !(PTP_HEADER_LEN..=message.len).contains(&len) {
        return &message.bytes[..message.len];
    }
    message.leave_out(0, &PTP_CORRECTION);
    message.bytes[PTP_FLAGS] &= !PTP_FOLLOWED;
    &message.bytes[..len]
}

/// Whether ICMP's message of this type quotes a packet.
fn is_error(v6: bool, kind: u8) -> bool {
    if v6 { (1..=4).contains(&kind) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}

/// What an error of ICMP quotes, without what a NAT rewrites there, and what follows from that.
#[cold]
fn quoting(error: &mut Head) -> &[u8] {
    let quoted = &error.bytes[..error.len];
    if let Some(inner) = Link::of_ip(quoted).and_then(|link| Inner::of(quoted, link)) {
        if inner.v6 {
            error.leave_out(inner.network, &ipv6::ADDRESSES);
        } else {
            error.leave_out(inner.network, &ipv4::ADDRESSES);
            error.leave_out(inner.network, &ipv4::CHECKSUM);
        }
        if inner.has_transport() {
            let (ports, checksum) = match inner.protocol {
                tcp::PROTOCOL => (0..4, tcp::CHECKSUM),
                ICMP | ICMPV6 => (4..6, 2..4),
                SCTP => (0..4, 8..12),
                _ => (0..4, udp::CHECKSUM),
            };
            error.leave_out(inner.transport, &ports);
            error.leave_out(inner.transport, &checksum);
        }
    }
    &error.bytes[..error.len]
}

/// The ethertype behind the tags of a frame, and where what it names begins.
pub(super) fn behind_tags(bytes: &[u8], link: Link) -> Option<(u16, usize)> {
    let (mut at, mut ethertype) = match link {
        Link::Ethernet => (ethernet::LEN, ethernet::Header::parse(bytes)?.ethertype),
        Link::Network(protocol) => (0, protocol),
    };
    while let Some((_, len)) = tag::of(ethertype) {
        ethertype = tag::next(bytes.get(at..at + len)?);
        at += len;
    }
    Some((ethertype, at))
}

pub(super) fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, ipv4::ETHERTYPE | ipv6::ETHERTYPE)
}

/// Source and destination port of TCP, UDP and their like.
#[inline]
pub(super) fn ports(bytes: &[u8], inner: &Inner) -> Option<(u16, u16)> {
    if !matches!(inner.protocol, tcp::PROTOCOL | udp::PROTOCOL | SCTP | UDP_LITE) {
        return None;
    }
    let ports = bytes.get(inner.transport..inner.transport + 4)?;
    Some((u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])))
}

/// Where the payload begins, and how long the header before it is of which some numbers count; `None`
/// where that is cut off.
#[inline]
pub(super) fn payload(bytes: &[u8], inner: &Inner) -> Option<(usize, usize)> {
    let at = inner.transport;
    if !inner.has_transport() {
        return (at <= bytes.len()).then_some((at, 0));
    }
    let header = match inner.protocol {
        udp::PROTOCOL | UDP_LITE => udp::LEN,
        SCTP => SCTP_LEN,
        tcp::PROTOCOL => 4 * usize::from(bytes.get(at + 12)? >> 4).max(5),
        ICMP | ICMPV6 => 8,
        _ => 0,
    };
    (at + header <= bytes.len()).then_some((at + header, header))
}

/// The numbers of a transport header that devices leave as they are.
#[inline]
fn numbers(words: &mut Words, keeps: Keeps, protocol: u8, header: &[u8]) {
    match protocol {
        udp::PROTOCOL | UDP_LITE => {
            if keeps.addresses() {
                words.push_bytes(&header[..4]);
            }
        }
        SCTP => {
            if keeps.addresses() {
                words.push_bytes(&header[..4]);
            }
            words.push_bytes(&header[4..8]);
        }
        tcp::PROTOCOL => {
            if keeps.addresses() {
                words.push_bytes(&header[..4]);
            }
            words.push_bytes(&header[4..12]);
            // Not the two flags of congestion, nor the window, which some devices scale.
            words.push(u64::from(header[13] & 0x3f));
            if let Some(timestamps) = timestamps(&header[20..]) {
                words.push_bytes(timestamps);
            }
        }
        _ => {
            // ICMP's type, code and sequence number; its id is a port to a NAT. Requests and answers of
            // both versions have types of their own.
            match header[0] {
                kind @ (128 | 129) if keeps == Keeps::Payload => {
                    words.push_bytes(&[if kind == 128 { 8 } else { 0 }, header[1]]);
                }
                _ => words.push_bytes(&header[..2]),
            }
            words.push_bytes(&header[6..8]);
            if keeps.addresses() {
                words.push_bytes(&header[4..6]);
            }
        }
    }
}

/// The two numbers of TCP's option of timestamps (RFC 7323).
#[inline]
fn timestamps(mut options: &[u8]) -> Option<&[u8]> {
    // Nearly all that have it have it alone, behind two bytes of padding.
    if let Some([1, 1, TIMESTAMPS, 10]) = options.get(..4) {
        return options.get(4..12);
    }
    loop {
        match options {
            [] | [0, ..] => return None,
            [1, rest @ ..] => options = rest,
            [TIMESTAMPS, 10, rest @ ..] => return rest.get(..8),
            [_, len, ..] => options = options.get(usize::from(*len).max(2)..)?,
            [_] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of UDP, or of TCP with timestamps.
    fn frame(protocol: u8) -> Vec<u8> {
        let mut bytes = vec![2u8; ethernet::ADDRESSES_LEN];
        bytes.extend(ipv4::ETHERTYPE.to_be_bytes());
        let header = if protocol == tcp::PROTOCOL { 32 } else { 8 };
        let len = (ipv4::LEN + header + 200) as u16;
        bytes.extend([0x45, 0]);
        bytes.extend(len.to_be_bytes());
        bytes.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let mut transport = vec![0u8; header];
        transport[..4].copy_from_slice(&[0x10, 1, 0, 53]);
        if protocol == tcp::PROTOCOL {
            transport[12] = 0x80;
            transport[20..24].copy_from_slice(&[1, 1, TIMESTAMPS, 10]);
        }
        bytes.extend(transport);
        bytes.extend((0..200).map(|byte| byte as u8));
        bytes
    }

    fn key(keeps: Keeps, bytes: &[u8]) -> Result<u64, NoKey> {
        let content = Content::Frame { bytes, wire_len: bytes.len() as u32, link: Link::Ethernet };
        Packet::new(keeps).extract(content).map(|found| found.0)
    }

    /// The bytes of a frame of which each changes the key.
    fn kept(keeps: Keeps, bytes: &[u8]) -> Vec<usize> {
        let original = key(keeps, bytes);
        let changes = |at: &usize| {
            let mut changed = bytes.to_owned();
            changed[*at] ^= 0x01;
            key(keeps, &changed) != original
        };
        (0..bytes.len()).filter(changes).collect()
    }

    #[test]
    fn what_hops_change_is_in_no_key() {
        for protocol in [udp::PROTOCOL, tcp::PROTOCOL] {
            let bytes = frame(protocol);
            for keeps in Keeps::ALL {
                let kept = kept(keeps, &bytes);
                // Hardware addresses, class of service, time to live, both checksums.
                let transport = 34;
                let sum = if protocol == udp::PROTOCOL { 40..42 } else { 50..52 };
                for at in (0..12).chain([15, 22, 24, 25]).chain(sum) {
                    assert!(!kept.contains(&at), "byte {at} is in {keeps:?}");
                }
                assert_eq!(kept.contains(&18), keeps.id(), "{keeps:?}");
                assert_eq!(kept.contains(&26), keeps.addresses(), "{keeps:?}");
                let ports = keeps.addresses() && keeps != Keeps::Id;
                assert_eq!(kept.contains(&transport), ports, "{keeps:?}");
                let payload = bytes.len() - 200;
                let content = keeps != Keeps::Id;
                for at in [payload, payload + HEAD - 1, bytes.len() - TAIL, bytes.len() - 1] {
                    assert_eq!(kept.contains(&at), content, "byte {at}, {keeps:?}");
                }
                if protocol == tcp::PROTOCOL {
                    // Sequence number and timestamps.
                    assert_eq!(kept.contains(&38) && kept.contains(&61), content);
                }
            }
        }
    }

    #[test]
    fn a_cut_payload_counts_as_far_as_both_captures_have_it() {
        let bytes = frame(udp::PROTOCOL);
        let link = Link::Ethernet;
        let cut_at = |len: usize| Content::Frame { bytes: &bytes[..len], wire_len: 242, link };
        assert_eq!(cut(&bytes, link), None);
        assert_eq!(cut(&bytes[..70], link), Some(28));
        assert_eq!(cut(&bytes[..230], link), Some(188));
        let long = Packet { keeps: Keeps::All, most: 188 };
        assert_eq!(long.extract(cut_at(230)), long.extract(cut_at(bytes.len())));
        assert_eq!(Packet::new(Keeps::All).extract(cut_at(70)), Err(NoKey::Short));
        let packet = Packet { keeps: Keeps::All, most: 28 };
        assert_eq!(packet.extract(cut_at(70)), packet.extract(cut_at(bytes.len())));
        assert_eq!(packet.extract(cut_at(60)), Err(NoKey::Short));
    }

    #[test]
    fn what_stands_behind_a_packet_is_not_in_its_key() {
        let bytes = frame(udp::PROTOCOL);
        let longer = [&bytes[..], &[7; 18]].concat();
        for keeps in Keeps::ALL {
            assert_eq!(key(keeps, &bytes), key(keeps, &longer));
        }
    }

    #[test]
    fn a_packet_without_its_ethernet_header_has_the_same_key() {
        let arp =
            [&[2; 12][..], &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1], &[7; 18], &[0; 18]].concat();
        for (bytes, end) in [(frame(udp::PROTOCOL), 242), (frame(tcp::PROTOCOL), 266), (arp, 42)] {
            let link = Link::Network(u16::from_be_bytes([bytes[12], bytes[13]]));
            let cooked = Content::Frame { bytes: &bytes[14..end], wire_len: end as u32 - 14, link };
            for keeps in Keeps::ALL {
                let found = Packet::new(keeps).extract(cooked).map(|found| found.0);
                assert_eq!(found, key(keeps, &bytes), "{keeps:?}");
            }
        }
    }

    #[test]
    fn timestamps_are_found_anywhere_among_options() {
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8];
        let option = [&[TIMESTAMPS, 10][..], &numbers].concat();
        for before in [&[][..], &[1], &[1, 1], &[2, 4, 5, 0xb4], &[2, 4, 5, 0xb4, 4, 2]] {
            assert_eq!(timestamps(&[before, &option].concat()), Some(&numbers[..]));
        }
        for none in [&[][..], &[0, TIMESTAMPS, 10], &[1], &[3], &[3, 0, 0], &option[..6]] {
            assert_eq!(timestamps(none), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_key_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0..200usize,
            most in prop_oneof![Just(UNCUT), 0..64u32],
            protocol in prop_oneof![Just(tcp::PROTOCOL), Just(udp::PROTOCOL), Just(ICMP), any::<u8>()],
        ) {
            let plain = frame(protocol);
            for (byte, &plain) in bytes.iter_mut().zip(&plain).skip(12).take(13) {
                *byte = plain;
            }
            let wire_len = bytes.len() as u32;
            let bytes = &bytes[..cut.min(bytes.len())];
            for (keeps, link) in Keeps::ALL.into_iter().flat_map(|keeps| {
                [Link::Ethernet, Link::Network(ipv4::ETHERTYPE)].map(|link| (keeps, link))
            }) {
                let _ = super::cut(bytes, link);
                let content = Content::Frame { bytes, wire_len, link };
                if let Ok((key, seen)) = (Packet { keeps, most }).extract(content) {
                    let _ = Packet::name(key, seen).to_string();
                }
            }
        }
    }
}
