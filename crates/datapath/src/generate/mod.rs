//! The traffic generator: open loop, one or more threads, paced by the clock, for any number of flows.
//!
//! [`template`] and [`replay`] make the packets, [`schedule`] says when they are due, [`merge`] which
//! flow's is next, [`sender`] sends them, [`flow`] keeps what became of them, and [`slip`] counts how
//! late they were.
//!
//! Each packet is due when its [`Pattern`] says and leaves then, whatever became of those before
//! it. How late it was handed to the kernel, its slip, is recorded exactly. Packets of a flow that
//! are due together, or overdue together when the generator is behind, may be handed over in one
//! call: then the slip of each counts until that call is over, so that none looks better than it was.
//!
//! Flows that begin together would have their first packets due in the same nanosecond, and all
//! later ones too where their rates are multiples of each other. So flow k of n begins k/n of the
//! shortest mean gap later, its phase.
//!
//! Thread t of n sends packets t, t + n, … of each flow, through a device of its own: a queue of the
//! interface. So schedule and ids are those of one thread, whatever the pattern, and each queue has its
//! packets in order; those of different queues may pass each other.

mod flow;
mod merge;
pub mod replay;
pub mod schedule;
mod sender;
pub mod slip;
pub mod template;

use std::io;
use std::iter::repeat_n;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

use serde::Serialize;
use tailtap_wire::ethernet::{self, FCS_LEN};
use tailtap_wire::vlan;

use crate::clock::{Clock, Monotonic};
use crate::cpu::{CpuError, hurry, pin};
use crate::device::Mode;
use crate::device::registry::{self, BackEnd, DeviceError};
use crate::interface::{Interface, InterfaceError, Queues};
use crate::privileges::{self, Work};
use crate::signals::StopSignals;

use flow::{Flow, Share, Source, Traffic};
use replay::{Replay, ReplayError, Unplayable};
use schedule::{Length, MAX_NS, Pattern, PatternError, Schedule};
use sender::{FlowGone, send};
use slip::Slip;
use template::{Layout, LayoutError, Template};

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

/// What to send as a flow.
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
    /// How to hand packets over.
    pub back_end: BackEnd,
}

/// What was sent of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// How much later than the first flow it began.
    pub phase_ns: u64,
    /// The packets before those that are measured.
    pub warm_up: WarmUp,
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
    #[serde(rename = "slip_ns")]
    pub slip: Option<Slip>,
    /// Measured packets that left together with one that was due before them, because the
    /// generator was behind.
    pub bunched: u64,
    /// How the device takes frames, where there are several ways.
    pub mode: Option<Mode>,
    /// Whether a signal ended it before all was sent.
    pub interrupted: bool,
}

/// What was sent before the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarmUp {
    /// Packets handed to the device.
    pub sent: u64,
    /// When the first of them was due.
    pub first_ns: u64,
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
    /// There are fewer queues than threads.
    #[error(
        "{threads} threads need a queue each, and interface {name} sends through {queues}: give --cpu fewer \
         CPUs{}",
        match *most < *threads {
            true => format!(" (it has no more than {most})"),
            false => {
                let kind = if *combined { "combined" } else { "tx" };
                format!(", or try `ethtool -L {name} {kind} {threads}`")
            }
        }
    )]
    Queues {
        /// The interface.
        name: String,
        /// Its queues.
        queues: usize,
        /// How many it may be given.
        most: usize,
        /// Whether these receive as well.
        combined: bool,
        /// The threads.
        threads: usize,
    },
    /// There is no flow.
    #[error("there is no flow to send")]
    NoFlow,
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
            let why = |what| Unplayable::Ids { packets: once, what };
            let ids = |what| ReplayError { path: path.clone(), why: why(what) };
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
            _ => vlan::LEN,
        };
        let largest = interface.mtu.min(usize::from(u16::MAX)) + ethernet::LEN + tag + FCS_LEN;
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

/// The time that a length is, if it is one.
fn duration(length: Length) -> Option<u64> {
    match length {
        Length::Duration(ns) => Some(ns),
        Length::Count(_) => None,
    }
}

/// Sends the traffic of all flows from a thread on each of `cpus`, or from one that is not pinned where
/// there are none, and reports how that went, in the order given. Ends early on SIGINT and SIGTERM. Pins
/// the calling thread if asked to, raises its priority and gives its privileges up: call it from a
/// thread of its own.
pub fn generate(flows: &[Options], cpus: &[usize]) -> Result<Vec<Report>, GenerateError> {
    let prepared: Vec<_> = flows.iter().map(Options::prepare).collect::<Result<_, _>>()?;
    let shortest = prepared.iter().map(|flow| flow.schedule.gap_ns()).min();
    let shortest = shortest.ok_or(GenerateError::NoFlow)?;
    let system = |what| move |source| GenerateError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let mut threads: Vec<Vec<Flow>> = (0..cpus.len().max(1)).map(|_| Vec::new()).collect();
    let of = threads.len();
    for (place, (prepared, options)) in prepared.into_iter().zip(flows).enumerate() {
        let Prepared { interface, source, schedule, length } = prepared;
        let largest = source.largest_size() - FCS_LEN;
        if options.back_end == BackEnd::AfXdp && of > 1 {
            require_queues(&interface, of)?;
        }
        let (count, phase_ns) = (flows.len() * of, phase_ns(shortest, place, flows.len()));
        let sources = repeat_n((source, schedule), of);
        for (queue, (thread, (source, schedule))) in threads.iter_mut().zip(sources).enumerate() {
            let queue = queue as u32;
            let device =
                registry::open(options.back_end, &interface, largest, count, queue, &signals)?;
            let (warm_up, pause_ns) = (options.warm_up, options.pause_ns);
            let share = Share { first: queue, of: of as u32 };
            let traffic = Traffic { schedule, length, warm_up, pause_ns, phase_ns, share };
            thread.push(Flow::new(device, source, traffic));
        }
    }
    // The first one last: this thread stays there.
    cpus.iter().rev().try_for_each(|&cpu| pin(cpu))?;
    hurry();
    privileges::keep(Work::Send).map_err(system("give up root's privileges"))?;
    let gone = send_together(&mut threads, cpus, &signals).map_err(system("start a thread"))?;
    if let Some(FlowGone(flow)) = gone {
        let sent = threads.iter().map(|flows| flows[flow].taken()).sum();
        return Err(GenerateError::Vanished { name: flows[flow].interface.clone(), sent });
    }
    let mut threads: Vec<_> = threads.into_iter().map(Vec::into_iter).collect();
    Ok(flows
        .iter()
        .map(|_| Flow::report(threads.iter_mut().flat_map(Iterator::next).collect()))
        .collect())
}

