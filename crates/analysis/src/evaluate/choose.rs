//! Which key to match by when none is given, and what to say when a key does not work.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tailtap_wire::ethernet::FCS_LEN;
use tailtap_wire::link::Link;

use super::keyed::{LOOK, keyed, once};
use super::stamps::{self, Stamps, Trailers, is_checked};
use super::{EvaluateError, Options, marked};
use crate::capture::{CaptureError, Content, Damage, Format, Notes, Unreadable};
use crate::clocks::Clocks;
use crate::edges::{Covered, Span};
use crate::equals::Verdict;
use crate::key::{self, Extract, Keeps, KeyKind, Moonsniff, NoKey, Packet, Segment, Stream};
use crate::matching::{Match, Matching};
use crate::series::Series;
use crate::source::{Copies, Feed, Source};
use crate::streams::Streams;
use crate::tick::Tick;

/// Packets of each capture that are looked at.
const SAMPLE: usize = 1000;
/// This share of the sample must carry MoonSniff ids, or have signatures of its own.
const MAJORITY: f64 = 0.5;
/// The strictest key is taken that matches this share of what any does.
const AS_MANY: f64 = 0.9;
/// Fewer of the first packets than this share may be the same by chance.
const MANY: f64 = 0.1;
/// A capture of unknown length is taken for one of so many packets at first.
const UNKNOWN_PACKETS: u64 = 1 << 19;
/// So many frames that all end in their check sequence do so by chance once in 2^256.
const CHECKED: u64 = 8;
/// MoonSniff's times are right modulo this.
const MSCAP_PERIOD_NS: i128 = 1 << 32;

/// A key, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChoice {
    /// The key.
    pub key: KeyKind,
    /// Why, when it was not given.
    pub reason: Option<String>,
    /// About how many packets before the device there are within two windows.
    pub(super) expected_ahead: usize,
    /// About how many packets after the device there are, if that can be guessed.
    pub(super) expected_egress: Option<u64>,
    /// Added to all times before the device.
    pub(super) ingress_shift_ns: u64,
    /// Added to all times after the device.
    pub(super) egress_shift_ns: u64,
    /// The packets of both sides.
    pub(super) ingress: Source,
    pub(super) egress: Source,
    /// How their clocks are to each other, where what they resolve leaves that open or they are two.
    pub(super) clocks: Option<Clocks>,
    /// When packets behind the device may be without their like before it, as the sample changed.
    pub(super) changes: Vec<Range<u64>>,
}

/// Counts whole frames that end in a frame check sequence.
#[derive(Default)]
struct Checked {
    frames: u64,
    right: u64,
}

impl Checked {
    fn add(&mut self, content: Content<'_>) {
        // One that does not settles it.
        if self.right < self.frames {
            return;
        }
        let Content::Frame { bytes, wire_len, link: Link::Ethernet } = content else { return };
        if bytes.len() < wire_len as usize {
            return;
        }
        self.frames += 1;
        self.right += u64::from(is_checked(bytes));
    }

    fn fcs_len(&self) -> usize {
        if self.right >= CHECKED && self.right == self.frames { FCS_LEN } else { 0 }
    }
}

/// The first packets of a capture.
struct Sample {
    format: Format,
    first_ns: Option<u64>,
    last_ns: u64,
    /// Packets in the whole capture, if that can be guessed.
    estimate: Option<u64>,
    packets: usize,
    moonsniff: HashSet<u64>,
    short: usize,
    notes: Notes,
    checked: Checked,
    trailers: Trailers,
    copies: Copies,
    resolution_ns: u64,
    /// What packets differ by that devices leave of them.
    packets_of_their_own: HashSet<u64>,
    /// So many bytes were captured of the payload of any packet that was cut.
    most: u32,
}

