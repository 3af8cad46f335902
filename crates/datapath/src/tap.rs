//! Taps: stamps, or the first bytes, of every packet that passes a link, into files of its own.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use libbpf_rs::ErrorKind;
use tailtap_analysis::key::{Field, KeyKind};
use tailtap_analysis::stamps::{Clock, TapCounts};

use crate::arrival::ask_for_stamps;
use crate::clock::{now_ns, realtime_ahead_ns};
use crate::cpu::{CpuError, pin, synchronize_rcu};
use crate::interface::{Interface, InterfaceError};
pub use crate::program::Hook;
use crate::program::{
    Attachment, Keep, MAX_KEY_WIDTH, Moment, Program, Verdict, enable_statistics,
};
use crate::ring::Ring;
use crate::signals::StopSignals;
use crate::tapfile::Format;
use crate::writer::{Rotation, Target, WriteError, Writer};

/// Bytes of a tap's ring unless told otherwise, before it is rounded up.
pub const DEFAULT_ROOM: u64 = 64 << 20;
/// The largest ring: 2^26 records, 1 GiB of stamps.
const MAX_RECORDS: u64 = 1 << 26;
/// The most bytes of a packet: all of any.
pub const MAX_SNAP: u32 = 65_535;
/// Bytes moved from ring to file at once.
const CHUNK: u64 = 1 << 20;
/// A rate that no tap on one link exceeds, in packets for each second.
const FASTEST: u64 = 4_000_000;
/// What is warned about when CLOCK_REALTIME jumps.
const CLOCK_SET: &str = "the system's clock was set";
/// What an interface is warned about that was deleted while it was tapped.
const VANISHED: &str = "interface vanished";

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

/// Where the packets that are stamped carry their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapKey {
    /// In MoonSniff's layout.
    Moonsniff,
    /// At a fixed place, at most [`MAX_KEY_WIDTH`] bytes wide.
    Field(Field),
}

/// A text that names no key of a tap.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{0}' is not a key of a tap: give moonsniff or OFFSET:WIDTH:le|be with a width of 1 to \
     {MAX_KEY_WIDTH} bytes (42:4:le, say)"
)]
pub struct ParseTapKeyError(String);

impl FromStr for TapKey {
    type Err = ParseTapKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(KeyKind::Moonsniff) => Ok(Self::Moonsniff),
            Ok(KeyKind::Field(field)) if field.width <= MAX_KEY_WIDTH => Ok(Self::Field(field)),
            _ => Err(ParseTapKeyError(text.into())),
        }
    }
}

/// A link to tap.
#[derive(Clone, Debug)]
pub struct Link {
    /// What to call it.
    pub name: String,
    /// The interface whose packets are stamped.
    pub interface: String,
    /// Which of them.
    pub hook: Hook,
    /// What becomes of them.
    pub forward: Forward,
    /// The file.
    pub path: PathBuf,
}

impl Link {
    /// Whether packets are stamped when they were handed over to the interface. Those that leave
    /// are stamped as they leave.
    fn stamps_arrival(&self) -> bool {
        self.hook == Hook::Ingress && !matches!(self.forward, Forward::To(_))
    }
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

/// A tap could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The ring would be empty or too large.
    #[error("{records} records are not possible: give --records a number from 1 to {MAX_RECORDS}")]
    Records {
        /// The number asked for.
        records: u64,
    },
    /// The snap length is out of range.
    #[error("a snap length of {snap} B is not possible: give --snap-length 1 B to {MAX_SNAP} B")]
    Snap {
        /// The length asked for.
        snap: u32,
    },
    /// A key, and packets as a whole.
    #[error(
        "--key is for stamp files: a pcap has the packets themselves, so give the key to `tailtap \
         evaluate`"
    )]
    KeyOfPackets,
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The privilege is missing.
    #[error(
        "the kernel does not permit loading eBPF programs: run as root (or with CAP_BPF and \
         CAP_NET_ADMIN); if this is root, the limit of locked memory (`ulimit -l`) or a sandbox \
         is in the way"
    )]
    NotPermitted,
    /// No memory for the ring.
    #[error(
        "no memory for {records} records of {size} B in the kernel: give a lower number to \
         --records{}", if *size > 16 { " or --snap-length" } else { "" }
    )]
    Memory {
        /// The number asked for.
        records: u64,
        /// Bytes of each.
        size: usize,
    },
    /// The program was refused.
    #[error("the kernel refused the tap's eBPF program (it needs Linux 5.12 or later): {reason}")]
    Refused {
        /// What the kernel said.
        reason: String,
    },
    /// There is a tap already.
    #[error(
        "interface {name} has a tap already: stop it (only before Linux 6.6 a tap that was killed \
         stays: `tc filter del dev {name} ingress pref 1` removes it)"
    )]
    Busy {
        /// The interface.
        name: String,
    },
    /// The program could not be attached.
    #[error("cannot attach the tap to interface {name}: {reason}")]
    Attach {
        /// The interface.
        name: String,
        /// What the kernel said.
        reason: String,
    },
    /// A file could not be created.
    #[error("{0} (choose another place with --write)")]
    Create(WriteError),
    /// A file could not be written to its end.
    #[error("{error}: {stored} of {seen} packets are stored (choose another place with --write)")]
    Write {
        /// Where and why.
        error: WriteError,
        /// Packets in all files of the link.
        stored: u64,
        /// Packets that the tap saw.
        seen: u64,
    },
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's function failed.
    #[error("{0}")]
    Ready(Box<dyn Error + Send + Sync>),
}

