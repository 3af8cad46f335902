//! The innermost IP packet of a frame, behind tags, labels and tunnels.
//!
//! A device on the way may add and remove all that stands in front of it: [tags](tag), MPLS labels
//! (RFC 3032, also in front of Ethernet, RFC 4448, and in UDP, RFC 7510), PPPoE (RFC 2516), IP in IP
//! (RFC 2003, 4213), Ethernet in IP (RFC 3378, and of segment routing, RFC 8986), GRE (RFC 2784, 2890;
//! ERSPAN of types I to III, PPTP), VXLAN (RFC 7348, and its generic extension), Geneve (RFC 8926), GTP-U
//! (3GPP TS 29.281) and L2TP (RFC 2661, 3931). A header that could be one of these and does not make
//! sense is payload.

use crate::link::Link;
pub use crate::tag::Kind;
use crate::{ethernet, ipv4, ipv6, tag, u16_at, udp};

/// Headers in headers deeper than this are payload: nobody nests so many, and time has an end.
const DEPTH: usize = 16;

const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const MPLS_LEN: usize = 4;
const CONTROL_WORD: usize = 4;
const PPPOE_SESSION: u16 = 0x8864;
const PPPOE_LEN: usize = 8;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// Address and control of PPP, which may be left out.
const PPP_UNNUMBERED: [u8; 2] = [0xff, 0x03];
const PPP_IN_GRE: u16 = 0x880b;
const TRANSPARENT_ETHERNET: u16 = 0x6558;
const ERSPAN: u16 = 0x88be;
const ERSPAN_LEN: usize = 8;
const ERSPAN_III: u16 = 0x22eb;
const ERSPAN_III_LEN: usize = 12;
const ERSPAN_III_OF_IP: u8 = 2;

const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const AUTHENTICATION: u8 = 51;
const ETHERNET_IN_IP: u8 = 97;
const ETHERNET_IN_IP_LEN: usize = 2;
const L2TP: u8 = 115;
const ETHERNET_IN_SEGMENTS: u8 = 143;

const VXLAN_PORT: u16 = 4789;
const OLD_VXLAN_PORT: u16 = 8472;
const VXLAN_GPE_PORT: u16 = 4790;
const GENEVE_PORT: u16 = 6081;
const GTP_U_PORT: u16 = 2152;
const MPLS_PORT: u16 = 6635;
const L2TP_PORT: u16 = 1701;
const TUNNEL_LEN: usize = 8;
const GTP_PACKET: u8 = 0xff;
/// Flags of L2TP's second version: a control message, and what the header has.
const L2TP_CONTROL: u8 = 0x80;
const L2TP_LENGTH: u8 = 0x40;
const L2TP_SEQUENCE: u8 = 0x08;
const L2TP_OFFSET: u8 = 0x02;
/// Cookie and sublayer behind the session of L2TP's third version, which no header tells.
const L2TP_BEHIND_SESSION: [usize; 4] = [0, 4, 8, 12];

/// What follows at a place of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Ethernet,
    Protocol(u16),
}

impl Next {
    fn behind(link: Link) -> Self {
        match link {
            Link::Ethernet => Self::Ethernet,
            Link::Network(protocol) => Self::Protocol(protocol),
        }
    }
}

/// The innermost IP packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// Whether it is of IPv6.
    pub v6: bool,
    /// Where its header begins.
    pub network: usize,
    /// Where it ends as its header says, which may be beyond what was captured; what stands behind is
    /// no part of it (padding of short frames, checks, trailers).
    pub end: usize,
    /// The protocol behind the IP header and all its extensions.
    pub protocol: u8,
    /// Where the header of that protocol begins, or the rest of a later fragment.
    pub transport: usize,
    /// What fragments of one packet have in common; of IPv6 only where it is a fragment.
    pub id: Option<u32>,
    /// Whether it is a fragment, and where its payload was, in units of 8 bytes.
    pub fragment: Option<u16>,
    /// How many headers of IP are in front of it.
    pub tunnels: usize,
}