impl Sample {
    fn take(mut capture: Feed) -> Result<Self, CaptureError> {
        let mut sample = Self {
            format: capture.format(),
            first_ns: None,
            last_ns: 0,
            estimate: None,
            packets: 0,
            moonsniff: HashSet::new(),
            short: 0,
            notes: Notes::default(),
            checked: Checked::default(),
            trailers: Trailers::default(),
            copies: Copies::default(),
            resolution_ns: 1,
            packets_of_their_own: HashSet::new(),
            most: u32::MAX,
        };
        let mut times = Vec::with_capacity(SAMPLE);
        capture.read(SAMPLE, |packet| {
            times.push(packet.time_ns);
            sample.checked.add(packet.content);
            sample.trailers.add(&packet);
            sample.copies.add(&packet);
            sample.first_ns.get_or_insert(packet.time_ns);
            sample.last_ns = packet.time_ns;
            sample.packets += 1;
            sample.moonsniff.extend(Moonsniff.extract(packet.content).ok().map(|found| found.0));
            let Content::Frame { bytes, link, .. } = packet.content else { return };
            let most = key::cut(bytes, link).unwrap_or(u32::MAX);
            sample.most = sample.most.min(most);
            match (Packet { keeps: Keeps::All, most }).extract(packet.content) {
                Ok((key, _)) => {
                    sample.packets_of_their_own.insert(key);
                }
                Err(NoKey::Short) => sample.short += 1,
                Err(_) => {}
            }
        })?;
        sample.estimate = capture.estimate();
        sample.notes = capture.notes().clone();
        times.sort_unstable();
        let (mut tick, mut series) = (Tick::default(), Series::default());
        tick.record_all(&times);
        series.record_all(&times);
        let seen = tick.of_clock(&series).unwrap_or(1);
        sample.resolution_ns = seen.max(sample.notes.unit_ns).max(1);
        Ok(sample)
    }

    /// About how many packets there are within two windows, going by the rate of the sample.
    fn expected(&self, window_ns: u64) -> usize {
        let sampled_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0)).max(1);
        let ahead = self.packets as u128 * 2 * u128::from(window_ns) / u128::from(sampled_ns);
        ahead.min(u128::from(self.estimate.unwrap_or(UNKNOWN_PACKETS))) as usize
    }

    /// Whether most packets have a key of their own among `distinct` keys.
    fn mostly(&self, distinct: usize) -> bool {
        distinct as f64 >= MAJORITY * self.packets as f64 && distinct > 0
    }
}

