//! What the device did to packets, as the first ones that are in both captures show.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use tailtap_wire::inner::{Inner, Kind};
use tailtap_wire::link::Link;
use tailtap_wire::{ethernet, ipv4, ipv6, tcp, udp};

use super::Counts;
use super::choose::KeyChoice;
use crate::capture::Content;
use crate::key::{Extract, KeyKind, Moonsniff, Signatures};
use crate::source::Source;

/// So many packets of each capture are looked at.
const LOOK: usize = 4096;

/// Something that differs between a packet before the device and the same one behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it is.
    pub what: String,
    /// What it was in most of the packets that it was changed in; empty for nothing.
    pub before: String,
    /// And what it became in those.
    pub after: String,
    /// In how many packets it was changed.
    pub packets: u64,
    /// How many ways of changing it there were.
    pub ways: u64,
}

/// What the device did to packets, and how many were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Packets that were found in both captures.
    pub looked_at: u64,
    /// What differs, in the order of the frame.
    pub changes: Vec<Change>,
}

impl Changes {
    /// Adds what became of packets that were merged or cut, which all were counted for.
    pub(super) fn add_segments(&mut self, counts: &Counts) {
        for (before, after, packets) in [
            ("apart", "merged", counts.merged_ingress),
            ("whole", "in pieces", counts.parts_egress),
        ] {
            if packets > 0 {
                let (before, after) = (before.to_owned(), after.to_owned());
                let what = "packets".to_owned();
                self.changes.push(Change { what, before, after, packets, ways: 1 });
            }
        }
    }
}

/// What a packet says of itself: the order of the names is that of the frame.
type Outline = Vec<(&'static str, String)>;

/// The changes that the first packets of both captures show; nothing for captures without frames.
pub(super) fn look(choice: &KeyChoice) -> Changes {
    let read = |source, key| match key {
        KeyKind::Packet(packet) => outlines(source, packet),
        KeyKind::Stream(stream) => outlines(source, stream),
        KeyKind::Moonsniff => outlines(source, Moonsniff),
        KeyKind::Signature => outlines(source, Signatures),
        KeyKind::Field(field) | KeyKind::Fields([field, _]) => outlines(source, field),
    };
    let keys = choice.key.sides();
    let before = read(&choice.ingress, keys[0]);
    let after = read(&choice.egress, keys[1]);
    let mut found = Found::default();
    for (key, outline) in before {
        if let (Some(outline), Some(Some(other))) = (outline, after.get(&key)) {
            found.compare(&outline, other);
        }
    }
    found.changes()
}

/// The outlines of the first packets by their keys; `None` of keys of packets that differ.
fn outlines<X: Extract>(source: &Source, extract: X) -> HashMap<u64, Option<Outline>> {
    let mut found = HashMap::new();
    let Ok(mut capture) = source.open() else { return found };
    let read = capture.read(LOOK, |packet| {
        let Content::Frame { bytes, wire_len, link } = packet.content else { return };
        if let Ok((key, _)) = extract.extract(packet.content) {
            let made = Some(outline(bytes, wire_len, link));
            let known = found.entry(key).or_insert_with(|| made.clone());
            if *known != made {
                *known = None;
            }
        }
    });
    if read.is_err() { HashMap::new() } else { found }
}

/// How often something was changed, by what it was and what it became.
type Ways = BTreeMap<(String, String), u64>;

#[derive(Default)]
struct Found {
    looked_at: u64,
    /// In the order in which they were first seen; by what they are.
    ways: Vec<(&'static str, Ways)>,
}

impl Found {
    fn compare(&mut self, before: &Outline, after: &Outline) {
        self.looked_at += 1;
        let frames = [before, after].map(|outline| of(outline, OF_FRAMES[0]).is_some());
        // Where one capture has no frames, what these have is not known, and no change.
        let known = |what: &str| frames[0] == frames[1] || !OF_FRAMES.contains(&what);
        for (what, was) in before.iter().filter(|(what, _)| known(what)) {
            let became = of(after, what);
            if became != Some(was) {
                self.count(what, was.clone(), became.cloned().unwrap_or_default());
            }
        }
        for (what, became) in after.iter().filter(|(what, _)| known(what)) {
            if of(before, what).is_none() {
                self.count(what, String::new(), became.clone());
            }
        }
    }

    fn count(&mut self, what: &'static str, was: String, became: String) {
        let place = self.ways.iter().position(|(known, _)| *known == what).unwrap_or_else(|| {
            self.ways.push((what, Ways::new()));
            self.ways.len() - 1
        });
        *self.ways[place].1.entry((was, became)).or_default() += 1;
    }

    fn changes(self) -> Changes {
        let change = |(what, ways): (&str, Ways)| {
            // Of those that are as frequent the first, so that the answer is always the same.
            let most = ways.values().max()?;
            let ((before, after), _) = ways.iter().find(|(_, count)| *count == most)?;
            Some(Change {
                what: what.to_owned(),
                before: before.clone(),
                after: after.clone(),
                packets: ways.values().sum(),
                ways: ways.len() as u64,
            })
        };
        let mut changes: Vec<Change> = self.ways.into_iter().filter_map(change).collect();
        changes.sort_by_key(|change| ORDER.iter().position(|&what| what == change.what));
        Changes { looked_at: self.looked_at, changes }
    }
}

fn of<'a>(outline: &'a Outline, what: &str) -> Option<&'a String> {
    outline.iter().find(|(name, _)| *name == what).map(|(_, value)| value)
}

