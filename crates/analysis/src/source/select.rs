//! Which packets of a file are of one side, where it holds those of several.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tailtap_wire::ethernet::{self, Mac};
use tailtap_wire::link::Link;
use tailtap_wire::vlan as wire;

use super::{Source, frame, macs};
use crate::capture::{CaptureError, Interface, Packet, Unreadable};
use crate::key::{self, Keeps};

/// So many packets are read until the interfaces of a file are known.
const LOOK: usize = 1 << 16;

/// An interface by the number that the file gives it, or by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Names {
    /// Its number.
    Number(u32),
    /// Its name, which a pcapng file may tell.
    Name(String),
}

impl Names {
    pub(super) fn is(&self, number: u32) -> bool {
        *self == Self::Number(number)
    }
}

/// A choice among the packets of a file. Where there are several values, packets with any of them are
/// taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Select {
    /// Those that these interfaces captured.
    Interface(Vec<Names>),
    /// Those of these VLANs, by the outermost tag; `None` for those without a tag.
    Vlan(Vec<Option<u16>>),
    /// Those from these hardware addresses.
    From(Vec<Mac>),
    /// The first, the second or a further copy of each packet, by what devices leave of it.
    Copy {
        /// Which one, from 1.
        nth: u32,
        /// What is the same in all copies.
        key: key::Packet,
    },
}

/// The VLAN of a frame's outermost tag.
pub fn vlan(bytes: &[u8], link: Link) -> Option<u16> {
    if link != Link::Ethernet {
        return None;
    }
    let header = ethernet::Header::parse(bytes)?;
    let tag = wire::Header::parse(bytes.get(ethernet::LEN..)?)?;
    wire::is_tag(header.ethertype).then_some(tag.control & 0xfff)
}

impl Select {
    /// The same as it is in a file: with numbers of interfaces in place of their names, and copies told
    /// by what was captured. Fails where the first packets show no interface of that name.
    pub(super) fn settled(self, source: &Source) -> Result<Self, CaptureError> {
        if let Self::Copy { nth, key: key::Packet { keeps, .. } } = self {
            let mut most = u32::MAX;
            source.open()?.read(LOOK, |packet| {
                most = most.min(
                    frame(packet.content)
                        .and_then(|(bytes, link)| key::cut(bytes, link))
                        .unwrap_or(u32::MAX),
                );
            })?;
            return Ok(Self::Copy { nth, key: key::Packet { keeps, most } });
        }
        let Self::Interface(names) = &self else { return Ok(self) };
        if names.iter().all(|name| matches!(name, Names::Number(_))) {
            return Ok(self);
        }
        let mut feed = source.open()?;
        feed.read(LOOK, |_: Packet<'_>| {})?;
        let known = feed.notes().interfaces;
        let number = |name: &Names| {
            let Names::Name(name) = name else { return Ok(vec![name.clone()]) };
            let found: Vec<Names> = known
                .iter()
                .zip(0..)
                .filter(|(one, _)| one.name.as_ref() == Some(name))
                .map(|(_, number)| Names::Number(number))
                .collect();
            let listed = || {
                let each = known.iter().enumerate().map(|(number, one)| match &one.name {
                    Some(name) => format!("{number} ({name})"),
                    None => number.to_string(),
                });
                let each: Vec<String> = each.collect();
                if each.is_empty() { "0".to_owned() } else { each.join(", ") }
            };
            match found.is_empty() {
                true => {
                    let why = Unreadable::NoInterface { name: name.clone(), known: listed() };
                    Err(why.of(source.name()))
                }
                false => Ok(found),
            }
        };
        let numbers: Result<Vec<_>, _> = names.iter().map(number).collect();
        Ok(Self::Interface(numbers?.concat()))
    }

    /// Its text, with the names of interfaces.
    pub(crate) fn told(&self, interfaces: &[Interface]) -> String {
        let Self::Interface(names) = self else { return self.to_string() };
        let told = |one: &Names| {
            let Names::Number(number) = one else { return String::new() };
            let name = interfaces.get(*number as usize).and_then(|known| known.name.as_ref());
            name.map_or(number.to_string(), |name| format!("{number} ({name})"))
        };
        format!("interface:{}", names.iter().map(told).collect::<Vec<_>>().join(","))
    }

    /// Whether a packet is of the choice; `copy` is the how many-eth it is.
    pub(super) fn takes(&self, packet: &Packet<'_>, copy: Option<u32>) -> bool {
        match self {
            Self::Interface(chosen) => chosen.iter().any(|one| one.is(packet.interface)),
            Self::Vlan(chosen) => frame(packet.content)
                .is_some_and(|(bytes, link)| chosen.contains(&vlan(bytes, link))),
            Self::From(chosen) => frame(packet.content)
                .and_then(|(bytes, link)| macs(bytes, link))
                .is_some_and(|[from, _]| chosen.contains(&from)),
            Self::Copy { nth, .. } => copy == Some(*nth),
        }
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, values): (_, Vec<String>) = match self {
            Self::Interface(names) => {
                let text = |name: &Names| match name {
                    Names::Number(number) => number.to_string(),
                    Names::Name(name) => name.clone(),
                };
                ("interface", names.iter().map(text).collect())
            }
            Self::Vlan(ids) => {
                let text = |id: &Option<u16>| id.map_or("none".to_owned(), |id| id.to_string());
                ("vlan", ids.iter().map(text).collect())
            }
            Self::From(macs) => ("from", macs.iter().map(mac_text).collect()),
            Self::Copy { nth, key } if key.keeps == Keeps::All => ("copy", vec![nth.to_string()]),
            Self::Copy { nth, key } => ("copy", vec![format!("{nth}:{}", key.keeps.name())]),
        };
        write!(f, "{by}:{}", values.join(","))
    }
}