/// The key that was given, or the one that fits the captures.
pub(super) fn key(
    ingress_source: Source,
    egress_source: Source,
    options: &Options,
) -> Result<KeyChoice, EvaluateError> {
    let [before, after] = options.nanoseconds;
    let mut sources = [
        ingress_source.told(options.ingress_format, before),
        egress_source.told(options.egress_format, after),
    ];
    let sample = |source: &mut Source| -> Result<Sample, CaptureError> {
        let sample = Sample::take(source.open()?)?;
        source.fcs_len = sample.checked.fcs_len();
        source.without_copies = source.may_have_copies() && sample.copies.are_the_rule();
        // The keys of short frames are others without it.
        let again = source.fcs_len > 0 || source.without_copies;
        if again { Sample::take(source.open()?) } else { Ok(sample) }
    };
    let mut ingress = sample(&mut sources[0])?;
    let mut egress = sample(&mut sources[1])?;
    let chosen = stamps::choose([&ingress.trailers, &egress.trailers], options.stamps);
    if options.stamps == Some(Stamps::Trailer) && chosen.iter().all(|one| one.used.is_none()) {
        let [ingress, egress] = sources.map(|source| source.name().to_owned());
        return Err(EvaluateError::NoTrailer { ingress, egress });
    }
    for (place, sample) in [&mut ingress, &mut egress].into_iter().enumerate() {
        sources[place].unused_trailer = chosen[place].unused;
        if let Some(trailer) = chosen[place].used {
            sources[place].trailer = Some(trailer);
            *sample = Sample::take(sources[place].open()?)?;
        }
    }
    let marked = [&ingress, &egress].map(|sample| sample.notes.marked.clone());
    let marked = [marked[0].as_ref(), marked[1].as_ref()];
    let of_marks = marked::key([sources[0].name(), sources[1].name()], marked, options.key)?;
    let least_level = marked::least_level(marked);
    if least_level > 0 {
        for (source, sample) in sources.iter_mut().zip([&mut ingress, &mut egress]) {
            source.least_level = least_level;
            *sample = Sample::take(source.open()?)?;
        }
    }
    let (ingress_shift_ns, egress_shift_ns) = align(&ingress, &egress);
    let changes = marked::changes(&sources[1], egress_shift_ns)?;
    if options.clocks.is_some() {
        refuse_undated(sources[0].name(), ingress.format)?;
        refuse_undated(sources[1].name(), egress.format)?;
    }
    let chosen = |key, reason: Option<&str>| KeyChoice {
        key,
        reason: reason.map(str::to_owned),
        expected_ahead: ingress.expected(options.window_ns),
        expected_egress: egress.estimate,
        ingress_shift_ns,
        egress_shift_ns,
        ingress: sources[0].clone(),
        egress: sources[1].clone(),
        clocks: clocks(options, ingress.resolution_ns, egress.resolution_ns),
        changes: changes.clone(),
    };
    if let Some(key) = of_marks {
        return Ok(chosen(key, Some("a capture holds hashes of this key")));
    }
    let most = ingress.most.min(egress.most);
    let packet = |keeps| KeyKind::Packet(Packet { keeps, most });
    match options.key {
        Some(KeyKind::Packet(Packet { keeps, .. })) => return Ok(chosen(packet(keeps), None)),
        Some(KeyKind::Stream(stream)) => {
            return Ok(chosen(KeyKind::Stream(Stream { most, ..stream }), None));
        }
        Some(key) => return Ok(chosen(key, None)),
        None => {}
    }
    if ingress.format.holds_ids() || egress.format.holds_ids() {
        return Ok(chosen(KeyKind::Moonsniff, Some("a capture holds packet ids")));
    }
    if ingress.mostly(ingress.moonsniff.len()) && !egress.moonsniff.is_empty() {
        let reason = "the UDP payloads start with ids in MoonSniff's layout";
        return Ok(chosen(KeyKind::Moonsniff, Some(reason)));
    }
    if ingress.mostly(ingress.packets_of_their_own.len()) && egress.packets > 0 {
        // Captures that begin apart have few packets in common at first, or by chance.
        let near = follow(&sources, most, SAMPLE).filter(Followed::is_sure);
        if let Some(found) = near.or_else(|| follow(&sources, most, LOOK)) {
            return Ok(chosen(found.key, Some(&found.told())));
        }
        if !egress.packets_of_their_own.is_empty() {
            return Ok(chosen(packet(Keeps::All), Some("packets differ in what devices keep")));
        }
    } else if let Some(found) = follow_equals(&sources, most) {
        let reason = format!("{}, equal ones by their order", found.told());
        return Ok(chosen(found.key, Some(&reason)));
    }
    let (source, sample) = if ingress.mostly(ingress.packets_of_their_own.len()) {
        (&sources[1], &egress)
    } else {
        (&sources[0], &ingress)
    };
    let why = if sample.packets == 0 {
        no_packet(&sample.notes, source.chosen(&sample.notes.interfaces).as_deref())
    } else if sample.short > sample.packets / 2 {
        "the snap length is too short for a key: capture at least 64 bytes of each packet"
            .to_owned()
    } else {
        format!(
            "no key found: only {} of the first {} packets differ in addresses, ports, IP id and \
             payload, and they carry no ids in MoonSniff's layout; say where the id is with --key \
             OFFSET:WIDTH:le|be or by header (ip.id, udp.payload+0:4:le)",
            sample.packets_of_their_own.len(),
            sample.packets
        )
    };
    Err(EvaluateError::NoKey { path: source.name().to_owned(), why })
}

/// A key that follows packets through the device, and what shows it.
struct Followed {
    key: KeyKind,
    /// What the key is made of.
    by: String,
    /// Packets behind the device that are found, and how many packets before it these are.
    matched: usize,
    found: usize,
    looked_at: usize,
    /// Whether nearly all from the first that is found to the last one are.
    is_whole: bool,
}

impl Followed {
    /// Whether it finds nearly all that both captures have, however much else each has, where the
    /// packets behind the device have a key at all, as many as `behind`.
    fn finds_all(&self, behind: usize) -> bool {
        self.is_sure() && self.is_whole && as_many(self.looked_at, behind)
    }

    /// Whether few packets are enough to tell. Where many begin with the same bytes, some that are in one
    /// capture seem to be merged or cut in the other. Where payloads come again, captures that begin apart
    /// have more of these in common than packets.
    fn is_sure(&self) -> bool {
        let least = match self.key {
            KeyKind::Packet(Packet { keeps: Keeps::All, .. }) => MANY,
            KeyKind::Packet(_) => AS_MANY,
            _ => return false,
        };
        self.matched as f64 >= least * self.looked_at as f64
    }

    fn told(&self) -> String {
        let Self { by, matched, looked_at, .. } = self;
        format!("{matched} of the first {looked_at} packets behind the device are found by {by}")
    }
}

/// Whether some are about as many as all.
fn as_many(some: usize, all: usize) -> bool {
    some as f64 >= AS_MANY * all as f64
}

