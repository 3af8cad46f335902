//! Taps: stamps, or the first bytes, of every packet that passes a link, into files of its own.
//!
//! A packet's way: the eBPF program ([`program`]) on a link stamps it, some of them with the
//! kernel's stamp of its arrival ([`arrival`]); the record goes through a ring in shared memory
//! ([`ring`]) to the thread that runs [`tap`], which sorts the records of each link and writes them
//! ([`live`], [`writer`], [`file`](mod@file)). [`hardware`] writes such files from the stamps of
//! network cards.

mod arrival;
mod budget;
mod error;
pub mod file;
pub mod hardware;
mod key;
mod live;
mod meter;
mod program;
mod ring;
pub mod writer;

use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tailtap_analysis::key::{Keeps, KeyKind, Packet, Sampling};
use tailtap_analysis::marks::{MOST_LEVEL, MarkCounts, Sample};
use tailtap_analysis::stamps::Clock;

use crate::OnReady;
use crate::bpf::{Classic, enable_statistics};
use crate::clock::{ClockSet, Deadline, now_ns, realtime_ahead_ns};
use crate::cpu::{pin, synchronize_rcu};
use crate::privileges::{self, Work};
use crate::signals::StopSignals;

use arrival::ask_for_stamps;
use budget::{Budget, Change, Taken};
use file::{Format, MOST_PAYLOAD, Marking};
use live::{LiveTap, Prepared};
use meter::{LinkMeasured, Meter};
use program::{Interest, Keep};
use writer::{Rotation, Target};

pub use crate::bpf::Hook;
pub use error::TapError;
pub use key::TapKey;
pub use meter::{Measured, Totals};
#[cfg(test)]
pub(crate) use program::answers as program_answers;

/// Bytes of a tap's ring unless told otherwise, before it is rounded up.
pub const DEFAULT_ROOM: u64 = 64 << 20;
/// The largest ring: 2^26 records, 1 GiB of stamps.
const MAX_RECORDS: u64 = 1 << 26;
/// The most bytes of a packet: all of any.
pub const MAX_SNAP: u32 = 65_535;
/// Bytes moved from ring to file at once.
const CHUNK: u64 = 1 << 20;
/// How often it is looked whether links have seen enough packets.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked at what the taps cost that have a budget.
const BUDGET_NS: u64 = 1_000_000_000;
const MEASURING: &str = "measure eBPF programs";
/// How soon a ring is looked at again whose records are not complete yet.
const AGAIN: Duration = Duration::from_millis(1);

/// What becomes of a packet after its stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// It goes on its way.
    Pass,
    /// It is absorbed.
    Drop,
    /// It leaves through this interface.
    To(String),
}

/// Which packets of an interface are stamped, when, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Those that arrive, when they were handed over; those that leave through another interface,
    /// as they leave.
    Arriving(Forward),
    /// Those that arrive, when they were handed over, also where they leave through another interface.
    HandedOver(Forward),
    /// Those that leave, as they leave.
    Leaving(Forward),
    /// Those that arrive, when they are received: beside a tap that has what was handed over. They
    /// go on their way.
    Received,
}

impl Point {
    /// What becomes of the packets.
    fn forward(&self) -> &Forward {
        match self {
            Self::Arriving(forward) | Self::HandedOver(forward) | Self::Leaving(forward) => forward,
            Self::Received => &Forward::Pass,
        }
    }

    /// Where the program sees them.
    fn hook(&self) -> Hook {
        match self {
            Self::Arriving(_) | Self::HandedOver(_) | Self::Received => Hook::Ingress,
            Self::Leaving(_) => Hook::Egress,
        }
    }

    /// Whether they are stamped when they were handed over to the interface.
    fn stamps_arrival(&self) -> bool {
        matches!(self, Self::Arriving(Forward::Pass | Forward::Drop) | Self::HandedOver(_))
    }
}