impl Inner {
    /// Finds it in bytes that begin as `link` says. `None` for a frame without IP, or whose IP header
    /// is cut off.
    #[inline]
    pub fn of(frame: &[u8], link: Link) -> Option<Self> {
        // Most packets are in no tunnel, and one look tells.
        if link == Link::Ethernet && matches!(frame.get(12..15), Some([0x08, 0x00, 0x45])) {
            let next = Next::Protocol(ipv4::ETHERTYPE);
            return Self::within(frame, ethernet::LEN, next, &mut |_, _| {});
        }
        Self::of_others(frame, link)
    }

    /// The same in bytes that do not begin like most.
    #[inline(never)]
    fn of_others(frame: &[u8], link: Link) -> Option<Self> {
        Self::within(frame, 0, Next::behind(link), &mut |_, _| {})
    }

    /// Finds it, and shows `see` each header on the way and where it begins, to the innermost IP. What
    /// turns out to be payload may have been shown as well.
    pub fn seen(frame: &[u8], link: Link, mut see: impl FnMut(Kind, usize)) -> Option<Self> {
        Self::within(frame, 0, Next::behind(link), &mut see)
    }

    #[inline]
    fn within(
        frame: &[u8],
        mut at: usize,
        mut next: Next,
        see: &mut impl FnMut(Kind, usize),
    ) -> Option<Self> {
        let mut found: Option<Self> = None;
        for _ in 0..DEPTH {
            let Some((protocol, begin)) = network(frame, at, next, see) else { break };
            let Some(mut packet) = Self::at(frame, begin, protocol) else { break };
            packet.tunnels = found.map_or(0, |outer| outer.tunnels + 1);
            found = Some(packet);
            see(Kind::Ip, begin);
            match packet.carried(frame, see) {
                Some((place, kind)) => (at, next) = (place, kind),
                None => break,
            }
        }
        found
    }

    /// The packet whose IP header begins here.
    #[inline]
    fn at(frame: &[u8], network: usize, ethertype: u16) -> Option<Self> {
        let packet = frame.get(network..)?;
        match ethertype {
            ipv4::ETHERTYPE if packet.first()? >> 4 == 4 => {
                let header = ipv4::Header::parse(packet)?;
                let flags = u16_at(packet, 6);
                // Offloads leave the length of a packet that is yet to be cut at zero.
                let total = usize::from(header.total_len);
                let len = if total < header.len { packet.len() } else { total };
                Some(Self {
                    v6: false,
                    network,
                    end: network + len,
                    protocol: header.protocol,
                    transport: network + header.len,
                    id: Some(u32::from(header.id)),
                    fragment: (flags & 0x3fff != 0).then_some(flags & 0x1fff),
                    tunnels: 0,
                })
            }
            ipv6::ETHERTYPE if packet.first()? >> 4 == 6 => {
                let header = ipv6::Header::parse(packet)?;
                let payload = usize::from(header.payload_len);
                let len = if payload == 0 { packet.len() } else { ipv6::LEN + payload };
                let mut found = Self {
                    v6: true,
                    network,
                    end: network + len,
                    protocol: header.next_header,
                    transport: network + ipv6::LEN,
                    id: None,
                    fragment: None,
                    tunnels: 0,
                };
                while ipv6::Extension::is(found.protocol) {
                    let extension =
                        ipv6::Extension::parse(found.protocol, frame.get(found.transport..)?)?;
                    found.protocol = extension.next_header;
                    found.transport += extension.len;
                    if let Some((id, offset)) = extension.fragment {
                        found.id = Some(id);
                        found.fragment = Some(offset);
                        if offset != 0 {
                            break;
                        }
                    }
                }
                Some(found)
            }
            _ => None,
        }
    }

    /// Whether it has a header of its transport protocol: it is no later fragment.
    pub fn has_transport(&self) -> bool {
        self.fragment.is_none_or(|offset| offset == 0)
    }

