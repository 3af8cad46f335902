//! Numbers at a place of a packet: at some byte of the frame, of a header or of the payload, or
//! from the packet's end.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;
use tailtap_wire::{tcp, udp};

use super::packet::{self, ESP, ICMP, ICMPV6, SCTP};
use super::{Extract, Name, NoKey, foreign_or_short};
use crate::capture::Content;
use crate::matching::Matcher;

/// Widest number, in bytes.
const MOST_BYTES: usize = 8;

/// From where a number's place is counted. Headers and payloads are those of the innermost packet of
/// IP, whatever stands in front of it; later fragments have none but that of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The start of the frame.
    Frame,
    /// The header of IP.
    Ip,
    /// The header of IPv4.
    Ipv4,
    /// The header of UDP.
    Udp,
    /// The header of TCP.
    Tcp,
    /// The header of ICMP, of either version.
    Icmp,
    /// The header of SCTP.
    Sctp,
    /// The header of ESP.
    Esp,
    /// What UDP carries.
    UdpPayload,
    /// What TCP carries.
    TcpPayload,
    /// What UDP, TCP, ICMP, SCTP or else IP carries; of a frame without IP, what its tags carry.
    Payload,
    /// Backwards from the end of the packet of IP, or else of the frame. Fragments have none.
    End,
}

/// What places are called, but for [`Place::End`], which is a sign.
const PLACES: [(&str, Place); 11] = [
    ("frame", Place::Frame),
    ("ip", Place::Ip),
    ("ipv4", Place::Ipv4),
    ("udp", Place::Udp),
    ("tcp", Place::Tcp),
    ("icmp", Place::Icmp),
    ("sctp", Place::Sctp),
    ("esp", Place::Esp),
    ("udp.payload", Place::UdpPayload),
    ("tcp.payload", Place::TcpPayload),
    ("payload", Place::Payload),
];

/// Numbers that have a name: its place, its first byte from there, and its width.
const NAMED: [(&str, Place, usize, usize); 10] = [
    ("ip.id", Place::Ipv4, 4, 2),
    ("icmp.seq", Place::Icmp, 6, 2),
    ("udp.srcport", Place::Udp, 0, 2),
    ("tcp.srcport", Place::Tcp, 0, 2),
    ("tcp.seq", Place::Tcp, 4, 4),
    ("tcp.ack", Place::Tcp, 8, 4),
    ("esp.seq", Place::Esp, 4, 4),
    ("dns.id", Place::UdpPayload, 0, 2),
    ("rtp.seq", Place::UdpPayload, 2, 2),
    ("rtp.timestamp", Place::UdpPayload, 4, 4),
];

/// An integer at a place of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// From where its place is counted.
    pub place: Place,
    /// Its first byte from there; of [`Place::End`] how many bytes before it.
    pub offset: usize,
    /// 1 to 8 bytes.
    pub width: usize,
    /// Most significant byte first.
    pub big_endian: bool,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, offset, width, big_endian } = *self;
        let same = |named: &&(&str, Place, usize, usize)| {
            big_endian && (named.1, named.2, named.3) == (place, offset, width)
        };
        if let Some((name, ..)) = NAMED.iter().find(same) {
            return f.write_str(name);
        }
        match PLACES.iter().find(|named| named.1 == place) {
            None => f.write_str("-")?,
            Some((_, Place::Frame)) => {}
            Some((name, _)) => write!(f, "{name}+")?,
        }
        write!(f, "{offset}:{width}:{}", if big_endian { "be" } else { "le" })
    }
}

impl FromStr for Field {
    /// Why it is none.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(&(_, place, offset, width)) = NAMED.iter().find(|named| named.0 == text) {
            return Ok(Self { place, offset, width, big_endian: true });
        }
        let parts: Vec<&str> = text.split(':').collect();
        let &[place, width, order] = &parts[..] else { return Err(syntax()) };
        let width = match width.parse() {
            Ok(width) if (1..=MOST_BYTES).contains(&width) => width,
            _ => return Err(format!("the width '{width}' is not 1 to {MOST_BYTES} bytes")),
        };
        let big_endian = match order {
            "le" => false,
            "be" => true,
            _ => return Err(format!("the order of bytes is le or be, not '{order}'")),
        };
        let (place, offset) = match (place.strip_prefix('-'), place.split_once('+')) {
            (Some(offset), _) => (Place::End, offset),
            (None, None) => (Place::Frame, place),
            (None, Some((name, offset))) => {
                let known = PLACES.iter().find(|named| named.0 == name);
                let (_, place) = known
                    .ok_or_else(|| format!("there is no place '{name}'; give {}", places()))?;
                (*place, offset)
            }
        };
        // A sign would be taken for a number's own.
        let digits = offset.bytes().all(|byte| byte.is_ascii_digit());
        let offset = match offset.parse::<u16>() {
            Ok(offset) if digits => usize::from(offset),
            _ if PLACES.iter().any(|named| named.0 == offset) => {
                return Err(format!("its first byte is missing: {offset}+0:{width}:{order}, say"));
            }
            _ => return Err(format!("'{offset}' is not a number of bytes from 0 to {}", u16::MAX)),
        };
        if place == Place::End && offset < width {
            return Err(format!("of {width} bytes, {offset} at most are before the packet's end"));
        }
        Ok(Self { place, offset, width, big_endian })
    }
}

