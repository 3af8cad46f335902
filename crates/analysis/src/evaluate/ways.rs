//! Captures of both directions: which packets went there and which came back.
//!
//! Packets that are in both captures tell it, as their stamps differ by what they took and by what the
//! clocks differ: of what goes both ways between two ends, that with the larger difference went there.

use std::collections::{HashMap, HashSet};

use tailtap_wire::ethernet::Mac;
use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;

use super::keyed::{common, once};
use super::{EvaluateError, Options, choose};
use crate::capture::{Content, Packet};
use crate::key::{self, Extract, Keeps, KeyKind, Moonsniff, Signatures, Stream};
use crate::source::{End, Learned, Source, Ways, ends, macs};

/// So many packets of each capture show whether there may be both directions.
const GLANCE: usize = 4096;
/// So many packets of each capture are looked at where there may be.
const LOOK: usize = 1 << 18;
/// Fewer pairs each way may be chance.
const LEAST: usize = 2;
/// Where links of two clocks were captured, such a share of neighbours has the larger difference there.
const NEARLY_ALL: f64 = 0.99;

/// Captures that hold both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BothWays {
    /// What tells the direction of packets before the device, and of those behind it.
    pub ways: [Ways; 2],
    /// Whether the packets back were captured behind the device first: both captures are of links. If
    /// not, they are of what came in and of what went out, and all were captured before it first.
    pub links: bool,
    /// The least difference of both stamps there, the later less the earlier, in nanoseconds; below
    /// zero only where the clocks differ. Of clocks of years before and after, as far as it fits.
    pub least_there_ns: i64,
    /// The same back.
    pub least_back_ns: i64,
}

/// What a packet says of its direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Tag {
    macs: Option<[Mac; 2]>,
    ends: Option<[End; 2]>,
}

/// A packet's time, the number of its tag, and its time to live.
type Known = (u64, u32, Option<u8>);

/// The first packets of a capture by their keys, with all that is said of directions.
#[derive(Default)]
struct Read {
    packets: Vec<(u64, Known)>,
    tags: Vec<Tag>,
}

/// Tells the directions of the packets of two captures; `None` where there is one only, or they hold
/// ids and no frames.
pub fn both_ways(
    ingress: impl Into<Source>,
    egress: impl Into<Source>,
    options: &Options,
) -> Result<Option<BothWays>, EvaluateError> {
    let (ingress, egress) = (ingress.into(), egress.into());
    let [before, after] = options.nanoseconds;
    let told = [
        ingress.clone().told(options.ingress_format, before),
        egress.clone().told(options.egress_format, after),
    ];
    for source in &told {
        if !goes_both_ways(source)? {
            return Ok(None);
        }
    }
    let choice = choose::key(ingress, egress, options)?;
    let keys = choice.key.sides();
    let [before, after] = [read(&choice.ingress, keys[0])?, read(&choice.egress, keys[1])?];
    Ok(told_apart(&before, &after))
}

/// Whether the first packets show two ends of which each sends to the other.
fn goes_both_ways(source: &Source) -> Result<bool, EvaluateError> {
    let mut seen = HashSet::new();
    let mut both = false;
    source.open()?.read(GLANCE, |packet| {
        if let Content::Frame { bytes, link, .. } = packet.content
            && let Some([from, to]) = ends(bytes, link)
        {
            both |= from != to && seen.contains(&[to, from]);
            seen.insert([from, to]);
        }
    })?;
    Ok(both)
}

fn read(source: &Source, key: KeyKind) -> Result<Read, EvaluateError> {
    match key {
        KeyKind::Packet(packet) => read_by(source, packet),
        // Segments that were neither merged nor cut show the directions.
        KeyKind::Stream(Stream { most, .. }) => {
            read_by(source, key::Packet { keeps: Keeps::All, most })
        }
        KeyKind::Moonsniff => read_by(source, Moonsniff),
        KeyKind::Signature => read_by(source, Signatures),
        KeyKind::Field(field) | KeyKind::Fields([field, _]) => read_by(source, field),
    }
}

fn read_by<X: Extract>(source: &Source, extract: X) -> Result<Read, EvaluateError> {
    let mut found = Read::default();
    let mut numbers = HashMap::new();
    source.open()?.read(LOOK, |packet: Packet<'_>| {
        let Content::Frame { bytes, link, .. } = packet.content else { return };
        let Ok((key, _)) = extract.extract(packet.content) else { return };
        let tag = Tag { macs: macs(bytes, link), ends: ends(bytes, link) };
        let number = *numbers.entry(tag).or_insert_with(|| {
            found.tags.push(tag);
            found.tags.len() as u32 - 1
        });
        found.packets.push((key, (packet.time_ns, number, time_to_live(bytes, link))));
    })?;
    found.packets = once(found.packets);
    Ok(found)
}

fn time_to_live(frame: &[u8], link: Link) -> Option<u8> {
    let inner = Inner::of(frame, link)?;
    frame.get(inner.network + if inner.v6 { 7 } else { 8 }).copied()
}