/// A link to tap.
#[derive(Clone, Debug)]
pub struct Link {
    /// What to call it.
    pub name: String,
    /// The network namespace of its interfaces, as [`Namespace::open`](crate::namespace::Namespace::open)
    /// has it; that of the calling thread unless given.
    pub namespace: Option<String>,
    /// The interface whose packets are stamped.
    pub interface: String,
    /// Which of them, and what becomes of them.
    pub point: Point,
    /// The file.
    pub path: PathBuf,
    /// Room in its ring, rounded up to a power of two; that of all links unless given.
    pub records: Option<u64>,
    /// Of marks, what their hashes are of.
    pub hash: Option<KeyKind>,
    /// Whether its packets were through the device, if that is said.
    pub behind: Option<bool>,
}

impl Link {
    /// Whether its packets were through the device: unless it is said, those that leave.
    fn is_behind(&self) -> bool {
        self.behind.unwrap_or(matches!(self.point, Point::Leaving(_)))
    }
}

/// The files that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Time and id of each packet with an id.
    Stamps,
    /// The first bytes of every packet, at most so many.
    Pcap(u32),
    /// Time, hash and length of every packet; so many of its first bytes are looked at.
    Marks(u32),
}

impl Kind {
    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stamps => "stamps",
            Self::Pcap(_) => "pcap",
            Self::Marks(_) => "marks",
        }
    }
}

/// What to tap and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The links; at least one.
    pub links: Vec<Link>,
    /// What to write of each packet.
    pub kind: Kind,
    /// Where stamped packets carry their ids.
    pub key: TapKey,
    /// The clock of the times.
    pub clock: Clock,
    /// When to go on to the next file.
    pub rotation: Rotation,
    /// Room in each link's ring, rounded up to a power of two; `None` for [`DEFAULT_ROOM`].
    pub records: Option<u64>,
    /// Write at least this often; `None` to write nothing while little of the room is used.
    pub flush_ns: Option<u64>,
    /// End after this long.
    pub duration_ns: Option<u64>,
    /// End when every link has seen this many packets.
    pub count: Option<u64>,
    /// Where the thread that writes the files runs.
    pub cpu: Option<usize>,
    /// Measure what the taps cost.
    pub measure_cost: bool,
    /// Which packets are of interest: libpcap's program for frames of Ethernet.
    pub filter: Option<Vec<Classic>>,
    /// The same for packets that begin with IP, if there can be one.
    pub filter_of_ip: Option<Vec<Classic>>,
    /// One packet of `2^level` is stamped.
    pub level: u8,
    /// So much of one core's time the taps may take; they take thinner samples rather than more.
    pub budget: Option<f64>,
    /// How often it is told what was counted and measured.
    pub tell_ns: Option<u64>,
}

/// Told now and then what was counted and measured.
pub type OnTell<'a> = dyn FnMut(&Measured) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// What a tap did on one link.
#[derive(Clone, Debug)]
pub struct Report {
    /// The link.
    pub link: Link,
    /// Its files, at least one.
    pub files: Vec<PathBuf>,
    /// The counts, as in the file; of several, the sums.
    pub counts: MarkCounts,
    /// Where the program ran.
    pub hook: &'static str,
    /// The samples that were taken before the device, with the times of CLOCK_MONOTONIC.
    pub samples: Vec<Sample>,
    /// Packets that were stamped on receipt, as the kernel had not stamped them when they were
    /// handed over: later than they should be, by an unknown time.
    pub late: u64,
    /// Packets that the kernel dropped between handing over and stamping, those without an id
    /// included: its queue was full.
    pub dropped: u64,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What the eBPF program cost, if asked for.
    pub cost: Option<Cost>,
}

/// What the kernel says that eBPF programs cost, in nanoseconds for a packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The tap's program. This includes `floor_ns`.
    pub tap_ns: f64,
    /// A program that does nothing: the time that the kernel takes to ask its clock.
    pub floor_ns: f64,
    /// A program that reads the clock of the stamps. This includes `floor_ns`, too.
    pub clock_ns: f64,
}