/// Called once all taps are attached.
pub type OnReady<'a> = dyn FnOnce() -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// Taps the links until SIGINT, SIGTERM, the duration or the count, and reports link by link, in
/// the order given. Pins the calling thread if asked to.
pub fn tap(options: &Options, on_ready: Box<OnReady<'_>>) -> Result<Vec<Report>, TapError> {
    let keep = keep(options)?;
    let size = keep.slot_words() * size_of::<u64>();
    let records = options.records.unwrap_or(DEFAULT_ROOM / size as u64);
    if !(1..=MAX_RECORDS).contains(&records) {
        return Err(TapError::Records { records });
    }
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

    let stamps = options.links.iter().any(Link::stamps_arrival).then(ask_for_stamps).transpose();
    let _stamps = stamps.map_err(system("ask for the kernel's stamps"))?;
    let slots = records.next_power_of_two();
    let prepared: Vec<Prepared> = options
        .links
        .iter()
        .map(|link| Prepared::new(link, keep, slots as u32))
        .collect::<Result<_, _>>()?;
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

    let begin = now_ns();
    let end = options.duration_ns.map_or(u64::MAX, |ns| begin.saturating_add(ns));
    let mut flush = Deadline::new(options.flush_ns, begin);
    let period = poll_period(slots);
    while !signals.requested() {
        let now = now_ns();
        let enough = |count| taps.iter().all(|tap| tap.seen() >= count);
        if now >= end || options.count.is_some_and(enough) {
            break;
        }
        let left = Duration::from_nanos(end.min(flush.due).saturating_sub(now));
        signals.wait(None, period.min(left));
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

/// Something that is due again and again.
struct Deadline {
    period: Option<u64>,
    due: u64,
}

impl Deadline {
    fn new(period: Option<u64>, now: u64) -> Self {
        Self { period, due: period.map_or(u64::MAX, |period| now.saturating_add(period)) }
    }

    /// Whether it is due; then it is due again a period from now.
    fn is_due(&mut self) -> bool {
        let now = now_ns();
        let due = now >= self.due;
        if due {
            *self = Self::new(self.period, now);
        }
        due
    }
}

/// How often to look whether a ring of `slots` must be drained: often enough that the three
/// quarters which are then still free cannot fill up in between, and not more often.
fn poll_period(slots: u64) -> Duration {
    let safe = Duration::from_nanos(slots * 1_000_000_000 / 2 / FASTEST);
    safe.clamp(Duration::from_micros(500), Duration::from_millis(100))
}

/// A link whose interfaces were found, with its program loaded.
struct Prepared<'a> {
    link: &'a Link,
    interface: Interface,
    forward: Option<Interface>,
    program: Program,
}

impl<'a> Prepared<'a> {
    fn new(link: &'a Link, keep: Keep, slots: u32) -> Result<Self, TapError> {
        let interface = Interface::find_up(&link.interface)?;
        let forward = match &link.forward {
            Forward::To(name) => Some(Interface::find_up(name)?),
            Forward::Pass | Forward::Drop => None,
        };
        let verdict = match (&link.forward, &forward) {
            (_, Some(interface)) => Verdict::Redirect(interface.index),
            (Forward::Drop, _) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        let moment = if link.stamps_arrival() { Moment::Arrival(&interface) } else { Moment::Now };
        let program =
            Program::load(verdict, keep, slots, moment).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => TapError::NotPermitted,
                ErrorKind::OutOfMemory => TapError::Memory {
                    records: slots.into(),
                    size: keep.slot_words() * size_of::<u64>(),
                },
                _ => TapError::Refused { reason: error.to_string() },
            })?;
        Ok(Self { link, interface, forward, program })
    }

    fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        std::iter::once(&self.interface).chain(&self.forward)
    }
}

/// A tap that is attached, with its file.
struct LiveTap<'a> {
    prepared: &'a Prepared<'a>,
    attachment: Option<Attachment>,
    ring: Ring<'a>,
    /// Records moved at once.
    chunk: u64,
    writer: Writer,
    /// What the interface had dropped at the start, and until the tap was taken away.
    dropped: (Option<u64>, Option<u64>),
    failed: Option<WriteError>,
    warnings: Vec<String>,
}

