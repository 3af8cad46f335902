//! The traffic generator: open loop, one thread, paced by the clock.
//!
//! Each packet is due when its [`Pattern`] says and leaves then, whatever became of those before
//! it. How late it was handed to the kernel, its slip, is recorded exactly. Packets that are due
//! together, or overdue together when the generator is behind, may be handed over in one call: then
//! the slip of each counts until that call is over, so that none looks better than it was.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{now_ns, wait_until};
use crate::cpu::{CpuError, hurry, pin};
use crate::device::{self, BackEnd, Device, DeviceError, Mode};
use crate::interface::{Interface, InterfaceError};
use crate::packet::{ETHERNET_LEN, FCS_LEN, Kind, VLAN_LEN};
use crate::replay::{Replay, ReplayError};
use crate::schedule::{Length, MAX_NS, Pattern, PatternError, Schedule, Times};
use crate::signals::StopSignals;
use crate::slip::{Counter, Slip};
use crate::template::{Layout, LayoutError, Template};

/// From the end of the preparations to the first packet.
const LEAD_NS: u64 = 1_000_000;

/// Ids are 32 bits wide.
const MAX_PACKETS: u64 = 1 << 32;

/// What packets look like.
#[derive(Clone, Debug)]
pub enum Content {
    /// Made by us.
    Made(Layout),
    /// Those of a capture file.
    Replay {
        /// The file.
        path: PathBuf,
        /// Whether to write ids into them.
        stamp_ids: bool,
    },
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface to send through.
    pub interface: String,
    /// How packets follow each other, and how many each second; `None` for the pace of a
    /// recording.
    pub pace: Option<(Pattern, u64)>,
    /// What they look like.
    pub content: Content,
    /// The measurement's length; `None` for a recording once.
    pub length: Option<Length>,
    /// Packets before it that are not measured.
    pub warm_up: Length,
    /// Silence between these and the measurement.
    pub pause_ns: u64,
    /// Where the sending thread runs.
    pub cpu: Option<usize>,
    /// How to hand packets over.
    pub back_end: BackEnd,
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Warm-up packets handed to the device.
    pub warm_up_sent: u64,
    /// When the warm-up began.
    pub warm_up_ns: u64,
    /// Measured packets handed to the device.
    pub sent: u64,
    /// Packets, of both kinds, that the device did not take.
    pub failed: u64,
    /// Measured packets, of those sent and of those not taken, that carry an id.
    pub with_id: u64,
    /// When the first measured packet was due; 0 if it never came to that.
    pub first_ns: u64,
    /// Measured packets for each second from first to last, as they were due.
    pub scheduled_rate: f64,
    /// When the last measured packet left.
    pub last_ns: u64,
    /// Measured packets for each second from first to last.
    pub achieved_rate: f64,
    /// How late measured packets left.
    pub slip: Option<Slip>,
    /// Measured packets that left together with one that was due before them, because the
    /// generator was behind.
    pub bunched: u64,
    /// How the device takes frames, where there are several ways.
    pub mode: Option<Mode>,
    /// Whether a signal ended it early.
    pub interrupted: bool,
}

/// The traffic could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The packets cannot follow each other so.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The packets cannot look so.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The capture cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// There is no pace.
    #[error("give --rate: only packets of a capture have a pace of their own")]
    NoPace,
    /// The size is too large.
    #[error(
        "packets of {size} B do not fit interface {name}: its MTU of {mtu} B allows --size up to \
         {largest} B (or raise it with `ip link set {name} mtu`)"
    )]
    Size {
        /// The size asked for.
        size: usize,
        /// The interface.
        name: String,
        /// The largest size, FCS included.
        largest: usize,
        /// The interface's MTU.
        mtu: usize,
    },
    /// There would be nothing to send.
    #[error("that is not a single packet: give a longer --duration or a --count of at least 1")]
    Nothing,
    /// Ids would repeat.
    #[error("more than 2^32 packets would repeat ids: give a shorter --duration or --count")]
    TooMany,
    /// The interface cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The interface was deleted.
    #[error("interface {name} vanished after {sent} packets: whoever deleted it ended the traffic")]
    Vanished {
        /// The interface.
        name: String,
        /// Packets sent before.
        sent: u64,
    },
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Options {
    /// Checks everything that can be known in advance; reads the capture, if any.
    fn prepare(&self) -> Result<Prepared, GenerateError> {
        let source = match &self.content {
            Content::Made(layout) => {
                layout.check()?;
                Source::Made(Template::new(layout))
            }
            Content::Replay { path, stamp_ids } => Source::Replay(Replay::read(path, *stamp_ids)?),
        };
        let (schedule, once) = match (&source, self.pace) {
            (Source::Made(_), None) => return Err(GenerateError::NoPace),
            (Source::Made(_), Some((pattern, rate))) => (Schedule::Pattern(pattern, rate), 0),
            (Source::Replay(replay), pace) => {
                let recorded = replay.recorded();
                let own = || Schedule::Recorded(recorded.clone());
                let given = pace.map(|(pattern, rate)| Schedule::Pattern(pattern, rate));
                (given.unwrap_or_else(own), recorded.packets())
            }
        };
        schedule.check()?;
        let length = self.length.unwrap_or(Length::Count(once));
        for ns in [length, self.warm_up].into_iter().filter_map(duration) {
            if ns > MAX_NS {
                return Err(PatternError::Long { ns }.into());
            }
        }
        if self.pause_ns > MAX_NS {
            return Err(PatternError::Long { ns: self.pause_ns }.into());
        }
        let (packets, before) =
            (schedule.most_packets(length), schedule.before().most_packets(self.warm_up));
        // A duration of zero asks for the warm-up alone: a probe of the path.
        let probe = length == Length::Duration(0) && before > 0;
        if packets == 0 && !probe {
            return Err(GenerateError::Nothing);
        }
        if packets > MAX_PACKETS {
            return Err(GenerateError::TooMany);
        }
        if let (Source::Replay(replay), Content::Replay { path, .. }) = (&source, &self.content)
            && !replay.stamps_ids()
        {
            let ids = |what| ReplayError::Ids { path: path.clone(), packets: once, what };
            if packets > once {
                return Err(ids("sending more than that").into());
            }
            if before > 0 {
                return Err(ids("a warm-up").into());
            }
        }
        let interface = Interface::find_up(&self.interface)?;
        let size = source.largest_size();
        // The MTU does not count a tag; a recording may have some.
        let tag = match &self.content {
            Content::Made(layout) if layout.vlan.is_none() => 0,
            _ => VLAN_LEN,
        };
        let largest = interface.mtu.min(usize::from(u16::MAX)) + ETHERNET_LEN + tag + FCS_LEN;
        if size > largest {
            let (name, mtu) = (interface.name, interface.mtu);
            return Err(GenerateError::Size { size, name, largest, mtu });
        }
        Ok(Prepared { interface, source, schedule, length })
    }
}