/// Whether these places are nearly all from the first to the last.
fn is_whole(places: &[usize]) -> bool {
    let [Some(first), Some(last)] = [places.first(), places.last()] else { return false };
    as_many(places.len(), last + 1 - first)
}

/// The strictest key by which nearly all are found that are in both captures; or about as many of the first
/// packets before the device as by any, as less strict ones find packets that are equal by chance; or
/// nearly all that are behind it. `None` where no packet is found.
fn follow(sources: &[Source; 2], most: u32, look: usize) -> Option<Followed> {
    let matched = |keeps: Keeps| -> Option<Followed> {
        let packet = Packet { keeps, most };
        let before = keyed(&sources[0], packet, look)?;
        let after = keyed(&sources[1], packet, look)?;
        // Of the same packet a mirror port may show copies.
        let came: HashSet<u64> = before.iter().map(|found| found.0).collect();
        let there = |place: &usize| came.contains(&after[*place].0);
        let is_whole = is_whole(&(0..after.len()).filter(there).collect::<Vec<_>>());
        let known: HashSet<u64> = once(before).into_iter().map(|found| found.0).collect();
        // A device may send one on several times.
        let matched = after.iter().map(|found| found.0).filter(|key| known.contains(key));
        let found = matched.clone().collect::<HashSet<_>>().len();
        let (matched, looked_at) = (matched.count(), after.len());
        let (key, by) = (KeyKind::Packet(packet), keeps.told().to_owned());
        Some(Followed { key, by, matched, found, looked_at, is_whole })
    };
    let [all @ .., id] = Keeps::ALL;
    let mut found: Vec<Followed> = all.into_iter().filter_map(matched).collect();
    found.extend(follow_streams(sources, Stream { most, carried: false }, look));
    found.extend(matched(id));
    found.extend(follow_streams(sources, Stream { most, carried: true }, look));
    let best = found.iter().map(|one| one.found).max().filter(|&best| best > 0)?;
    let behind = found.iter().map(|one| one.looked_at).max().unwrap_or_default();
    found.into_iter().find(|one| {
        one.finds_all(behind) || as_many(one.found, best) || as_many(one.matched, behind)
    })
}

/// How many of the first packets are in both captures by their bytes, however these were cut.
fn follow_streams([before, after]: &[Source; 2], stream: Stream, look: usize) -> Option<Followed> {
    let read = |source: &Source| -> Option<(Vec<u64>, Vec<Segment>)> {
        let mut found = (Vec::new(), Vec::new());
        let mut capture = source.open().ok()?;
        let read = capture.read(look, |packet| {
            if let Ok((key, segment)) = stream.extract(packet.content) {
                found.0.push(key);
                found.1.push(segment);
            }
        });
        read.ok().map(|_| found)
    };
    // Of datagrams that begin with the same bytes nobody knows which was merged or cut.
    let datagram = |segment: &Segment| segment.bytes > 0 && !segment.is_of_tcp();
    let heads = |segments: &[Segment]| {
        let mut heads: HashMap<u64, usize> = HashMap::new();
        for segment in segments.iter().filter(|segment| datagram(segment)) {
            *heads.entry(segment.head).or_default() += 1;
        }
        heads
    };
    let (keys, segments) = read(before)?;
    let came = heads(&segments);
    let mut streams = Streams::new(&Matching {
        ids: false,
        window: u64::MAX,
        trim_before: 0,
        span: Span::ALL,
        expected: 0,
        losses: 0,
        covered: Covered::ALL,
    });
    // All came before any left: the clocks are not known to agree.
    streams.insert_all(&keys, &vec![0; keys.len()], &segments, 0);
    let (keys, segments) = read(after)?;
    let left = heads(&segments);
    let (mut found, mut whole) = (vec![0; keys.len()], 0);
    // Whether segments of TCP were merged or cut, and datagrams of UDP.
    let mut changed = [false; 2];
    streams.look_up_all(&keys, &vec![1; keys.len()], &segments, |i, verdict| {
        let again = |heads: &HashMap<u64, usize>| heads.get(&segments[i].head) > Some(&1);
        let repeats = datagram(&segments[i]) && (again(&came) || again(&left));
        if repeats || !matches!(verdict, Verdict::Match { .. } | Verdict::Part) {
            return;
        }
        found[i] += 1;
        whole += usize::from(verdict != Verdict::Part);
        changed[usize::from(!segments[i].is_of_tcp())] |= found[i] > 1 || verdict == Verdict::Part;
    });
    let by = match (stream.carried, changed) {
        (true, _) => "what TCP carries, as addresses, ports or its sequence numbers differ",
        (_, [true, true]) => {
            "their bytes, as segments of TCP and datagrams of UDP were merged or cut"
        }
        (_, [true, false]) => {
            "addresses, ports and the bytes of TCP's streams, as segments were merged or cut"
        }
        (_, [false, true]) => "the bytes of UDP's flows, as datagrams were merged or cut",
        (_, [false, false]) => "addresses, ports and TCP's sequence numbers, as the rest differs",
    };
    Some(Followed {
        key: KeyKind::Stream(stream),
        by: by.to_owned(),
        matched: found.iter().filter(|&&found| found > 0).count(),
        is_whole: is_whole(&(0..found.len()).filter(|&at| found[at] > 0).collect::<Vec<_>>()),
        found: whole,
        looked_at: keys.len(),
    })
}