/// Taps the links until SIGINT, SIGTERM, the duration or the count, and reports link by link, in
/// the order given. Pins the calling thread if asked to, and gives its privileges up: call it from a
/// thread of its own.
pub fn tap(
    options: &Options,
    on_ready: Box<OnReady<'_>>,
    on_tell: &mut OnTell<'_>,
) -> Result<Vec<Report>, TapError> {
    let keep = keep(options)?;
    let sampling = options.links.iter().map(|link| sampling(options, link));
    let sampling: Vec<Option<Sampling>> = sampling.collect::<Result<_, _>>()?;
    let size = keep.slot_words() * size_of::<u64>();
    let slots = slots(options, DEFAULT_ROOM / size as u64)?;
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let system = |what| move |source| TapError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let statistics =
        options.measure_cost.then(enable_statistics).transpose().map_err(system(MEASURING))?;

    let stamps = options
        .links
        .iter()
        .any(|link| link.point.stamps_arrival())
        .then(ask_for_stamps)
        .transpose();
    let _stamps = stamps.map_err(system("ask for the kernel's stamps"))?;
    let prepared: Vec<Prepared> = options
        .links
        .iter()
        .enumerate()
        .map(|(at, link)| {
            let id = match link.hash {
                Some(KeyKind::Field(field)) => TapKey::of_field(field),
                _ => None,
            };
            let filters = (options.filter.as_deref(), options.filter_of_ip.as_deref());
            let interest = Interest { filter: None, sampling: sampling[at], id };
            Prepared::new(link, keep, slots[at] as u32, filters, interest)
        })
        .collect::<Result<_, _>>()?;
    let clock_set = ClockSet::watch().map_err(system("watch the clock"))?;
    let mut ahead = realtime_ahead_ns();
    let first = Sample { since_ns: now_ns(), level: options.level };
    let target = Target {
        path: PathBuf::new(),
        link: String::new(),
        format: Format::Stamps,
        clock: options.clock,
        // The same for all links, so that their times can be compared to the nanosecond.
        shift: if options.clock == Clock::Realtime { ahead } else { 0 },
        rotation: options.rotation,
        sample: first,
    };
    // All files and programs are ready before the first link is touched.
    let mut taps: Vec<LiveTap<'_>> = prepared
        .iter()
        .zip(&sampling)
        .map(|(prepared, &sampling)| {
            let format = format(options, prepared, sampling);
            LiveTap::start(prepared, &target, format, (CHUNK / size as u64).max(1), ahead)
        })
        .collect::<Result<_, _>>()?;
    let mut sampler = Sampler::new(options, first);
    let period = options.budget.map(|_| BUDGET_NS).into_iter().chain(options.tell_ns).min();
    let mut meter = match (period, prepared.first()) {
        (Some(period), Some(any)) => {
            Some(Meter::new(period, &any.program).map_err(system(MEASURING))?)
        }
        _ => None,
    };
    on_ready().map_err(TapError::Ready)?;
    let elsewhere = options.links.iter().any(|link| link.namespace.is_some());
    privileges::keep(Work::Tap { elsewhere, measured: meter.is_some() })
        .map_err(system("give up root's privileges"))?;

    let begin = now_ns();
    if let Some(meter) = &mut meter {
        meter.begin(begin, &taps);
    }
    let end = options.duration_ns.map_or(u64::MAX, |ns| begin.saturating_add(ns));
    let mut flush = Deadline::new(options.flush_ns, begin);
    let mut tell = Deadline::new(options.tell_ns, begin);
    let bells = prepared.iter().map(|prepared| prepared.program.bell.fd());
    let watched: Vec<_> = bells.chain([clock_set.fd()]).collect();
    while !signals.requested() {
        let now = now_ns();
        let enough = |count| taps.iter().all(|tap| tap.seen() >= count);
        if now >= end || options.count.is_some_and(enough) {
            break;
        }
        // Nobody wakes a CPU that may be the generator's without need: it sleeps until it is told.
        let measured = meter.as_ref().map_or(u64::MAX, Meter::due_ns);
        let due = end.min(flush.due()).min(measured).min(sampler.due_ns());
        let mut left = Duration::from_nanos(due.saturating_sub(now));
        if options.count.is_some() {
            left = left.min(LOOK);
        }
        if taps.iter().any(|tap| tap.ring.should_drain()) {
            left = left.min(AGAIN);
        }
        signals.wait_for_any(&watched, left);
        prepared.iter().for_each(|prepared| prepared.program.bell.hear());
        clock_set.hear();
        let now_ahead = realtime_ahead_ns();
        if now_ahead != ahead {
            for tap in &mut taps {
                tap.clock_was_set(ahead, now_ahead);
            }
            ahead = now_ahead;
        }
        let all = flush.is_due();
        for tap in &mut taps {
            if all || tap.ring.should_drain() {
                tap.drain();
            }
        }
        sampler.catch_up(&mut taps, now_ns());
        let measured = meter.as_mut().map(|meter| meter.step(now_ns(), &taps)).transpose();
        if let Some(measured) = measured.map_err(system(MEASURING))?.flatten() {
            if tell.is_due_at(measured.time_ns) {
                on_tell(&measured).map_err(TapError::Ready)?;
            }
            sampler.decide(&mut taps, &measured);
        }
        if taps.iter().any(|tap| tap.failed.is_some()) {
            break;
        }
    }

    for tap in &mut taps {
        tap.detach();
    }
    synchronize_rcu();
    let compared = match (&statistics, prepared.first()) {
        // What cannot be measured is taken for nothing, so that the taps look no cheaper.
        (Some(_), Some(first)) => {
            Some((first.program.floor().unwrap_or(0.0), first.program.clock().unwrap_or(0.0)))
        }
        _ => None,
    };
    drop(statistics);
    // Every file is completed, whatever becomes of the others.
    let reports: Vec<_> =
        taps.into_iter().map(|tap| tap.finish(compared, sampler.told())).collect();
    reports.into_iter().collect()
}