    /// What a tunnel carries, and where that begins.
    #[inline]
    fn carried(&self, frame: &[u8], see: &mut impl FnMut(Kind, usize)) -> Option<(usize, Next)> {
        let at = self.transport;
        if !self.has_transport() {
            return None;
        }
        match self.protocol {
            udp::PROTOCOL => {
                let ports = frame.get(at..at + 4)?;
                let (from, to) = (u16_at(ports, 0), u16_at(ports, 2));
                let (port, kind) = match to {
                    VXLAN_PORT | OLD_VXLAN_PORT | VXLAN_GPE_PORT => (to, Kind::Vxlan),
                    GENEVE_PORT => (to, Kind::Geneve),
                    GTP_U_PORT => (to, Kind::GtpU),
                    MPLS_PORT => (to, Kind::Named("UDP")),
                    _ if [from, to].contains(&L2TP_PORT) => (L2TP_PORT, Kind::Named("L2TP")),
                    _ => return None,
                };
                let carried = tunnel_by_udp(frame, at + udp::LEN, port)?;
                see(kind, at + udp::LEN);
                Some(carried)
            }
            ETHERNET_IN_SEGMENTS => Some((at, Next::Ethernet)),
            ETHERNET_IN_IP => {
                see(Kind::Named("EtherIP"), at);
                Some((at + ETHERNET_IN_IP_LEN, Next::Ethernet))
            }
            L2TP => {
                let session = frame.get(at..at + 4)?;
                let carried = pseudowire(frame, at + session.len())?;
                see(Kind::Named("L2TP"), at);
                Some(carried)
            }
            IP_IN_IP => Some((at, Next::Protocol(ipv4::ETHERTYPE))),
            IPV6_IN_IP => Some((at, Next::Protocol(ipv6::ETHERTYPE))),
            GRE => {
                let carried = tunnel_by_gre(frame, at)?;
                see(Kind::Gre, at);
                Some(carried)
            }
            AUTHENTICATION => {
                let header = frame.get(at..at + 2)?;
                let next = match header[0] {
                    IP_IN_IP => ipv4::ETHERTYPE,
                    IPV6_IN_IP => ipv6::ETHERTYPE,
                    _ => return None,
                };
                see(Kind::Authentication, at);
                Some((at + 4 * (usize::from(header[1]) + 2), Next::Protocol(next)))
            }
            _ => None,
        }
    }
}

/// The ethertype of the IP header behind tags and labels, and where it begins.
#[inline]
fn network(
    frame: &[u8],
    mut at: usize,
    next: Next,
    see: &mut impl FnMut(Kind, usize),
) -> Option<(u16, usize)> {
    let mut protocol = match next {
        Next::Protocol(protocol) => protocol,
        Next::Ethernet => {
            see(Kind::Ethernet, at);
            at += ethernet::LEN;
            u16_at(frame.get(at - 2..at)?, 0)
        }
    };
    for _ in 0..DEPTH {
        match protocol {
            ipv4::ETHERTYPE | ipv6::ETHERTYPE => return Some((protocol, at)),
            PPPOE_SESSION => {
                protocol = by_ppp(u16_at(frame.get(at..at + PPPOE_LEN)?, 6))?;
                see(Kind::Pppoe, at);
                at += PPPOE_LEN;
            }
            MPLS | MPLS_MULTICAST => {
                loop {
                    let label = frame.get(at..at + MPLS_LEN)?;
                    see(Kind::Mpls, at);
                    at += MPLS_LEN;
                    if label[2] & 1 == 1 {
                        break;
                    }
                }
                // Nothing says what is behind the last label but that itself.
                protocol = match frame.get(at)? >> 4 {
                    4 => ipv4::ETHERTYPE,
                    6 => ipv6::ETHERTYPE,
                    0 => {
                        see(Kind::Ethernet, at + CONTROL_WORD);
                        at += CONTROL_WORD + ethernet::LEN;
                        u16_at(frame.get(at - 2..at)?, 0)
                    }
                    _ => return None,
                };
            }
            _ => {
                let (kind, len) = tag::of(protocol)?;
                protocol = tag::next(frame.get(at..at + len)?);
                see(kind, at);
                at += len;
            }
        }
    }
    None
}

/// The ethertype of what PPP carries, if that is IP.
fn by_ppp(protocol: u16) -> Option<u16> {
    match protocol {
        PPP_IPV4 => Some(ipv4::ETHERTYPE),
        PPP_IPV6 => Some(ipv6::ETHERTYPE),
        _ => None,
    }
}