/// Options that were found possible.
struct Prepared {
    interface: Interface,
    source: Source,
    schedule: Schedule,
    length: Length,
}

/// Where packets come from.
enum Source {
    Made(Template),
    Replay(Replay),
}

impl Source {
    fn packet(&mut self, id: u32, kind: Kind) -> &[u8] {
        match self {
            Self::Made(template) => template.packet(id, kind),
            Self::Replay(replay) => replay.packet(id, kind),
        }
    }

    fn has_id(&self, id: u32) -> bool {
        match self {
            Self::Made(_) => true,
            Self::Replay(replay) => replay.has_id(id),
        }
    }

    fn largest_size(&self) -> usize {
        match self {
            Self::Made(template) => template.largest_size(),
            Self::Replay(replay) => replay.largest_size(),
        }
    }
}

/// The time that a length is, if it is one.
fn duration(length: Length) -> Option<u64> {
    match length {
        Length::Duration(ns) => Some(ns),
        Length::Count(_) => None,
    }
}

/// Sends the traffic and reports how that went. Ends early on SIGINT and SIGTERM. Pins the calling
/// thread if asked to and raises its priority: call it from a thread of its own.
pub fn generate(options: &Options) -> Result<Report, GenerateError> {
    let Prepared { interface, source, schedule, length } = options.prepare()?;
    let system = |what| move |source| GenerateError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let device = device::open(options.back_end, &interface, source.largest_size() - FCS_LEN)?;
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    hurry();
    let warm_up = schedule.before();
    // A warm-up of n packets ends when the next one would be due.
    let warm_up_takes = match options.warm_up {
        Length::Duration(ns) => ns,
        Length::Count(count) => warm_up.times().nth(count as usize).unwrap_or(0),
    };
    let mut sender = Sender {
        device,
        interface,
        signals,
        source,
        with_id: 0,
        bunched: 0,
        failed: 0,
        slip: Counter::new(),
        first_due: None,
        last_due: 0,
        last_ns: 0,
    };
    let warm_up_ns = now_ns() + LEAD_NS;
    let times = warm_up.times_of(options.warm_up);
    let warm_up_sent = sender.send(warm_up_ns, times, Kind::WarmUp)?;
    let start = warm_up_ns + warm_up_takes + options.pause_ns;
    let times = schedule.times_of(length);
    let sent = sender.send(start, times, Kind::Measured)?;
    let report = sender.report(sent, start, schedule.times_of(length));
    Ok(Report { warm_up_sent, warm_up_ns, ..report })
}

/// The sending thread's state.
struct Sender {
    device: Box<dyn Device>,
    interface: Interface,
    signals: StopSignals,
    source: Source,
    with_id: u64,
    failed: u64,
    bunched: u64,
    slip: Counter,
    /// When the first and the last measured packet were due.
    first_due: Option<u64>,
    last_due: u64,
    last_ns: u64,
}