fn places() -> String {
    PLACES.map(|named| named.0).join(", ")
}

/// How a number is written.
fn syntax() -> String {
    format!(
        "a number of WIDTH bytes, 1 to {MOST_BYTES}, is OFFSET:WIDTH:le|be from the start of the frame \
         (42:4:le, say), PLACE+OFFSET:WIDTH:le|be from that of a header or payload \
         (udp.payload+0:4:le; places are {}), or -OFFSET:WIDTH:le|be from the end of the packet \
         (-12:4:le); some have names: {}",
        places(),
        NAMED.map(|named| named.0).join(", ")
    )
}

impl Extract for Field {
    const IS_ID: bool = true;
    type Shown = ();
    type Matcher = Matcher;

    #[inline]
    fn extract(self, content: Content<'_>) -> Result<(u64, ()), NoKey> {
        let (bytes, wire_len, link) = match content {
            Content::Frame { bytes, wire_len, link } => (bytes, wire_len, link),
            Content::Mark { key, .. } => return Ok((key, ())),
            Content::Id(_) => return Err(NoKey::NoFrame),
        };
        let span = match (self.place, link) {
            (Place::Frame, Link::Ethernet) => 0..bytes.len().max(wire_len as usize),
            (Place::Frame, Link::Network(_)) => return Err(NoKey::NoEthernet),
            (place, _) => span(place, bytes, wire_len, link)?,
        };
        let start = match self.place {
            Place::End => span.end.checked_sub(self.offset).filter(|&start| start >= span.start),
            _ => Some(span.start + self.offset),
        };
        let start = start.filter(|start| start + self.width <= span.end).ok_or(NoKey::Foreign)?;
        let field = bytes.get(start..start + self.width).ok_or(NoKey::Short)?;
        let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let value = if self.big_endian {
            field.iter().fold(0, join)
        } else {
            field.iter().rev().fold(0, join)
        };
        Ok((value, ()))
    }

    fn name(key: u64, (): ()) -> Name {
        Name::Id(key)
    }
}