/// The strictest key by which most of the first packets behind the device are equal to packets before
/// it, as many of each; of those that tell flows apart, as order is kept within a flow.
fn follow_equals(sources: &[Source; 2], most: u32) -> Option<Followed> {
    [Keeps::All, Keeps::Flow].into_iter().find_map(|keeps| {
        let packet = Packet { keeps, most };
        let before = keyed(&sources[0], packet, SAMPLE)?;
        let after = keyed(&sources[1], packet, SAMPLE)?;
        let mut there: HashMap<u64, usize> = HashMap::new();
        before.iter().for_each(|(key, _)| *there.entry(*key).or_default() += 1);
        let looked_at = after.len();
        let found = after.iter().filter(|(key, _)| match there.get_mut(key) {
            Some(left @ 1..) => {
                *left -= 1;
                true
            }
            _ => false,
        });
        let matched = found.count();
        let many = matched > 0 && matched as f64 >= MAJORITY * looked_at as f64;
        many.then_some(Followed {
            key: KeyKind::Packet(packet),
            by: keeps.told().to_owned(),
            matched,
            found: matched,
            looked_at,
            is_whole: true,
        })
    })
}

/// How the clocks are to each other. Stamps of one clock that are cut to the same step keep their order;
/// cut to two steps, a packet may seem to have left before it came, by as much as the longer step.
fn clocks(options: &Options, before_ns: u64, after_ns: u64) -> Option<Clocks> {
    let coarser = before_ns.max(after_ns);
    match &options.clocks {
        Some(clocks) if coarser > 1 => Some(clocks.widened(coarser)),
        Some(clocks) => Some(clocks.clone()),
        None => (before_ns != after_ns).then(|| Clocks::one(coarser)),
    }
}

/// An error when nothing is known of a capture's times but what lies between them.
pub(super) fn refuse_undated(path: &std::path::Path, format: Format) -> Result<(), EvaluateError> {
    match format {
        Format::Mscap => Err(Unreadable::Undated.of(path).into()),
        _ => Ok(()),
    }
}

/// What to say of a capture without a single packet, or none of those that were chosen.
pub(super) fn no_packet(notes: &Notes, chosen: Option<&str>) -> String {
    match (&notes.damage, notes.reasons()) {
        (None, None) if let Some(chosen) = chosen => {
            format!("no packet of the capture is of {chosen}")
        }
        (Some(Damage { byte, why }), _) => {
            format!("nothing can be read: damaged before the first packet (byte {byte}): {why}")
        }
        (None, Some(reasons)) => format!("no packet can be read: {reasons}"),
        (None, None) => "there is no packet in the capture".to_owned(),
    }
}

/// MoonSniff's times of two captures may differ by whole periods: what to add to each so that
/// they start together.
fn align(ingress: &Sample, egress: &Sample) -> (u64, u64) {
    let (Some(before), Some(after)) = (ingress.first_ns, egress.first_ns) else {
        return (0, 0);
    };
    if ingress.format != Format::Mscap || egress.format != Format::Mscap {
        return (0, 0);
    }
    let apart = i128::from(before) - i128::from(after);
    let periods = (apart + MSCAP_PERIOD_NS / 2).div_euclid(MSCAP_PERIOD_NS);
    let shift = u64::try_from(periods.abs() * MSCAP_PERIOD_NS).unwrap_or(0);
    if periods > 0 { (0, shift) } else { (shift, 0) }
}