impl Sender {
    /// Sends a packet at each of the times after `start`; returns how many the device took.
    fn send(&mut self, start: u64, times: Times, kind: Kind) -> Result<u64, GenerateError> {
        let mut sent = 0;
        // The id wraps only in a warm-up, where nobody reads it.
        let ids = (0..=u32::MAX).cycle();
        let mut packets = ids.zip(times.map(|time| start + time)).peekable();
        let mut batch = Vec::with_capacity(self.device.room());
        while let Some((id, due)) = packets.next() {
            self.device.push(self.source.packet(id, kind));
            batch.push(due);
            let first = id;
            let now = wait_until(due, || !self.signals.requested());
            if self.signals.requested() {
                break;
            }
            while batch.len() < self.device.room()
                && let Some((id, due)) = packets.next_if(|&(_, due)| due <= now)
            {
                self.device.push(self.source.packet(id, kind));
                batch.push(due);
            }
            let failed = self.device.flush();
            if kind == Kind::Measured {
                self.record(first, &batch, now);
                let ids = (0..batch.len()).map(|number| first.wrapping_add(number as u32));
                self.with_id += ids.filter(|&id| self.source.has_id(id)).count() as u64;
            }
            sent += (batch.len() - failed.min(batch.len())) as u64;
            self.failed += failed as u64;
            // A full or a sleeping device may recover; one that is gone does not.
            if failed > 0 && !self.interface.exists() {
                let name = self.interface.name.clone();
                return Err(GenerateError::Vanished { name, sent });
            }
            batch.clear();
        }
        Ok(sent)
    }

    /// Records that packets from `number` on, due at these times, were handed over from `now` on.
    fn record(&mut self, number: u32, batch: &[u64], now: u64) {
        let (first, last) = (batch[0], batch[batch.len() - 1]);
        let left = if batch.len() == 1 { now } else { now_ns() };
        self.slip.add(number, batch, left);
        self.bunched += batch.iter().filter(|&&due| due > first).count() as u64;
        self.first_due.get_or_insert(first);
        (self.last_due, self.last_ns) = (last, left);
    }

    /// What was sent, where packets were due at `times` after `start`.
    fn report(self, sent: u64, start: u64, times: Times) -> Report {
        let count = self.slip.packets();
        let first_ns = self.first_due.unwrap_or(0);
        Report {
            warm_up_sent: 0,
            warm_up_ns: 0,
            sent,
            failed: self.failed,
            with_id: self.with_id,
            first_ns,
            last_ns: self.last_ns,
            scheduled_rate: rate(count, self.last_due.saturating_sub(first_ns)),
            achieved_rate: rate(sent, self.last_ns.saturating_sub(first_ns)),
            slip: self.slip.finish(start, times),
            bunched: self.bunched,
            mode: self.device.mode(),
            interrupted: self.signals.requested(),
        }
    }
}

/// Packets a second from the first to the last of `packets`: n have n - 1 intervals between them.
fn rate(packets: u64, elapsed_ns: u64) -> f64 {
    if packets < 2 || elapsed_ns == 0 {
        return 0.0;
    }
    (packets - 1) as f64 / Duration::from_nanos(elapsed_ns).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{DESTINATION_MAC, Flows, SOURCE_MAC};

    fn made(change: fn(&mut Layout)) -> Content {
        let mut layout = Layout {
            sizes: vec![64],
            flows: Flows::default(),
            vlan: None,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        };
        change(&mut layout);
        Content::Made(layout)
    }

    fn options() -> Options {
        Options {
            interface: "tt-no-such".into(),
            pace: Some((Pattern::Constant, 1000)),
            content: made(|_| {}),
            length: Some(Length::Count(1)),
            warm_up: Length::Duration(0),
            pause_ns: 0,
            cpu: None,
            back_end: BackEnd::AfPacket { bypass: true },
        }
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        type Change = fn(&mut Options);
        let cases: [(Change, &str); 15] = [
            (|o| o.length = Some(Length::Duration(0)), "--duration"),
            (
                |o| {
                    (o.length, o.warm_up) =
                        (Some(Length::Duration(1)), Length::Duration(1_000_000_000));
                },
                "--duration",
            ),
            (|o| o.pace = Some((Pattern::Constant, 0)), "--rate"),
            (|o| o.pace = None, "--rate"),
            (
                |o| o.content = Content::Replay { path: "tt-none".into(), stamp_ids: false },
                "tt-none",
            ),
            (|o| o.pace = Some((Pattern::Constant, 1_000_000_001)), "--rate"),
            (|o| o.pace = Some((Pattern::Burst { packets: 0 }, 1)), "pattern"),
            (|o| o.content = made(|l| l.flows.source.count = 0), "--src"),
            (|o| o.content = made(|l| l.sizes = vec![63]), "--size"),
            (|o| o.length = Some(Length::Count(0)), "--count"),
            (|o| o.length = Some(Length::Duration(999_999)), "--duration"),
            (|o| o.length = Some(Length::Count(1 << 33)), "2^32"),
            (|o| o.length = Some(Length::Duration(u64::MAX)), "a year"),
            (|o| o.pause_ns = u64::MAX, "a year"),
            (|_| {}, "tt-no-such"),
        ];
        for (change, expected) in cases {
            let mut options = options();
            change(&mut options);
            let message = generate(&options).expect_err("refused").to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn rates_count_intervals() {
        assert_eq!(rate(3, 1_000_000_000), 2.0);
        assert_eq!(rate(1, 1_000_000_000), 0.0);
        assert_eq!(rate(2, 0), 0.0);
    }
}
