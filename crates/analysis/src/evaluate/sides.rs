//! Both sides in one capture: what tells a packet before the device from the same one behind it.

use std::collections::{BTreeMap, HashMap};

use tailtap_wire::ethernet::Mac;

use super::{EvaluateError, Options};
use crate::capture::{Content, Interface};
use crate::key::{self, Extract, Keeps, Packet};
use crate::source::{End, Names, Select, Source, ends, macs, vlan};

/// So many packets are looked at.
const LOOK: usize = 1 << 16;
/// Such a share of the packets that are there twice must tell the sides apart in one way.
const NEARLY_ALL: f64 = 0.9;
/// Fewer packets than this share may be there twice by chance.
const MANY: f64 = 0.1;
/// The strictest key is taken that finds this share of what any does.
const AS_MANY: f64 = 0.9;
/// No longer lists of what a file has.
const LISTED: usize = 8;

/// What is seen of a packet.
#[derive(Clone, Copy)]
struct Seen {
    interface: u32,
    vlan: Option<u16>,
    macs: Option<[Mac; 2]>,
    ends: Option<[End; 2]>,
}

/// Finds both sides of one capture: what is to be chosen of it before the device, and behind it. Fails
/// where its packets are not there twice, or tell in several ways or in none which is which.
pub fn sides(source: impl Into<Source>, options: &Options) -> Result<[Select; 2], EvaluateError> {
    let source = source.into().told(options.ingress_format, options.nanoseconds[0]);
    let mut packets: Vec<(Seen, [Option<u64>; 4])> = Vec::new();
    let keeps = [Keeps::All, Keeps::AcrossNat, Keeps::Flow, Keeps::Payload];
    let most = captured(&source)?;
    let mut feed = source.open()?;
    feed.read(LOOK, |packet| {
        let Content::Frame { bytes, link, .. } = packet.content else { return };
        let seen = Seen {
            interface: packet.interface,
            vlan: vlan(bytes, link),
            macs: macs(bytes, link),
            ends: ends(bytes, link),
        };
        let key = |keeps| Packet { keeps, most }.extract(packet.content).ok().map(|found| found.0);
        packets.push((seen, keeps.map(key)));
    })?;
    let interfaces = feed.notes().interfaces;
    let of_key = |place: usize| twice(packets.iter().map(|(seen, keys)| (keys[place], *seen)));
    let each: Vec<Vec<[Seen; 2]>> = (0..keeps.len()).map(of_key).collect();
    let best = each.iter().map(Vec::len).max().unwrap_or(0);
    let place = each.iter().position(|pairs| pairs.len() as f64 >= AS_MANY * best as f64);
    let (pairs, keeps) = place.map_or((&[][..], Keeps::All), |at| (&each[at][..], keeps[at]));
    if best == 0 || (2 * best) as f64 <= MANY * packets.len() as f64 {
        let why = "packets that are there before the device and behind it were not found";
        return Err(refuse(&source, why, &packets, &interfaces));
    }
    let interface =
        |numbers: Vec<u32>| Select::Interface(numbers.into_iter().map(Names::Number).collect());
    let found = split(pairs, |seen| Some(seen.interface))
        .map(|sides| sides.map(interface))
        .or_else(|| split(pairs, |seen| Some(seen.vlan)).map(|sides| sides.map(Select::Vlan)))
        .or_else(|| {
            let from = split(pairs, |seen| seen.macs.map(|[from, _]| from));
            from.map(|sides| sides.map(Select::From))
        });
    let same = |pair: &&[Seen; 2]| {
        let of = |seen: &Seen| (seen.interface, seen.vlan, seen.macs.map(|macs| macs[0]));
        of(&pair[0]) == of(&pair[1])
    };
    let alike = pairs.iter().filter(same).count();
    match found {
        Some(sides) => Ok(sides),
        None if alike as f64 >= NEARLY_ALL * pairs.len() as f64 => {
            let key = Packet { keeps, most };
            Ok([1, 2].map(|nth| Select::Copy { nth, key }))
        }
        None => {
            let why = "packets are there twice, but in several ways";
            Err(refuse(&source, why, &packets, &interfaces))
        }
    }
}

