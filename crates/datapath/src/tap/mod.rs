//! Taps: stamps, or the first bytes, of every packet that passes a link, into files of its own.
//!
//! A packet's way: the eBPF program ([`program`]) on a link stamps it, some of them with the
//! kernel's stamp of its arrival ([`arrival`]); the record goes through a ring in shared memory
//! ([`ring`]) to the thread that runs [`tap`], which sorts the records of each link and writes them
//! ([`live`], [`writer`], [`file`](mod@file)). [`hardware`] writes such files from the stamps of
//! network cards.

mod arrival;
mod error;
pub mod file;
pub mod hardware;
mod key;
mod live;
mod program;
mod ring;
pub mod writer;

use std::path::PathBuf;
use std::time::Duration;

use tailtap_analysis::stamps::{Clock, TapCounts};

use crate::OnReady;
use crate::bpf::enable_statistics;
use crate::clock::{ClockSet, Deadline, now_ns, realtime_ahead_ns};
use crate::cpu::{pin, synchronize_rcu};
use crate::privileges::{self, Work};
use crate::signals::StopSignals;

use arrival::ask_for_stamps;
use file::Format;
use live::{LiveTap, Prepared};
use program::Keep;
use writer::{Rotation, Target};

pub use crate::bpf::Hook;
pub use error::TapError;
pub use key::TapKey;

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
}

/// What to tap and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The links; at least one.
    pub links: Vec<Link>,
    /// What to write of each packet.
    pub format: Format,
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
}

/// What a tap did on one link.
#[derive(Clone, Debug)]
pub struct Report {
    /// The link.
    pub link: Link,
    /// Its files, at least one.
    pub files: Vec<PathBuf>,
    /// The counts, as in the file; of several, the sums.
    pub counts: TapCounts,
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
pub fn tap(options: &Options, on_ready: Box<OnReady<'_>>) -> Result<Vec<Report>, TapError> {
    let keep = keep(options)?;
    let size = keep.slot_words() * size_of::<u64>();
    let slots = slots(options, DEFAULT_ROOM / size as u64)?;
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let system = |what| move |source| TapError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let statistics = options
        .measure_cost
        .then(enable_statistics)
        .transpose()
        .map_err(system("measure eBPF programs"))?;

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
        .zip(&slots)
        .map(|(link, &slots)| Prepared::new(link, keep, slots as u32))
        .collect::<Result<_, _>>()?;
    let clock_set = ClockSet::watch().map_err(system("watch the clock"))?;
    let mut ahead = realtime_ahead_ns();
    let target = Target {
        path: PathBuf::new(),
        link: String::new(),
        format: options.format,
        clock: options.clock,
        // The same for all links, so that their times can be compared to the nanosecond.
        shift: if options.clock == Clock::Realtime { ahead } else { 0 },
        rotation: options.rotation,
    };
    // All files and programs are ready before the first link is touched.
    let mut taps: Vec<LiveTap<'_>> = prepared
        .iter()
        .map(|prepared| LiveTap::start(prepared, &target, (CHUNK / size as u64).max(1), ahead))
        .collect::<Result<_, _>>()?;
    on_ready().map_err(TapError::Ready)?;
    let elsewhere = options.links.iter().any(|link| link.namespace.is_some());
    privileges::keep(Work::Tap { elsewhere }).map_err(system("give up root's privileges"))?;

    let begin = now_ns();
    let end = options.duration_ns.map_or(u64::MAX, |ns| begin.saturating_add(ns));
    let mut flush = Deadline::new(options.flush_ns, begin);
    let bells = prepared.iter().map(|prepared| prepared.program.bell.fd());
    let watched: Vec<_> = bells.chain([clock_set.fd()]).collect();
    while !signals.requested() {
        let now = now_ns();
        let enough = |count| taps.iter().all(|tap| tap.seen() >= count);
        if now >= end || options.count.is_some_and(enough) {
            break;
        }
        // Nobody wakes a CPU that may be the generator's without need: it sleeps until it is told.
        let mut left = Duration::from_nanos(end.min(flush.due()).saturating_sub(now));
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
            (first.program.floor().unwrap_or(0.0), first.program.clock().unwrap_or(0.0))
        }
        _ => (0.0, 0.0),
    };
    drop(statistics);
    // Every file is completed, whatever becomes of the others.
    let reports: Vec<_> = taps.into_iter().map(|tap| tap.finish(compared)).collect();
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
    match (options.format, options.key) {
        (Format::Stamps, TapKey::Moonsniff) => Ok(Keep::Stamps),
        (Format::Stamps, TapKey::Field(field)) => Ok(Keep::Field(field)),
        (Format::Pcap { snap }, _) if !(1..=MAX_SNAP).contains(&snap) => {
            Err(TapError::Snap { snap })
        }
        (Format::Pcap { snap }, TapKey::Moonsniff) => Ok(Keep::Bytes(snap)),
        (Format::Pcap { .. }, TapKey::Field(_)) => Err(TapError::KeyOfPackets),
    }
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
        let pcap = |snap| Format::Pcap { snap };
        let error = refused(Options { key, format: pcap(64), ..options() });
        assert!(matches!(error, TapError::KeyOfPackets), "{error}");
        for snap in [0, MAX_SNAP + 1] {
            let error = refused(Options { format: pcap(snap), ..options() });
            assert!(matches!(error, TapError::Snap { .. }), "{error}");
        }
    }

    fn refused(options: Options) -> TapError {
        tap(&options, Box::new(|| Ok(()))).expect_err("refused")
    }

    fn options() -> Options {
        Options {
            links: Vec::new(),
            format: Format::Stamps,
            key: TapKey::Moonsniff,
            clock: Clock::Monotonic,
            rotation: Rotation::default(),
            records: None,
            flush_ns: None,
            duration_ns: None,
            count: None,
            cpu: None,
            measure_cost: false,
        }
    }
}