/// From where to where a header reaches with all that follows in its packet, which may be more than was
/// captured; padding behind the packet is no part of it.
fn span(place: Place, bytes: &[u8], wire_len: u32, link: Link) -> Result<Range<usize>, NoKey> {
    let Some(inner) = Inner::of(bytes, link) else {
        let behind =
            packet::behind_tags(bytes, link).filter(|(ethertype, _)| !packet::is_ip(*ethertype));
        let end = bytes.len().max(wire_len as usize);
        return match (place, behind) {
            (Place::End, Some(_)) => Ok(0..end),
            (Place::Payload, Some((_, at))) => Ok(at..end),
            _ => Err(foreign_or_short(bytes, wire_len)),
        };
    };
    let header = |protocols: &[u8]| {
        let has = inner.has_transport() && protocols.contains(&inner.protocol);
        has.then_some(inner.transport).ok_or(NoKey::Foreign)
    };
    let payload = || packet::payload(bytes, &inner).map(|(at, _)| at).ok_or(NoKey::Short);
    let start = match place {
        Place::Frame => 0,
        Place::Ip => inner.network,
        Place::Ipv4 if inner.v6 => return Err(NoKey::Foreign),
        Place::Ipv4 => inner.network,
        Place::Udp => header(&[udp::PROTOCOL])?,
        Place::Tcp => header(&[tcp::PROTOCOL])?,
        Place::Icmp => header(&[ICMP, ICMPV6])?,
        Place::Sctp => header(&[SCTP])?,
        Place::Esp => header(&[ESP])?,
        Place::UdpPayload => header(&[udp::PROTOCOL]).and_then(|_| payload())?,
        Place::TcpPayload => header(&[tcp::PROTOCOL]).and_then(|_| payload())?,
        Place::Payload if inner.has_transport() => payload()?,
        Place::End if inner.fragment.is_none() => inner.network,
        Place::Payload | Place::End => return Err(NoKey::Foreign),
    };
    Ok(start..inner.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailtap_wire::{ethernet, ipv4, ipv6, vlan};

    /// A packet of IP that carries these bytes.
    fn ip(protocol: u8, carried: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0];
        bytes.extend(((ipv4::LEN + carried.len()) as u16).to_be_bytes());
        bytes.extend([0x12, 0x34, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(carried);
        bytes
    }

    fn frame(tags: usize, ethertype: u16, carried: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2; ethernet::ADDRESSES_LEN];
        for _ in 0..tags {
            bytes.extend(0x8100u16.to_be_bytes());
            bytes.extend([0, 7]);
        }
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(carried);
        bytes
    }

    fn udp_of(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x10, 1, 0, 53];
        bytes.extend(((udp::LEN + payload.len()) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes
    }

    fn found(key: &str, bytes: &[u8], wire_len: usize) -> Result<u64, NoKey> {
        let field: Field = key.parse().unwrap();
        let (wire_len, link) = (wire_len as u32, Link::Ethernet);
        let content = Content::Frame { bytes, wire_len, link };
        field.extract(content).map(|found| found.0)
    }

    #[test]
    fn a_number_is_found_from_any_place_whatever_stands_in_front() {
        let packet = ip(udp::PROTOCOL, &udp_of(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
        let mut vxlan =
            udp_of(&[&[8, 0, 0, 0, 0, 0, 9, 0], &frame(0, 0x0800, &packet)[..]].concat());
        vxlan[2..4].copy_from_slice(&4789u16.to_be_bytes());
        for bytes in [
            frame(0, ipv4::ETHERTYPE, &packet),
            frame(2, ipv4::ETHERTYPE, &packet),
            frame(0, ipv4::ETHERTYPE, &ip(4, &packet)),
            frame(1, ipv4::ETHERTYPE, &ip(udp::PROTOCOL, &vxlan)),
        ] {
            for (key, expected) in [
                ("ip.id", 0x1234),
                ("ip+4:2:le", 0x3412),
                ("ip+8:1:be", 64),
                ("udp.srcport", 0x1001),
                ("udp+4:2:be", 17),
                ("udp.payload+0:4:le", 0x0403_0201),
                ("payload+1:2:be", 0x0203),
                ("dns.id", 0x0102),
                ("rtp.seq", 0x0304),
                ("-9:8:be", 0x0102_0304_0506_0708),
                ("-1:1:le", 9),
            ] {
                assert_eq!(found(key, &bytes, bytes.len()), Ok(expected), "{key}");
                // Padding moves nothing.
                let padded = [&bytes[..], &[0xee; 20]].concat();
                assert_eq!(found(key, &padded, padded.len()), Ok(expected), "{key}, padded");
            }
            for key in
                ["tcp.seq", "tcp.payload+0:1:le", "icmp.seq", "udp.payload+6:4:le", "-38:1:le"]
            {
                assert_eq!(found(key, &bytes, bytes.len()), Err(NoKey::Foreign), "{key}");
            }
        }
    }

    #[test]
    fn padding_is_no_payload() {
        let bytes = frame(0, ipv4::ETHERTYPE, &ip(udp::PROTOCOL, &udp_of(&[1, 2])));
        let padded = [&bytes[..], &[0; 16]].concat();
        assert_eq!(found("udp.payload+0:4:le", &padded, padded.len()), Err(NoKey::Foreign));
        assert_eq!(found("42:4:le", &padded, padded.len()), Ok(0x0201));
    }

    #[test]
    fn headers_of_all_protocols_have_numbers() {
        let mut header = vec![0; 40];
        header[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        header[12] = 0x60; // a TCP header of 24 bytes
        header[24] = 77;
        let carried_by = |protocol| frame(0, ipv4::ETHERTYPE, &ip(protocol, &header));
        for (protocol, key, expected) in [
            (tcp::PROTOCOL, "tcp.seq", 0x0506_0708),
            (tcp::PROTOCOL, "tcp.ack", 0x090a_0b0c),
            (tcp::PROTOCOL, "tcp.srcport", 0x0102),
            (tcp::PROTOCOL, "tcp.payload+0:1:le", 77),
            (ICMP, "icmp.seq", 0x0708),
            (ICMPV6, "icmp.seq", 0x0708),
            (SCTP, "sctp+0:2:be", 0x0102),
            (ESP, "esp.seq", 0x0506_0708),
            (89, "payload+0:2:be", 0x0102),
        ] {
            let bytes = carried_by(protocol);
            assert_eq!(found(key, &bytes, bytes.len()), Ok(expected), "{key}");
        }
    }

    #[test]
    fn a_packet_of_ipv6_has_no_id_of_ipv4() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 12, udp::PROTOCOL, 64];
        packet.extend([1; 32]);
        packet.extend(udp_of(&[1, 2, 3, 4]));
        let bytes = frame(0, ipv6::ETHERTYPE, &packet);
        assert_eq!(found("ip.id", &bytes, bytes.len()), Err(NoKey::Foreign));
        assert_eq!(found("ip+5:1:be", &bytes, bytes.len()), Ok(12));
        assert_eq!(found("udp.payload+0:4:be", &bytes, bytes.len()), Ok(0x0102_0304));
    }

    #[test]
    fn fragments_have_the_headers_that_they_carry_and_no_end() {
        let mut first = frame(0, ipv4::ETHERTYPE, &ip(udp::PROTOCOL, &udp_of(&[1, 2, 3, 4])));
        first[20] = 0x20;
        let mut later = first.clone();
        later[20..22].copy_from_slice(&[0, 3]);
        for (bytes, has_transport) in [(first, true), (later, false)] {
            assert_eq!(found("ip.id", &bytes, bytes.len()), Ok(0x1234));
            for key in ["udp.srcport", "udp.payload+0:4:le", "payload+0:4:le"] {
                assert_eq!(found(key, &bytes, bytes.len()).is_ok(), has_transport, "{key}");
            }
            assert_eq!(found("-4:4:le", &bytes, bytes.len()), Err(NoKey::Foreign));
        }
    }

    #[test]
    fn frames_without_ip_have_a_payload_and_an_end() {
        for tags in 0..3 {
            let bytes = frame(tags, 0x88cc, &[1, 2, 3, 4]);
            assert_eq!(found("payload+0:2:be", &bytes, bytes.len()), Ok(0x0102));
            assert_eq!(found("-2:2:be", &bytes, bytes.len()), Ok(0x0304));
            assert_eq!(found("-2:2:be", &bytes, bytes.len() + 1), Err(NoKey::Short));
            assert_eq!(found("ip.id", &bytes, bytes.len()), Err(NoKey::Foreign));
        }
    }

    #[test]
    fn what_the_snap_length_cut_off_is_short() {
        let bytes = frame(1, ipv4::ETHERTYPE, &ip(udp::PROTOCOL, &udp_of(&[1, 2, 3, 4])));
        let whole = bytes.len();
        assert_eq!(whole, ethernet::LEN + vlan::LEN + ipv4::LEN + udp::LEN + 4);
        for key in ["udp.payload+0:4:le", "payload+2:2:be", "-4:4:le", "-1:1:be", "46:4:le"] {
            for cut in 0..whole {
                let found = found(key, &bytes[..cut], whole);
                assert!(matches!(found, Err(NoKey::Short) | Ok(_)), "{key} of {cut} bytes");
                assert!(found.is_err() || cut >= whole - 1, "{key} of {cut} bytes");
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for text in
            ["42:4:le", "0:1:be", "-12:4:le", "udp.payload+0:4:le", "ip+65535:8:be", "ip.id"]
        {
            assert_eq!(text.parse::<Field>().unwrap().to_string(), text);
        }
        for (name, ..) in NAMED {
            assert_eq!(name.parse::<Field>().unwrap().to_string(), name);
        }
        for (other, text) in [("frame+42:4:le", "42:4:le"), ("tcp+4:4:be", "tcp.seq")] {
            assert_eq!(other.parse::<Field>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        for (text, why) in [
            ("udq+4:4:le", "no place 'udq'; give frame, ip,"),
            ("udp+:4:le", "'' is not a number of bytes"),
            ("udp+-4:4:le", "'-4' is not"),
            ("udp++4:4:le", "'+4' is not"),
            ("+4:4:le", "no place ''"),
            ("--4:4:le", "'-4' is not"),
            ("udp.payload:4:le", "udp.payload+0:4:le"),
            ("udp.payload+70000:4:le", "0 to 65535"),
            ("1:9:le", "the width '9' is not 1 to 8"),
            ("ip+1:0:le", "the width '0'"),
            ("1:2:me", "le or be, not 'me'"),
            ("-3:4:le", "of 4 bytes, 3 at most are before"),
            ("udp.payload", "PLACE+OFFSET:WIDTH:le|be"),
            ("tcp.sequence", "tcp.seq"),
        ] {
            let said = text.parse::<Field>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_field_or_none(text in "[-+a-z.:0-9]{0,24}") {
            if let Ok(field) = text.parse::<Field>() {
                prop_assert_eq!(field.to_string().parse(), Ok(field));
            }
        }
    }
}