/// What a frame of PPP carries, whose protocol may be written in one byte.
fn ppp(frame: &[u8], mut at: usize) -> Option<(usize, Next)> {
    at += if frame.get(at..)?.starts_with(&PPP_UNNUMBERED) { PPP_UNNUMBERED.len() } else { 0 };
    let (protocol, len) = match *frame.get(at..at + 2)? {
        [short, _] if short & 1 == 1 => (u16::from(short), 1),
        [high, low] => (u16::from_be_bytes([high, low]), 2),
        _ => return None,
    };
    Some((at + len, Next::Protocol(by_ppp(protocol)?)))
}

/// Ethernet behind the session of L2TP's third version: where it makes sense.
fn pseudowire(frame: &[u8], at: usize) -> Option<(usize, Next)> {
    let places = L2TP_BEHIND_SESSION.map(|len| at + len);
    let makes_sense = |&place: &usize| {
        let found = network(frame, place, Next::Ethernet, &mut |_, _| {});
        found.is_some_and(|(protocol, begin)| Inner::at(frame, begin, protocol).is_some())
    };
    places.into_iter().find(makes_sense).map(|place| (place, Next::Ethernet))
}

#[cold]
fn tunnel_by_udp(frame: &[u8], at: usize, port: u16) -> Option<(usize, Next)> {
    let header = frame.get(at..at + TUNNEL_LEN)?;
    let behind = at + TUNNEL_LEN;
    match port {
        GENEVE_PORT => {
            let options = 4 * usize::from(header[0] & 0x3f);
            let next = match u16_at(header, 2) {
                TRANSPARENT_ETHERNET => Next::Ethernet,
                protocol @ (ipv4::ETHERTYPE | ipv6::ETHERTYPE) => Next::Protocol(protocol),
                _ => return None,
            };
            (header[0] >> 6 == 0 && header[7] == 0).then_some((behind + options, next))
        }
        GTP_U_PORT => {
            if header[0] & 0xf0 != 0x30 || header[1] != GTP_PACKET {
                return None;
            }
            let mut place = behind;
            if header[0] & 0x07 != 0 {
                let options = frame.get(behind..behind + 4)?;
                place += 4;
                let mut extension = options[3];
                while extension != 0 {
                    let len = 4 * usize::from(*frame.get(place)?);
                    if len == 0 {
                        return None;
                    }
                    place += len;
                    extension = *frame.get(place - 1)?;
                }
            }
            ip_by_version(frame, place)
        }
        MPLS_PORT => Some((at, Next::Protocol(MPLS))),
        L2TP_PORT => match header[1] & 0x0f {
            _ if header[0] & L2TP_CONTROL != 0 => None,
            2 => {
                let has = |flag: u8| usize::from(header[0] & flag != 0);
                let place = at + 6 + 2 * has(L2TP_LENGTH) + 4 * has(L2TP_SEQUENCE);
                match has(L2TP_OFFSET) {
                    0 => ppp(frame, place),
                    _ => {
                        let pad = usize::from(u16_at(frame.get(place..place + 2)?, 0));
                        ppp(frame, place + 2 + pad)
                    }
                }
            }
            3 => pseudowire(frame, behind),
            _ => None,
        },
        VXLAN_GPE_PORT if header[0] & 0x04 != 0 && header[3] != 3 => ip_by_version(frame, behind),
        _ => {
            let valid = header[0] & 0x08 != 0 && header[7] == 0;
            valid.then_some((behind, Next::Ethernet))
        }
    }
}

#[cold]
fn tunnel_by_gre(frame: &[u8], at: usize) -> Option<(usize, Next)> {
    let header = frame.get(at..at + 4)?;
    let flags = header[0];
    if header[1] & 0x07 == 1 && u16_at(header, 2) == PPP_IN_GRE {
        let numbers = usize::from(flags & 0x10 != 0) + usize::from(header[1] & 0x80 != 0);
        return ppp(frame, at + 8 + 4 * numbers);
    }
    if header[1] & 0x07 != 0 {
        return None;
    }
    let options = [0x80, 0x20, 0x10].iter().filter(|&&flag| flags & flag != 0).count();
    let behind = at + 4 + 4 * options;
    match u16_at(header, 2) {
        TRANSPARENT_ETHERNET => Some((behind, Next::Ethernet)),
        // Type I has no sequence number and no header of its own.
        ERSPAN if flags & 0x10 == 0 => Some((behind, Next::Ethernet)),
        ERSPAN => Some((behind + ERSPAN_LEN, Next::Ethernet)),
        ERSPAN_III => {
            let &[.., kind, last] = frame.get(behind..behind + ERSPAN_III_LEN)? else {
                return None;
            };
            // A subheader of the platform follows where the last bit says so.
            let place = behind + ERSPAN_III_LEN + 8 * usize::from(last & 1);
            match kind >> 2 & 0x1f {
                ERSPAN_III_OF_IP => ip_by_version(frame, place),
                _ => Some((place, Next::Ethernet)),
            }
        }
        protocol => Some((behind, Next::Protocol(protocol))),
    }
}