/// How much of the payload was captured of every packet.
fn captured(source: &Source) -> Result<u32, EvaluateError> {
    let mut most = u32::MAX;
    source.open()?.read(LOOK, |packet| {
        if let Content::Frame { bytes, link, .. } = packet.content {
            most = most.min(key::cut(bytes, link).unwrap_or(u32::MAX));
        }
    })?;
    Ok(most)
}

/// The first and the second of packets whose key is there twice.
fn twice(packets: impl Iterator<Item = (Option<u64>, Seen)>) -> Vec<[Seen; 2]> {
    let mut groups: HashMap<u64, (usize, Vec<Seen>)> = HashMap::new();
    for (place, (key, seen)) in packets.enumerate() {
        if let Some(key) = key {
            groups.entry(key).or_insert((place, Vec::new())).1.push(seen);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| group.0);
    groups.into_iter().filter_map(|(_, group)| <[Seen; 2]>::try_from(group).ok()).collect()
}

/// The values of `what` of both sides, if these tell nearly all packets apart. Each side has one value,
/// or two where packets go both ways: that of packets from elsewhere, and that of those from the device.
fn split<T: Copy + Ord>(
    pairs: &[[Seen; 2]],
    what: impl Fn(&Seen) -> Option<T>,
) -> Option<[Vec<T>; 2]> {
    let enough = NEARLY_ALL * pairs.len() as f64;
    let mut counts: BTreeMap<(T, T), (usize, [Seen; 2])> = BTreeMap::new();
    for pair in pairs {
        let (Some(one), Some(other)) = (what(&pair[0]), what(&pair[1])) else { continue };
        if one != other {
            counts.entry((one, other)).or_insert((0, *pair)).0 += 1;
        }
    }
    let mut found: Vec<_> =
        counts.into_iter().map(|(way, (count, pair))| (count, way, pair)).collect();
    found.sort_by_key(|&(count, ..)| std::cmp::Reverse(count));
    let &(first, (before, after), one) = found.first()?;
    if first as f64 >= enough {
        return Some([vec![before], vec![after]]);
    }
    let &(second, (from, to), other) = found.get(1)?;
    if ((first + second) as f64) < enough {
        return None;
    }
    if (from, to) == (after, before) {
        return Some([vec![before], vec![after]]);
    }
    let apart = ![before, after].contains(&from) && ![before, after].contains(&to);
    let backwards = one[0].ends.zip(other[0].ends).is_some_and(|([a, b], [c, d])| [a, b] == [d, c]);
    (apart && backwards).then(|| [vec![before, to], vec![after, from]])
}

/// That the sides cannot be told apart, with what the file has to tell them by.
fn refuse(
    source: &Source,
    why: &str,
    packets: &[(Seen, [Option<u64>; 4])],
    interfaces: &[Interface],
) -> EvaluateError {
    let interface = |seen: &Seen| {
        let name = interfaces.get(seen.interface as usize).and_then(|one| one.name.as_ref());
        let name = name.map_or(String::new(), |name| format!(" ({name})"));
        Some(format!("interface:{}{name}", seen.interface))
    };
    let vlan = |seen: &Seen| Some(Select::Vlan(vec![seen.vlan]).to_string());
    let from = |seen: &Seen| Some(Select::From(vec![seen.macs?[0]]).to_string());
    let list = |what: &dyn Fn(&Seen) -> Option<String>| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for text in packets.iter().filter_map(|(seen, _)| what(seen)) {
            *counts.entry(text).or_default() += 1;
        }
        let mut found: Vec<_> = counts.into_iter().collect();
        found.sort_by_key(|one| std::cmp::Reverse(one.1));
        let more = found.len().saturating_sub(LISTED);
        let each = found.iter().take(LISTED).map(|(text, count)| format!("{text}: {count}"));
        let mut texts: Vec<String> = each.collect();
        if more > 0 {
            texts.push(format!("{more} more"));
        }
        texts.join(", ")
    };
    let why = format!(
        "{why}; give the capture from behind the device as well, or say which packets are of \
         which side by --ingress SELECT --egress SELECT; of the first {} packets there are {}; {}; {}",
        packets.len(),
        list(&interface),
        list(&vlan),
        list(&from),
    );
    EvaluateError::NoSides { path: source.name().to_owned(), why }
}