impl<'a> LiveTap<'a> {
    fn start(
        prepared: &'a Prepared<'a>,
        target: &Target,
        chunk: u64,
        ahead: u64,
    ) -> Result<Self, TapError> {
        let Prepared { link, interface, program, .. } = prepared;
        let ring = program.ring();
        ring.set_ahead(ahead);
        let (path, name) = (link.path.clone(), link.name.clone());
        let writer = Writer::create(Target { path, link: name, ..target.clone() });
        let writer = writer.map_err(TapError::Create)?;
        let attachment =
            program.attach(interface, link.hook).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => TapError::NotPermitted,
                ErrorKind::AlreadyExists => TapError::Busy { name: interface.name.clone() },
                _ => TapError::Attach { name: interface.name.clone(), reason: error.to_string() },
            })?;
        Ok(Self {
            prepared,
            dropped: (interface.dropped(), None),
            attachment: Some(attachment),
            ring,
            chunk,
            writer,
            failed: None,
            warnings: Vec::new(),
        })
    }

    /// The kernel's stamps are of CLOCK_REALTIME, which somebody has put on by the difference.
    fn clock_was_set(&mut self, before: u64, now: u64) {
        self.ring.set_ahead(now);
        if self.prepared.link.stamps_arrival() {
            let by = Duration::from_nanos(now.abs_diff(before));
            let message =
                format!("{CLOCK_SET} by {by:?}: stamps of the moment before may be wrong");
            self.warnings.push(message);
        }
    }

    fn seen(&self) -> u64 {
        let counters = self.ring.counters();
        counters.head + counters.lost
    }

    /// Moves what waits in the ring now to the file; not what comes meanwhile, so that other links
    /// get their turn and signals are heard however fast packets come.
    fn drain(&mut self) {
        if self.failed.is_none() {
            self.failed = self.move_records().err();
        }
    }

    fn move_records(&mut self) -> Result<(), WriteError> {
        let now = now_ns();
        let mut left = self.ring.waiting();
        loop {
            let writer = &mut self.writer;
            let limit = left.min(self.chunk);
            let moved = self.ring.drain(limit, |record, rest| writer.push(record, rest));
            left -= moved;
            let is_last = left == 0 || moved < limit;
            self.writer.flush(now, is_last, self.ring.counters())?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn detach(&mut self) {
        let gone = self.prepared.interfaces().filter(|i| !i.exists());
        self.warnings.extend(gone.map(|interface| format!("{VANISHED}: {}", interface.name)));
        self.dropped.1 = self.prepared.interface.dropped();
        self.attachment = None;
    }

    /// Empties the ring and completes the file. No program may run any more.
    fn finish(mut self, (floor_ns, clock_ns): (f64, f64)) -> Result<Report, TapError> {
        self.drain();
        let counters = self.ring.counters();
        let finished = match self.failed {
            None => self.writer.finish(counters),
            Some(error) => Err((error, self.writer)),
        };
        let (counts, files) = match finished {
            Ok(finished) => finished,
            Err((error, writer)) => {
                // The file that could not take everything still says exactly what it lacks.
                let stored = writer.stored();
                let seen = counters.head + counters.lost;
                writer.abandon(counters);
                return Err(TapError::Write { error, stored, seen });
            }
        };
        let mut warnings = self.warnings;
        if counters.taken < counters.handed {
            warnings.push(format!(
                "{} of {} XDP frames vanished between being handed over and being received: frames \
                 behind them have the stamps of earlier ones",
                counters.handed - counters.taken,
                counters.handed
            ));
        }
        let (time, runs) = self.prepared.program.run_time().unwrap_or((0, 0));
        let tap_ns = time as f64 / runs.max(1) as f64;
        let cost = Cost { tap_ns, floor_ns, clock_ns };
        Ok(Report {
            link: self.prepared.link.clone(),
            files,
            counts,
            late: counters.late,
            dropped: match self.dropped {
                (Some(before), Some(after)) => after.saturating_sub(before),
                _ => 0,
            },
            warnings,
            cost: (runs > 0).then_some(cost),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rings_are_looked_at_often_and_large_ones_rarely() {
        assert_eq!(poll_period(1), Duration::from_micros(500));
        assert_eq!(poll_period(1 << 16), Duration::from_micros(8192));
        assert_eq!(poll_period(1 << 26), Duration::from_millis(100));
    }

    #[test]
    fn rings_without_or_with_too_many_records_are_refused() {
        for records in [0, MAX_RECORDS + 1] {
            let error = refused(Options { records: Some(records), ..options() });
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