/// The slots of each link's ring, of which there are `usual` unless the options say otherwise.
fn slots(options: &Options, usual: u64) -> Result<Vec<u64>, TapError> {
    let usual = options.records.unwrap_or(usual);
    let wanted = options.links.iter().map(|link| link.records.unwrap_or(usual));
    // What is said of all links is checked even where each link has its own.
    if let Some(records) =
        wanted.clone().chain([usual]).find(|wanted| !(1..=MAX_RECORDS).contains(wanted))
    {
        return Err(TapError::Records { records });
    }
    Ok(wanted.map(u64::next_power_of_two).collect())
}

/// What the options mean for the eBPF program. Fails when they contradict each other.
fn keep(options: &Options) -> Result<Keep, TapError> {
    if options.level > MOST_LEVEL {
        return Err(TapError::Sample { of: 1 << options.level.min(63) });
    }
    match (options.kind, options.key) {
        (Kind::Stamps, TapKey::Moonsniff) => Ok(Keep::Stamps),
        (Kind::Stamps, TapKey::Field(field)) => Ok(Keep::Field(field)),
        (Kind::Pcap(snap) | Kind::Marks(snap), _) if !(1..=MAX_SNAP).contains(&snap) => {
            Err(TapError::Snap { snap })
        }
        (Kind::Pcap(_) | Kind::Marks(_), TapKey::Field(_)) => Err(TapError::KeyOfPackets),
        (Kind::Pcap(snap) | Kind::Marks(snap), TapKey::Moonsniff) => Ok(Keep::Bytes(snap)),
    }
}

/// How samples of a link's packets are taken, if they are.
fn sampling(options: &Options, link: &Link) -> Result<Option<Sampling>, TapError> {
    let key = match (options.kind, options.key) {
        (Kind::Marks(_), _) => match link.hash {
            Some(key) if key.fits_marks() => key,
            Some(key) => return Err(TapError::NoMarks { key }),
            None => return Err(TapError::NoHash { link: link.name.clone() }),
        },
        (Kind::Stamps, TapKey::Moonsniff) => KeyKind::Moonsniff,
        (Kind::Stamps, TapKey::Field(field)) => KeyKind::Field(field),
        // By what nearly all devices leave.
        (Kind::Pcap(_), _) => KeyKind::Packet(Packet::new(Keeps::Payload)),
    };
    if options.level == 0 && options.budget.is_none() {
        return Ok(None);
    }
    if options.budget.is_some() && !matches!(options.kind, Kind::Marks(_)) {
        return Err(TapError::Budget);
    }
    Sampling::of(key).map(Some).ok_or(TapError::NoSample { key })
}

