//! A packet as the protocols of transactions see it.

use std::fmt;
use std::net::IpAddr;

use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;
use tailtap_wire::{ipv4, ipv6, tcp, udp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::capture::{self, Content};

/// Which messages a packet may hold: those of a capture of its own hold requests or answers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Both,
    Requests,
    Answers,
}

/// A packet, as much as was captured of it.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    pub time_ns: u64,
    /// Its place among all packets.
    pub number: u64,
    pub part: Part,
    pub frame: &'a [u8],
    pub wire_len: u32,
    pub link: Link,
    pub inner: Option<Inner>,
    /// Where it was captured, and whether the machine there sent it, as captures have it.
    pub interface: u32,
    pub outgoing: Option<bool>,
}

impl<'a> Packet<'a> {
    /// A packet of a capture; `None` where that holds no frames.
    pub fn of(packet: &capture::Packet<'a>, number: u64, part: Part) -> Option<Self> {
        let capture::Packet { time_ns, interface, outgoing, content } = *packet;
        let Content::Frame { bytes: frame, wire_len, link } = content else { return None };
        let inner = Inner::of(frame, link);
        Some(Self { time_ns, number, part, frame, wire_len, link, inner, interface, outgoing })
    }

    /// Whether requests are looked for in it.
    pub fn may_ask(&self) -> bool {
        self.part != Part::Answers
    }

    /// Whether answers are looked for in it.
    pub fn may_answer(&self) -> bool {
        self.part != Part::Requests
    }

    /// The packet as captures have it.
    pub fn content(&self) -> Content<'a> {
        Content::Frame { bytes: self.frame, wire_len: self.wire_len, link: self.link }
    }

    /// Whether it was cut where it was captured.
    pub fn is_cut(&self) -> bool {
        self.inner.is_some_and(|inner| inner.end > self.frame.len())
            || self.frame.len() < self.wire_len as usize
    }

    /// The bytes from an offset of the transport header on, to the end of the packet of IP or of what was
    /// captured.
    pub fn transport(&self, inner: &Inner, offset: usize) -> &'a [u8] {
        let end = inner.end.min(self.frame.len());
        self.frame.get(inner.transport + offset..end).unwrap_or_default()
    }

    /// The payload of UDP, and its ports; `None` for others.
    pub fn udp(&self) -> Option<Udp<'a>> {
        let inner = self.inner.filter(|inner| inner.protocol == udp::PROTOCOL)?;
        if !inner.has_transport() {
            return None;
        }
        let header = udp::Header::parse(self.transport(&inner, 0))?;
        let payload = self.transport(&inner, udp::LEN);
        Some(Udp { source: header.source, destination: header.destination, payload, inner })
    }

    /// Its addresses.
    fn addresses(&self, inner: &Inner) -> (&'a [u8], &'a [u8]) {
        let place = if inner.v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
        let header = self.frame.get(inner.network..).unwrap_or_default();
        let both = header.get(place).unwrap_or_default();
        both.split_at(both.len() / 2)
    }

    /// Its two ends, source first. Ports are 0 where the protocol has none.
    pub fn ends(&self) -> Ends {
        let mut ends = Ends::default();
        let Some(inner) = &self.inner else {
            // Hardware addresses, where there is no IP.
            if let Some(both) = self.frame.first_chunk::<12>()
                && self.link == Link::Ethernet
            {
                ends.from[..6].copy_from_slice(&both[6..]);
                ends.to[..6].copy_from_slice(&both[..6]);
            }
            return ends;
        };
        let (source, destination) = self.addresses(inner);
        ends.from[..source.len()].copy_from_slice(source);
        ends.to[..source.len()].copy_from_slice(destination);
        ends.len = source.len() as u8;
        if matches!(inner.protocol, udp::PROTOCOL | tcp::PROTOCOL)
            && let Some(ports) = self.transport(inner, 0).first_chunk::<4>()
        {
            ends.from[16..].copy_from_slice(&ports[..2]);
            ends.to[16..].copy_from_slice(&ports[2..]);
        }
        ends
    }

    /// Whether it goes to a group of hosts.
    pub fn is_multicast(&self, inner: &Inner) -> bool {
        let (_, destination) = self.addresses(inner);
        match (inner.v6, destination.first()) {
            (true, Some(first)) => *first == 0xff,
            (false, Some(first)) => first >> 4 == 0xe,
            _ => false,
        }
    }
}

/// A datagram of UDP.
#[derive(Clone, Copy)]
pub(super) struct Udp<'a> {
    pub source: u16,
    pub destination: u16,
    pub payload: &'a [u8],
    pub inner: Inner,
}

impl Udp<'_> {
    /// Whether one of the ends has this port.
    pub fn is_of(&self, port: u16) -> bool {
        self.source == port || self.destination == port
    }
}

/// Addresses and ports of a packet.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ends {
    from: [u8; 18],
    to: [u8; 18],
    /// Length of the addresses; 0 for hardware addresses.
    len: u8,
}

impl Ends {
    /// The same, seen from the other end.
    pub fn turned(self) -> Self {
        Self { from: self.to, to: self.from, len: self.len }
    }

    /// The same with the lower end first, and whether that is the source.
    pub fn sorted(self) -> (Self, bool) {
        if self.from <= self.to { (self, true) } else { (self.turned(), false) }
    }

    /// Whether a machine speaks to itself.
    pub fn is_local(&self) -> bool {
        self.from[..16] == self.to[..16] || self.len == 4 && self.from[0] == 127
    }

    /// A hash of both ends and of a number.
    #[inline]
    pub fn hash(&self, number: u64) -> u64 {
        let mut both = [0; 36];
        both[..18].copy_from_slice(&self.from);
        both[18..].copy_from_slice(&self.to);
        xxh3_64_with_seed(&both, number)
    }

    fn end(&self, end: &[u8; 18]) -> String {
        let port = u16::from_be_bytes([end[16], end[17]]);
        let address: IpAddr = match self.len {
            4 => <[u8; 4]>::try_from(&end[..4]).expect("four bytes").into(),
            16 => <[u8; 16]>::try_from(&end[..16]).expect("sixteen bytes").into(),
            _ => {
                return end[..6]
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<Vec<_>>()
                    .join(":");
            }
        };
        match (address, port) {
            (address, 0) => address.to_string(),
            (IpAddr::V6(address), port) => format!("[{address}]:{port}"),
            (address, port) => format!("{address}:{port}"),
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.end(&self.from), self.end(&self.to))
    }
}

/// A number of two bytes, most significant first; `None` where they are not there.
#[inline]
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number of four bytes, most significant first; `None` where they are not there.
#[inline]
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number of eight bytes, most significant first; `None` where they are not there.
#[inline]
pub(super) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