/// Refuses more threads than an interface has queues to send through.
fn require_queues(interface: &Interface, threads: usize) -> Result<(), GenerateError> {
    let Queues { queues, most, combined } = interface.queues()?;
    if queues < threads {
        let name = interface.name.clone();
        return Err(GenerateError::Queues { name, queues, most, combined, threads });
    }
    Ok(())
}

/// Sends the flows of each thread, of which the calling one is the first. All begin together. Returns the
/// first flow whose device is gone.
fn send_together(
    threads: &mut [Vec<Flow>],
    cpus: &[usize],
    signals: &StopSignals,
) -> io::Result<Option<FlowGone>> {
    let start = OnceLock::new();
    let lead_ns = LEAD_NS * threads.len() as u64;
    let work = |flows: &mut [Flow]| match *start.wait() {
        Some(start) => send(flows, start, &Monotonic, || signals.requested()),
        None => Ok(()),
    };
    let work = &work;
    thread::scope(|scope| {
        let (first, others) = threads.split_at_mut(1);
        let pinned = others.iter_mut().zip(cpus.iter().skip(1));
        let started = pinned.map(|(flows, &cpu)| {
            let run = move || {
                // The calling thread was there before, so that the CPU can be used.
                let _ = pin(cpu);
                work(flows)
            };
            thread::Builder::new().name("tt-generate".into()).spawn_scoped(scope, run)
        });
        let started: io::Result<Vec<_>> = started.collect();
        // Those that have started end when others have not.
        start.get_or_init(|| started.is_ok().then(|| Monotonic.now() + lead_ns));
        let own = work(&mut first[0]);
        let ended = started?.into_iter().map(|one| one.join().expect("sending does not panic"));
        Ok(ended.fold(own, Result::and).err())
    })
}

/// How much later the flow at a `place` of `count` begins, when `gap_ns` is the shortest mean gap.
fn phase_ns(gap_ns: u64, place: usize, count: usize) -> u64 {
    (u128::from(gap_ns) * place as u128 / count as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::template::{DESTINATION_MAC, Flows, SOURCE_MAC, TIME_TO_LIVE};

    fn made(change: fn(&mut Layout)) -> Content {
        let mut layout = Layout {
            sizes: vec![64],
            flows: Flows::default(),
            vlan: None,
            time_to_live: TIME_TO_LIVE,
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
            back_end: BackEnd::AfPacket { bypass: true },
        }
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        type Change = fn(&mut Options);
        let cases: [(Change, &str); 15] = [
            (|o| o.length = Some(Length::Duration(0)), "duration"),
            (
                |o| {
                    (o.length, o.warm_up) =
                        (Some(Length::Duration(1)), Length::Duration(1_000_000_000));
                },
                "duration",
            ),
            (|o| o.pace = Some((Pattern::Constant, 0)), "rate"),
            (|o| o.pace = None, "rate"),
            (
                |o| o.content = Content::Replay { path: "tt-none".into(), stamp_ids: false },
                "tt-none",
            ),
            (|o| o.pace = Some((Pattern::Constant, 1_000_000_001)), "rate"),
            (|o| o.pace = Some((Pattern::Burst { packets: 0 }, 1)), "pattern"),
            (|o| o.content = made(|l| l.flows.source.count = 0), "src"),
            (|o| o.content = made(|l| l.sizes = vec![63]), "size"),
            (|o| o.length = Some(Length::Count(0)), "count"),
            (|o| o.length = Some(Length::Duration(999_999)), "duration"),
            (|o| o.length = Some(Length::Count(1 << 33)), "2^32"),
            (|o| o.length = Some(Length::Duration(u64::MAX)), "a year"),
            (|o| o.pause_ns = u64::MAX, "a year"),
            (|_| {}, "tt-no-such"),
        ];
        for (change, expected) in cases {
            let mut options = options();
            change(&mut options);
            let message = generate(&[options], &[]).expect_err("refused").to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn nothing_to_send_is_refused() {
        assert!(matches!(generate(&[], &[]), Err(GenerateError::NoFlow)));
    }

    #[test]
    fn phases_are_spread_over_the_shortest_gap() {
        let phases: Vec<u64> = (0..4).map(|place| phase_ns(100_000, place, 4)).collect();
        assert_eq!(phases, [0, 25_000, 50_000, 75_000]);
        assert_eq!(phase_ns(u64::MAX, 0, 1), 0);
        assert_eq!(phase_ns(1, 37, 38), 0);
    }
}