/// What is written of a link.
fn format(options: &Options, prepared: &Prepared<'_>, sampling: Option<Sampling>) -> Format {
    let (link, ethernet) = (prepared.link, prepared.has_ethernet());
    match (options.kind, link.hash) {
        (Kind::Stamps, _) => Format::Stamps,
        (Kind::Marks(snap), Some(key)) => {
            let key = match key {
                KeyKind::Packet(Packet { keeps, .. }) => {
                    KeyKind::Packet(Packet { keeps, most: MOST_PAYLOAD })
                }
                key => key,
            };
            let left = matches!(link.point, Point::Leaving(_));
            Format::Marks(Marking { key, snap, sampling, left, ethernet })
        }
        (Kind::Pcap(snap) | Kind::Marks(snap), _) => Format::Pcap { snap, ethernet },
    }
}

/// Changes the samples of all links together, as a budget asks for.
struct Sampler {
    budget: Option<Budget>,
    samples: Vec<Sample>,
    /// What the links behind the device are to take, and from when on.
    ahead: VecDeque<(u64, u8)>,
}

impl Sampler {
    fn new(options: &Options, first: Sample) -> Self {
        let budget = options.budget.map(|limit| Budget::new(limit, options.level));
        Self { budget, samples: vec![first], ahead: VecDeque::new() }
    }

    /// When links behind the device are to take another sample.
    fn due_ns(&self) -> u64 {
        self.ahead.front().map_or(u64::MAX, |&(due, _)| due)
    }