/// A hardware address as people write it.
fn mac_text(mac: &Mac) -> String {
    mac.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// A text that chooses nothing.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{0}' chooses no packets: give interface:NUMBER or interface:NAME, vlan:ID (vlan:none without a \
     tag), from:MAC or copy:NUMBER; several values with commas, such as interface:0,2"
)]
pub struct ParseSelectError(String);

impl FromStr for Select {
    type Err = ParseSelectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseSelectError(text.to_owned());
        let (by, values) = text.split_once(':').ok_or_else(error)?;
        let each = values.split(',');
        if values.split(',').any(str::is_empty) {
            return Err(error());
        }
        match by {
            "interface" => Ok(Self::Interface(
                each.map(|value| match value.parse() {
                    Ok(number) => Names::Number(number),
                    Err(_) => Names::Name(value.to_owned()),
                })
                .collect(),
            )),
            "vlan" => each
                .map(|value| match value {
                    "none" => Some(None),
                    _ => value.parse().ok().filter(|id| *id <= 0xfff).map(Some),
                })
                .collect::<Option<_>>()
                .map(Self::Vlan)
                .ok_or_else(error),
            "from" => each.map(mac).collect::<Option<_>>().map(Self::From).ok_or_else(error),
            "copy" => {
                let (nth, keeps) = values.split_once(':').unwrap_or((values, Keeps::All.name()));
                let keeps = Keeps::ALL.into_iter().find(|one| one.name() == keeps);
                let nth = nth.parse().ok().filter(|&nth| nth > 0);
                let copy = |(nth, keeps)| Self::Copy { nth, key: key::Packet::new(keeps) };
                nth.zip(keeps).map(copy).ok_or_else(error)
            }
            _ => Err(error()),
        }
    }
}

fn mac(text: &str) -> Option<Mac> {
    let octet = |octet: &str| (octet.len() == 2).then(|| u8::from_str_radix(octet, 16).ok())?;
    let octets: Option<Vec<u8>> = text.split([':', '-']).map(octet).collect();
    octets?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_choices_and_choices_are_texts() {
        for text in [
            "interface:0",
            "interface:0,eth1",
            "vlan:100",
            "vlan:none,7",
            "from:02:00:00:00:00:01,02:00:00:00:00:0a",
            "copy:2",
            "copy:1:packet-nat",
        ] {
            assert_eq!(text.parse::<Select>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "eth0",
            "interface:",
            "vlan:5000",
            "vlan:x",
            "from:02:00",
            "copy:0",
            "copy:1,2",
            "copy:1:moonsniff",
            "from:020000000001",
            "mac:02:00:00:00:00:01",
            "interface:0,",
        ] {
            assert!(text.parse::<Select>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_outermost_tag_counts() {
        let mut frame = vec![0u8; 12];
        frame.extend([0x88, 0xa8, 0x60, 0x64, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!(vlan(&frame, Link::Ethernet), Some(100));
        assert_eq!(vlan(&frame[..15], Link::Ethernet), None);
        frame[12] = 8;
        assert_eq!(vlan(&frame, Link::Ethernet), None);
    }
}