fn ip_by_version(frame: &[u8], at: usize) -> Option<(usize, Next)> {
    match frame.get(at)? >> 4 {
        4 => Some((at, Next::Protocol(ipv4::ETHERTYPE))),
        6 => Some((at, Next::Protocol(ipv6::ETHERTYPE))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tcp, vlan};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn v4(protocol: u8, carried: &[u8]) -> Vec<u8> {
        let mut header = Vec::from([0; ipv4::LEN]);
        header[0] = 0x45;
        header[2..4].copy_from_slice(&((ipv4::LEN + carried.len()) as u16).to_be_bytes());
        header[4..6].copy_from_slice(&[0x12, 0x34]);
        header[9] = protocol;
        header.extend(carried);
        header
    }

    fn v6(next: u8, carried: &[u8]) -> Vec<u8> {
        let mut header = Vec::from([0; ipv6::LEN]);
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(carried.len() as u16).to_be_bytes());
        header[6] = next;
        header.extend(carried);
        header
    }

    fn ethernet(ethertype: u16, carried: &[u8]) -> Vec<u8> {
        let mut frame = Vec::from([2; ethernet::ADDRESSES_LEN]);
        frame.extend(ethertype.to_be_bytes());
        frame.extend(carried);
        frame
    }

    fn udp_to(port: u16, carried: &[u8]) -> Vec<u8> {
        let mut header = Vec::from([0x12, 0x34]);
        header.extend(port.to_be_bytes());
        header.extend([0; 4]);
        header.extend(carried);
        header
    }

    fn with(head: &[u8], rest: &[u8]) -> Vec<u8> {
        [head, rest].concat()
    }

    /// The innermost packet of all: it ends in these bytes.
    fn innermost() -> Vec<u8> {
        v4(udp::PROTOCOL, &udp_to(53, b"the payload"))
    }

    #[test]
    fn the_innermost_packet_is_found_in_any_tunnel() {
        let inner = innermost();
        let frame = ethernet(ipv4::ETHERTYPE, &inner);
        let gre = |flags: u8, options: &[u8], protocol: u16, carried: &[u8]| {
            let [a, b] = protocol.to_be_bytes();
            v4(GRE, &[&[flags, 0, a, b], options, carried].concat())
        };
        let cases = [
            (0, frame.clone()),
            (0, ethernet(vlan::ETHERTYPE, &with(&[0, 5, 0x08, 0x00], &inner))),
            (0, ethernet(vlan::OUTER_ETHERTYPE, &with(&[0, 5, 0x81, 0, 0, 6, 0x08, 0], &inner))),
            (0, ethernet(MPLS, &with(&[0, 1, 0, 9, 0, 1, 0x11, 9], &inner))),
            (0, ethernet(MPLS, &[&[0, 1, 0x11, 9, 0, 0, 0, 0], &frame[..]].concat())),
            (0, ethernet(PPPOE_SESSION, &with(&[0x11, 0, 0, 3, 0, 40, 0, 0x21], &inner))),
            (1, ethernet(ipv4::ETHERTYPE, &v4(IP_IN_IP, &inner))),
            (2, ethernet(ipv6::ETHERTYPE, &v6(IPV6_IN_IP, &v6(IP_IN_IP, &inner)))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0, &[], ipv4::ETHERTYPE, &inner))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0xb0, &[7; 12], ipv4::ETHERTYPE, &inner))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0x20, &[7; 4], TRANSPARENT_ETHERNET, &frame))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0x10, &[7; 12], ERSPAN, &frame))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0, &[], ERSPAN, &frame))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0, &[], MPLS, &with(&[0, 1, 0x11, 9], &inner)))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0x10, &[6; 16], ERSPAN_III, &frame))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0x10, &[1; 24], ERSPAN_III, &frame))),
            (1, ethernet(ipv4::ETHERTYPE, &gre(0x10, &[8; 16], ERSPAN_III, &inner))),
            (1, ethernet(ipv6::ETHERTYPE, &v6(ETHERNET_IN_SEGMENTS, &frame))),
            (1, ethernet(ipv4::ETHERTYPE, &v4(ETHERNET_IN_IP, &with(&[0x30, 0], &frame)))),
            (1, ethernet(ipv4::ETHERTYPE, &v4(L2TP, &with(&[0, 0, 0, 9, 0, 0, 0, 0], &frame)))),
            (0, ethernet(0xf1c1, &with(&[0, 0, 0, 9, 0x08, 0x00], &inner))),
            (0, ethernet(0x892f, &with(&[0x10, 60, 0, 9, 0x81, 0, 0, 5, 0x08, 0x00], &inner))),
            (0, ethernet(0x893f, &with(&[0, 0, 0, 9, 0, 0, 0x08, 0x00], &inner))),
            (0, ethernet(0x8909, &with(&[1, 1, 0, 1, 0, 9, 0x08, 0x00], &inner))),
        ];
        let tunnel = |port, head: &[u8], carried: &[u8]| {
            let carried = udp_to(port, &with(head, carried));
            ethernet(ipv4::ETHERTYPE, &v4(udp::PROTOCOL, &carried))
        };
        let more = [
            (1, tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &frame)),
            (1, tunnel(6081, &[1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4], &frame)),
            (1, tunnel(6081, &[0, 0, 0x08, 0x00, 0, 0, 42, 0], &inner)),
            (1, tunnel(2152, &[0x30, 255, 0, 40, 0, 0, 0, 5], &inner)),
            (1, tunnel(4790, &[0x0c, 0, 0, 3, 0, 0, 42, 0], &frame)),
            (1, tunnel(4790, &[0x0c, 0, 0, 1, 0, 0, 42, 0], &inner)),
            (1, tunnel(6635, &[0, 6, 0x41, 64], &inner)),
            (1, tunnel(1701, &[0, 2, 0, 1, 0, 1, 0xff, 3, 0, 0x21], &inner)),
            (1, tunnel(1701, &[0x4a, 2, 0, 40, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 9, 9, 0x21], &inner)),
            (1, tunnel(1701, &[0, 3, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 0, 0, 0, 0], &frame)),
            // A sequence number, and an extension header of four bytes.
            (1, tunnel(2152, &[0x36, 255, 0, 48, 0, 0, 0, 5, 0, 1, 0, 0x85, 1, 0, 9, 0], &inner)),
        ];
        for (tunnels, frame) in cases.into_iter().chain(more) {
            let found = Inner::of(&frame, Link::Ethernet).expect("a packet of IP");
            assert_eq!(found.tunnels, tunnels, "{frame:02x?}");
            assert_eq!(&frame[found.network..], inner, "{frame:02x?}");
            assert_eq!((found.end, found.id), (frame.len(), Some(0x1234)));
            assert_eq!(found.transport, found.network + ipv4::LEN);
            let mut last = None;
            assert_eq!(
                Inner::seen(&frame, Link::Ethernet, |kind, at| last = Some((kind, at))),
                Some(found)
            );
            assert_eq!(last, Some((Kind::Ip, found.network)));
            let cooked = &frame[ethernet::LEN..];
            let carried = Link::Network(u16_at(&frame, ethernet::ADDRESSES_LEN));
            let same = Inner::of(cooked, carried).expect("a packet of IP");
            assert_eq!((same.tunnels, same.protocol), (tunnels, found.protocol));
            assert_eq!(same.network + ethernet::LEN, found.network);
        }
    }

    #[test]
    fn what_is_no_tunnel_is_payload() {
        let odd = [
            udp_to(4789, &[0, 0, 0, 0, 0, 0, 42, 0, 1, 2, 3]),
            udp_to(6081, &[0xc0, 0, 0x65, 0x58, 0, 0, 42, 0]),
            udp_to(2152, &[0x30, 1, 0, 0, 0, 0, 0, 0]),
            udp_to(53, &[8, 0, 0, 0, 0, 0, 42, 0]),
            udp_to(1701, &[0xc8, 2, 0, 20, 0, 1, 0, 1, 0, 0, 0, 0]),
            udp_to(1701, &[0, 3, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        for carried in odd {
            let packet = v4(udp::PROTOCOL, &carried);
            let found = Inner::of(&ethernet(ipv4::ETHERTYPE, &packet), Link::Ethernet)
                .expect("a packet of IP");
            assert_eq!((found.tunnels, found.protocol), (0, udp::PROTOCOL));
        }
        for ethertype in [0x0806, 0x88cc, 0x0123] {
            assert_eq!(Inner::of(&ethernet(ethertype, &innermost()), Link::Ethernet), None);
        }
    }

    #[test]
    fn a_packet_ends_where_it_says_and_fragments_are_told() {
        let mut frame = ethernet(ipv4::ETHERTYPE, &innermost());
        let end = frame.len();
        frame.extend([0; 18]);
        assert_eq!(Inner::of(&frame, Link::Ethernet).map(|inner| inner.end), Some(end));
        frame[16..18].fill(0); // a length of zero: all of it, as offloads leave it
        assert_eq!(Inner::of(&frame, Link::Ethernet).map(|inner| inner.end), Some(end + 18));
        frame[20] = 0x20;
        let first = Inner::of(&frame, Link::Ethernet).expect("a packet of IP");
        assert_eq!((first.fragment, first.has_transport()), (Some(0), true));
        frame[21] = 9;
        let later = Inner::of(&frame, Link::Ethernet).expect("a packet of IP");
        assert_eq!((later.fragment, later.has_transport()), (Some(9), false));
        let fragment = [tcp::PROTOCOL, 0, 0, 8, 0, 0, 0, 9];
        let frame = ethernet(ipv6::ETHERTYPE, &v6(44, &with(&fragment, b"the rest")));
        let later = Inner::of(&frame, Link::Ethernet).expect("a packet of IP");
        assert_eq!((later.fragment, later.id, later.v6), (Some(1), Some(9), true));
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
            starts in proptest::collection::vec(0..11usize, 0..6),
        ) {
            // Random bytes are hardly ever of IP, and never in a tunnel.
            let heads: [Vec<u8>; 11] = [
                Vec::from([0x88, 0x47, 0, 1, 1, 9]),
                Vec::from([0x88, 0x64, 0x11, 0, 0, 3, 0, 40, 0, 0x21]),
                Vec::from([0x81, 0x00, 0, 5]),
                with(&[0x08, 0x00], &v4(GRE, &[0, 0, 0x65, 0x58])),
                with(&[0x08, 0x00], &v4(IP_IN_IP, &[])),
                with(&[0x86, 0xdd], &v6(IPV6_IN_IP, &[])),
                with(&[0x08, 0x00], &v4(udp::PROTOCOL, &udp_to(4789, &[8, 0, 0, 0, 0, 0, 1, 0]))),
                with(&[0x08, 0x00], &v4(udp::PROTOCOL, &udp_to(2152, &[0x31, 255, 0, 9]))),
                with(&[0x08, 0x00], &v4(udp::PROTOCOL, &udp_to(1701, &[0x4a, 2, 0, 9]))),
                with(&[0x08, 0x00], &v4(GRE, &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1])),
                with(&[0xf1, 0xc1], &[0, 0, 0, 9]),
            ];
            let head: Vec<u8> = starts.iter().flat_map(|&start| heads[start].clone()).collect();
            for (byte, start) in bytes.iter_mut().skip(12).zip(head) {
                *byte = start;
            }
            if let Some(inner) = Inner::of(&bytes, Link::Ethernet) {
                prop_assert!(inner.network < inner.transport);
                prop_assert!(inner.tunnels <= DEPTH);
            }
            for protocol in [ipv4::ETHERTYPE, ipv6::ETHERTYPE, MPLS, PPPOE_SESSION] {
                let link = Link::Network(protocol);
                prop_assert_eq!(Inner::of(&bytes, link), Inner::seen(&bytes, link, |_, _| {}));
            }
            prop_assert_eq!(Inner::of(&bytes, Link::Ethernet), Inner::seen(&bytes, Link::Ethernet, |_, _| {}));
        }
    }
}