    /// Has the links behind the device take what is due.
    fn catch_up(&mut self, taps: &mut [LiveTap<'_>], now: u64) {
        while let Some(&(due, level)) = self.ahead.front()
            && due <= now
        {
            self.ahead.pop_front();
            taps.iter_mut().filter(|tap| tap.is_behind()).for_each(|tap| tap.set_level(level));
        }
    }

    /// Takes another sample if the links' shares of a core's time ask for it. A packet that is in the sample
    /// before the device is so behind it: there a thinner one is taken later, and a denser one first.
    fn decide(&mut self, taps: &mut [LiveTap<'_>], measured: &Measured<'_>) {
        let now = now_ns();
        let Some(budget) = &mut self.budget else { return };
        if !taps.iter().all(LiveTap::takes_change) {
            return;
        }
        let links = taps.iter().zip(&measured.links);
        let of_before = || links.clone().filter(|(tap, _)| !tap.is_behind());
        let taken = Taken {
            share: measured.share,
            before: of_before().map(|(_, link)| link.share).sum(),
            part: of_before().count() as f64 / taps.len() as f64,
            packet_ns: packet_ns(of_before()).or_else(|| packet_ns(links)),
        };
        let Some(Change { level, behind_ns }) = budget.decide(taken, now) else { return };
        self.ahead.push_back((behind_ns, level));
        self.catch_up(taps, now);
        let sample = Sample { since_ns: now, level };
        for tap in taps.iter_mut() {
            if !tap.is_behind() {
                tap.set_level(level);
            }
            tap.say_sample(sample);
        }
        self.samples.push(sample);
    }

    /// The samples, and what should be warned of.
    fn told(&self) -> (&[Sample], Option<String>) {
        let Some(budget) = &self.budget else { return (&self.samples, None) };
        let exceeded = budget.exceeded().map(|share| {
            let with = match budget.given_up() {
                None => "with the thinnest sample".into(),
                Some((dense, thin)) => format!(
                    "and a thinner sample costs no less ({thin:.0} ns a packet, and {dense:.0} without)"
                ),
            };
            format!(
                "the taps took up to {:.2} % of a core {with}, which is more than the budget: filter, \
                 or tap elsewhere",
                100.0 * share
            )
        });
        (&self.samples, exceeded)
    }
}

/// What a packet cost at some links, in nanoseconds; none where none was timed.
fn packet_ns<'a>(
    links: impl Iterator<Item = (&'a LiveTap<'a>, &'a LinkMeasured<'a>)>,
) -> Option<f64> {
    let timed = links.filter_map(|(_, link)| link.ns.map(|ns| (link.rate, ns)));
    let (rate, spent) = timed.fold((0.0, 0.0), |(rate, spent), (packets, ns)| {
        (rate + packets, spent + packets * ns)
    });
    (rate > 0.0).then(|| spent / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_without_or_with_too_many_records_are_refused() {
        for records in [0, MAX_RECORDS + 1] {
            let error = refused(Options { records: Some(records), ..options() });
            assert!(matches!(error, TapError::Records { .. }), "{error}");
        }
    }

    #[test]
    fn each_link_may_have_room_of_its_own() {
        let link = |records| Link {
            name: "a".into(),
            namespace: None,
            interface: "a".into(),
            point: Point::Arriving(Forward::Drop),
            path: PathBuf::new(),
            records,
            hash: None,
            behind: None,
        };
        let links = vec![link(None), link(Some(5)), link(Some(1 << 26))];
        let options = Options { links: links.clone(), ..options() };
        assert_eq!(slots(&options, 100).expect("possible"), [128, 8, 1 << 26]);
        let options = Options { records: Some(3), ..options };
        assert_eq!(slots(&options, 100).expect("possible"), [4, 8, 1 << 26]);
        for records in [0, MAX_RECORDS + 1] {
            let links = vec![link(None), link(Some(records))];
            let error = refused(Options { links, ..options.clone() });
            assert!(matches!(error, TapError::Records { .. }), "{error}");
        }
    }

    #[test]
    fn keys_and_formats_that_do_not_fit_are_refused() {
        for text in ["signature", "auto", "10:5:be", "10:4", "x"] {
            let message = text.parse::<TapKey>().expect_err("refused").to_string();
            assert!(message.starts_with(&format!("'{text}' is not a key")), "{message}");
        }
        let key = "10:4:be".parse().expect("a key");
        let error = refused(Options { key, kind: Kind::Pcap(64), ..options() });
        assert!(matches!(error, TapError::KeyOfPackets), "{error}");
        for snap in [0, MAX_SNAP + 1] {
            for kind in [Kind::Pcap(snap), Kind::Marks(snap)] {
                let error = refused(Options { kind, ..options() });
                assert!(matches!(error, TapError::Snap { .. }), "{error}");
            }
        }
    }

    #[test]
    fn samples_and_budgets_that_cannot_be_kept_are_refused() {
        let marks = |hash: Option<&str>| Options {
            kind: Kind::Marks(256),
            links: vec![Link {
                name: "a".into(),
                namespace: None,
                interface: "a".into(),
                point: Point::Arriving(Forward::Pass),
                path: PathBuf::new(),
                records: None,
                hash: hash.map(|key| key.parse().expect("a key")),
                behind: None,
            }],
            ..options()
        };
        let error = refused(marks(None));
        assert!(matches!(error, TapError::NoHash { .. }), "{error}");
        for key in ["signature", "packet-stream"] {
            let error = refused(marks(Some(key)));
            assert!(matches!(error, TapError::NoMarks { .. }), "{error}");
        }
        let sampled = Options { level: 4, ..marks(Some("udp.payload+0:4:le")) };
        let error = refused(sampled);
        assert!(matches!(error, TapError::NoSample { .. }), "{error}");
        let error = refused(Options { level: MOST_LEVEL + 1, ..marks(Some("packet")) });
        assert!(matches!(error, TapError::Sample { of: 131_072 }), "{error}");
        let links = marks(None).links;
        let error = refused(Options { budget: Some(0.02), links, ..options() });
        assert!(matches!(error, TapError::Budget), "{error}");
    }

    fn refused(options: Options) -> TapError {
        tap(&options, Box::new(|| Ok(())), &mut |_| Ok(())).expect_err("refused")
    }

    fn options() -> Options {
        Options {
            links: Vec::new(),
            kind: Kind::Stamps,
            key: TapKey::Moonsniff,
            clock: Clock::Monotonic,
            rotation: Rotation::default(),
            records: None,
            flush_ns: None,
            duration_ns: None,
            count: None,
            cpu: None,
            measure_cost: false,
            filter: None,
            filter_of_ip: None,
            level: 0,
            budget: None,
            tell_ns: None,
        }
    }
}