/// What only packets have that were captured with their Ethernet header.
const OF_FRAMES: [&str; 3] = ["source MAC", "destination MAC", "bytes behind"];

/// All that is told of a packet, in the order in which it is told.
const ORDER: [&str; 17] = [
    "source MAC",
    "destination MAC",
    "headers",
    "source address",
    "destination address",
    "source port",
    "destination port",
    "time to live",
    "DSCP",
    "ECN",
    "IP id",
    "don't fragment",
    "fragment",
    "length",
    "TCP sequence number",
    "TCP window",
    "bytes behind",
];

fn outline(frame: &[u8], wire_len: u32, link: Link) -> Outline {
    let mut told = Outline::new();
    if link == Link::Ethernet
        && let Some(addresses) = frame.get(..ethernet::ADDRESSES_LEN)
    {
        told.push(("source MAC", mac(&addresses[6..])));
        told.push(("destination MAC", mac(&addresses[..6])));
    }
    let mut headers: Vec<(Kind, usize)> = Vec::new();
    let Some(inner) = Inner::seen(frame, link, |kind, at| headers.push((kind, at))) else {
        return told;
    };
    let names: Vec<String> = headers
        .iter()
        .skip(usize::from(link == Link::Ethernet))
        .filter(|&&(_, at)| at < inner.network)
        .map(|&(kind, at)| name(kind, &frame[at..]))
        .collect();
    if !names.is_empty() {
        told.push(("headers", names.join(", ")));
    }
    let ip = &frame[inner.network..];
    if inner.v6 {
        let address = |at: usize| {
            let octets: [u8; 16] = ip[at..at + 16].try_into().expect("sixteen");
            Ipv6Addr::from(octets).to_string()
        };
        told.push(("source address", address(ipv6::ADDRESSES.start)));
        told.push(("destination address", address(ipv6::ADDRESSES.start + 16)));
        told.push(("time to live", ip[7].to_string()));
        class(&mut told, ip[0] << 4 | ip[1] >> 4);
    } else {
        let address = |at: usize| {
            let octets: [u8; 4] = ip[at..at + 4].try_into().expect("four");
            Ipv4Addr::from(octets).to_string()
        };
        told.push(("source address", address(ipv4::ADDRESSES.start)));
        told.push(("destination address", address(ipv4::ADDRESSES.start + 4)));
        told.push(("time to live", ip[8].to_string()));
        class(&mut told, ip[1]);
        told.push(("IP id", u16::from_be_bytes([ip[4], ip[5]]).to_string()));
        told.push(("don't fragment", if ip[6] & 0x40 != 0 { "yes" } else { "no" }.to_owned()));
    }
    if let Some(offset) = inner.fragment {
        told.push(("fragment", format!("at {}", 8 * u32::from(offset))));
    }
    told.push(("length", (inner.end - inner.network).to_string()));
    let transport = frame.get(inner.transport..).unwrap_or_default();
    if inner.has_transport()
        && matches!(inner.protocol, tcp::PROTOCOL | udp::PROTOCOL)
        && let Some(&[a, b, c, d]) = transport.first_chunk()
    {
        told.push(("source port", u16::from_be_bytes([a, b]).to_string()));
        told.push(("destination port", u16::from_be_bytes([c, d]).to_string()));
        if inner.protocol == tcp::PROTOCOL
            && let Some(header) = tcp::Header::parse(transport)
        {
            told.push(("TCP sequence number", header.sequence.to_string()));
        }
        if inner.protocol == tcp::PROTOCOL
            && let Some(&[a, b]) = transport.get(14..16).and_then(|window| window.first_chunk())
        {
            told.push(("TCP window", u16::from_be_bytes([a, b]).to_string()));
        }
    }
    let behind = (wire_len as usize).max(frame.len()).saturating_sub(inner.end);
    if behind > 0 {
        told.push(("bytes behind", behind.to_string()));
    }
    told
}

fn class(told: &mut Outline, class: u8) {
    told.push(("DSCP", (class >> 2).to_string()));
    let ecn = ["not capable", "ECT(1)", "ECT(0)", "CE"][usize::from(class & 3)];
    told.push(("ECN", ecn.to_owned()));
}

fn mac(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// A header in front of the innermost IP, with the number that tells it from others of its kind.
fn name(kind: Kind, header: &[u8]) -> String {
    let number = |at: usize, len: usize| {
        let bytes = header.get(at..at + len).unwrap_or_default();
        bytes.iter().fold(0u32, |number, &byte| number << 8 | u32::from(byte))
    };
    match kind {
        Kind::Ethernet => "Ethernet".to_owned(),
        Kind::Vlan => format!("VLAN {}", number(0, 2) & 0xfff),
        Kind::Named(name) => name.to_owned(),
        Kind::Mpls => format!("MPLS {}", number(0, 3) >> 4),
        Kind::Pppoe => format!("PPPoE {}", number(2, 2)),
        Kind::Ip => if number(0, 1) >> 4 == 6 { "IPv6" } else { "IPv4" }.to_owned(),
        Kind::Gre => "GRE".to_owned(),
        Kind::Authentication => "AH".to_owned(),
        Kind::Vxlan => format!("VXLAN {}", number(4, 3)),
        Kind::Geneve => format!("Geneve {}", number(4, 3)),
        Kind::GtpU => format!("GTP-U {}", number(4, 4)),
    }
}