/// A packet that is in both captures.
#[derive(Clone, Copy)]
struct Pair {
    before: Tag,
    after: Tag,
    earlier_ns: u64,
    apart_ns: i128,
    /// By how much the time to live was less behind the device.
    hops: i16,
}

fn told_apart(before: &Read, after: &Read) -> Option<BothWays> {
    let pair = |(one, other): (Known, Known)| Pair {
        before: before.tags[one.1 as usize],
        after: after.tags[other.1 as usize],
        earlier_ns: one.0,
        apart_ns: i128::from(other.0) - i128::from(one.0),
        hops: one.2.zip(other.2).map_or(0, |(one, other)| i16::from(one) - i16::from(other)),
    };
    let mut pairs: Vec<Pair> =
        common(&before.packets, &after.packets).into_iter().map(pair).collect();
    pairs.sort_by_key(|pair| pair.earlier_ns);
    // Between which ends packets go both ways, and which way is that with the larger difference.
    let mut apart: HashMap<[End; 2], [Vec<i128>; 2]> = HashMap::new();
    for pair in &pairs {
        if let Some((between, way)) = between(pair) {
            apart.entry(between).or_default()[usize::from(way)].push(pair.apart_ns);
        }
    }
    apart.retain(|_, [one, other]| !one.is_empty() && !other.is_empty());
    let there: HashMap<[End; 2], bool> = apart
        .into_iter()
        .map(|(between, [one, other])| (between, middle(other) > middle(one)))
        .collect();
    let is_back = |pair: &Pair| {
        let (between, way) = between(pair)?;
        there.get(&between).map(|&there| way != there)
    };
    let mut known: Vec<(bool, Pair)> =
        pairs.iter().filter_map(|pair| Some((is_back(pair)?, *pair))).collect();
    let both = |back| known.iter().filter(|one| one.0 == back).count() >= LEAST;
    if !both(false) || !both(true) {
        return None;
    }
    let links = are_links(&known);
    if !links {
        // The differences say nothing: there is where the first packet between two ends went.
        let mut first = HashMap::new();
        for (back, pair) in &mut known {
            let (between, way) = between(pair)?;
            *back = *first.entry(between).or_insert(way) != way;
        }
    }
    let mut learned = [Learned::default(), Learned::default()];
    let learn = |learned: &mut [Learned; 2], pair: &Pair, back: bool| {
        learned[0].add(pair.before.macs, pair.before.ends, back);
        learned[1].add(pair.after.macs, pair.after.ends, back);
    };
    known.iter().for_each(|(back, pair)| learn(&mut learned, pair, *back));
    // Others go one way only: what they have in common with the first ones tells which.
    let others: Vec<(bool, Pair)> = pairs
        .iter()
        .filter(|pair| is_back(pair).is_none())
        .filter_map(|pair| {
            let before = learned[0].is_back(pair.before.macs, pair.before.ends);
            let back = before.or_else(|| learned[1].is_back(pair.after.macs, pair.after.ends))?;
            Some((back, *pair))
        })
        .collect();
    others.iter().for_each(|(back, pair)| learn(&mut learned, pair, *back));
    known.extend(others);
    let least = |way: bool| {
        let of =
            known.iter().filter(|(back, _)| *back == way).map(|(_, pair)| match links && way {
                true => -pair.apart_ns,
                false => pair.apart_ns,
            });
        let least = of.min().unwrap_or(0);
        i64::try_from(least).unwrap_or(if least < 0 { i64::MIN } else { i64::MAX })
    };
    let (least_there_ns, least_back_ns) = (least(false), least(true));
    Some(BothWays { ways: learned.map(|one| one.ways()), links, least_there_ns, least_back_ns })
}

/// The two ends of a pair in an order of their own, and whether it goes against this order.
fn between(pair: &Pair) -> Option<([End; 2], bool)> {
    let [from, to] = pair.before.ends?;
    (from != to).then(|| if from < to { ([from, to], false) } else { ([to, from], true) })
}

fn middle(mut numbers: Vec<i128>) -> i128 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Whether the captures are of links, which packets pass in both directions, and not of what came in
/// and what went out. `known` are pairs in the order of time, and whether they have the smaller
/// difference of their ends.
fn are_links(known: &[(bool, Pair)]) -> bool {
    let of = |way: bool| known.iter().filter(move |(back, _)| *back == way).map(|(_, pair)| pair);
    let apart = |way: bool| middle(of(way).map(|pair| pair.apart_ns).collect());
    if apart(true) < 0 {
        return true;
    }
    // Routers take from the time to live, wherever they are captured first.
    let hops = middle(of(true).map(|pair| i128::from(pair.hops)).collect());
    if hops != 0 {
        return hops < 0;
    }
    let neighbours = known.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    let larger = |pair: &[(bool, Pair)]| {
        let (there, back) = if pair[0].0 { (pair[1].1, pair[0].1) } else { (pair[0].1, pair[1].1) };
        there.apart_ns > back.apart_ns
    };
    let (mut all, mut right) = (0, 0);
    for pair in neighbours {
        all += 1;
        right += usize::from(larger(pair));
    }
    right as f64 >= NEARLY_ALL * f64::from(all)
}
