//! The traffic generator: constant bit rate, open loop, one thread, paced by the clock.
//!
//! Packet k is due at start + k / rate and leaves then, whatever became of those before it. How
//! late it was handed to the kernel, its slip, is recorded exactly. Each packet is a system call
//! of its own, also when the generator is behind: through veth sendmmsg was no quicker and a
//! packet ring was slower (the time goes into the path behind the call), and a batch would hide
//! how late its later packets were.

use std::io;
use std::time::Duration;

use tailtap_analysis::distribution::Distribution;

use crate::clock::{now_ns, wait_until};
use crate::cpu::{CpuError, hurry, pin};
use crate::interface::{Interface, InterfaceError};
use crate::packet::{ETHERNET_LEN, FCS_LEN, Kind, MAX_FLOWS, MIN_SIZE, Mac, Template};
use crate::schedule::{Schedule, packets_in};
use crate::signals::StopSignals;
use crate::socket::PacketSocket;

/// From the end of the preparations to the first packet.
const LEAD_NS: u64 = 1_000_000;
/// The percentiles of the slip that are reported, in parts of [`WHOLE`].
const PERCENTILES: [u64; 6] = [50_000, 90_000, 99_000, 99_900, 99_990, 99_999];
const WHOLE: u64 = 100_000;

/// How long to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// For so many nanoseconds.
    Duration(u64),
    /// So many packets.
    Count(u64),
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface to send through.
    pub interface: String,
    /// Packets for each second, at least 1.
    pub rate: u64,
    /// Bytes of a frame, FCS included.
    pub size: usize,
    /// The measurement's length.
    pub length: Length,
    /// Time before it with packets that are not measured.
    pub warm_up_ns: u64,
    /// Number of source addresses.
    pub flows: u32,
    /// Where the sending thread runs.
    pub cpu: Option<usize>,
    /// Whether to send past the queueing discipline of the interface and the hook before it.
    pub bypass: bool,
    /// Source hardware address.
    pub source: Mac,
    /// Destination hardware address.
    pub destination: Mac,
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Warm-up packets handed to the device.
    pub warm_up_sent: u64,
    /// Measured packets handed to the device.
    pub sent: u64,
    /// Packets, of both kinds, that the device did not take.
    pub failed: u64,
    /// When the first measured packet was due; 0 if it never came to that.
    pub first_ns: u64,
    /// When the last measured packet left.
    pub last_ns: u64,
    /// Measured packets for each second from first to last.
    pub achieved_rate: f64,
    /// How late measured packets left.
    pub slip: Option<Slip>,
    /// Whether a signal ended it early.
    pub interrupted: bool,
}

/// How late packets left against their schedule, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Slip {
    /// The least.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The most.
    pub max: u64,
    /// Exact nearest-rank percentiles: (p, nanoseconds).
    pub percentiles: Vec<(f64, u64)>,
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
    /// The rate is zero or cannot be scheduled in nanoseconds.
    #[error("{rate} pkt/s cannot be scheduled: give --rate a value from 1 pkt/s to 1000 Mpkt/s")]
    Rate {
        /// The rate asked for.
        rate: u64,
    },
    /// The size is too small or too large.
    #[error(
        "packets of {size} B do not fit interface {name}: give --size a value from {MIN_SIZE} B \
         to {largest} B (its MTU is {mtu} B)"
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
    /// Too few or too many flows.
    #[error("{flows} flows are not possible: give --flows a value from 1 to {MAX_FLOWS}")]
    Flows {
        /// The number asked for.
        flows: u32,
    },
    /// The privilege is missing.
    #[error(
        "the kernel does not permit sending raw frames: run as root (or with CAP_NET_RAW \
         and CAP_NET_ADMIN)"
    )]
    NotPermitted,
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
    /// Checks everything that can be known in advance; returns the interface and the number of
    /// measured packets.
    fn check(&self) -> Result<(Interface, u64), GenerateError> {
        if !(1..=1_000_000_000).contains(&self.rate) {
            return Err(GenerateError::Rate { rate: self.rate });
        }
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(GenerateError::Flows { flows: self.flows });
        }
        let packets = match self.length {
            Length::Count(count) => count,
            Length::Duration(ns) => packets_in(ns, self.rate).unwrap_or(u64::MAX),
        };
        // A duration of zero asks for the warm-up alone: a probe of the path.
        let probe = matches!(self.length, Length::Duration(0))
            && packets_in(self.warm_up_ns, self.rate) != Some(0);
        match packets {
            0 if !probe => return Err(GenerateError::Nothing),
            0..=0x1_0000_0000 => {}
            _ => return Err(GenerateError::TooMany),
        }
        let interface = Interface::find_up(&self.interface)?;
        let largest = interface.mtu.min(usize::from(u16::MAX)) + ETHERNET_LEN + FCS_LEN;
        if !(MIN_SIZE..=largest).contains(&self.size) {
            return Err(GenerateError::Size {
                size: self.size,
                name: interface.name,
                largest,
                mtu: interface.mtu,
            });
        }
        Ok((interface, packets))
    }
}

/// Sends the traffic and reports how that went. Ends early on SIGINT and SIGTERM. Pins the calling
/// thread if asked to and raises its priority: call it from a thread of its own.
pub fn generate(options: &Options) -> Result<Report, GenerateError> {
    let (interface, packets) = options.check()?;
    let system = |what| move |source| GenerateError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let socket = PacketSocket::sender(&interface, options.bypass).map_err(|source| {
        if source.kind() == io::ErrorKind::PermissionDenied {
            GenerateError::NotPermitted
        } else {
            system("open a packet socket")(source)
        }
    })?;
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    hurry();
    let template = Template::new(options.size, options.flows, options.source, options.destination);
    let mut sender = Sender {
        socket,
        interface,
        signals,
        template,
        schedule: Schedule::new(now_ns() + LEAD_NS, options.rate),
        failed: 0,
        slip: Distribution::new(),
        last_ns: 0,
    };

    let warm_up = packets_in(options.warm_up_ns, options.rate).unwrap_or(u64::MAX);
    let warm_up_sent = sender.send(warm_up, Kind::WarmUp)?;
    let first_ns = sender.schedule.due();
    let sent = sender.send(packets, Kind::Measured)?;
    Ok(sender.report(warm_up_sent, sent, first_ns))
}

/// The sending thread's state.
struct Sender {
    socket: PacketSocket,
    interface: Interface,
    signals: StopSignals,
    template: Template,
    schedule: Schedule,
    failed: u64,
    slip: Distribution,
    last_ns: u64,
}

impl Sender {
    /// Sends `count` packets, each when it is due, and returns how many the device took.
    fn send(&mut self, count: u64, kind: Kind) -> Result<u64, GenerateError> {
        let mut sent = 0;
        for number in 0..count {
            // The id wraps only in a warm-up, where nobody reads it.
            let frame = self.template.packet(number as u32, kind);
            let due = self.schedule.due();
            let now = wait_until(due, || !self.signals.requested());
            if self.signals.requested() {
                break;
            }
            if kind == Kind::Measured {
                self.slip.record(now - due);
                self.last_ns = now;
            }
            match self.socket.send(frame) {
                Ok(()) => sent += 1,
                // A full or a sleeping device may recover; one that is gone does not.
                Err(_) => {
                    self.failed += 1;
                    if !self.interface.exists() {
                        return Err(GenerateError::Vanished {
                            name: self.interface.name.clone(),
                            sent,
                        });
                    }
                }
            }
            self.schedule.advance();
        }
        Ok(sent)
    }

    fn report(mut self, warm_up_sent: u64, sent: u64, first_ns: u64) -> Report {
        let slip = summarise(&mut self.slip);
        let elapsed = Duration::from_nanos(self.last_ns.saturating_sub(first_ns)).as_secs_f64();
        Report {
            warm_up_sent,
            sent,
            failed: self.failed,
            first_ns: slip.as_ref().map_or(0, |_| first_ns),
            last_ns: self.last_ns,
            // n packets have n - 1 intervals between them.
            achieved_rate: if sent > 1 && elapsed > 0.0 {
                (sent - 1) as f64 / elapsed
            } else {
                0.0
            },
            slip,
            interrupted: self.signals.requested(),
        }
    }
}

/// The summary of a distribution of slips; `None` when it is empty.
fn summarise(slip: &mut Distribution) -> Option<Slip> {
    let count = slip.count();
    let mean = slip.mean()?;
    let rank = |part: u64| {
        let rank = (u128::from(count) * u128::from(part)).div_ceil(u128::from(WHOLE));
        rank.max(1) as u64
    };
    let ranks: Vec<u64> = [1].into_iter().chain(PERCENTILES.map(rank)).chain([count]).collect();
    let values = slip.at_ranks(&ranks);
    let percentiles = PERCENTILES.iter().zip(&values[1..]);
    Some(Slip {
        min: values[0],
        mean,
        max: values[values.len() - 1],
        percentiles: percentiles
            .map(|(&part, &value)| (part as f64 / WHOLE as f64, value))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{DESTINATION_MAC, SOURCE_MAC};

    fn options() -> Options {
        Options {
            interface: "tt-no-such".into(),
            rate: 1000,
            size: 64,
            length: Length::Count(1),
            warm_up_ns: 0,
            flows: 1,
            cpu: None,
            bypass: true,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        }
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        type Change = fn(&mut Options);
        let cases: [(Change, &str); 10] = [
            (|o| o.length = Length::Duration(0), "--duration"),
            (|o| (o.length, o.warm_up_ns) = (Length::Duration(1), 1_000_000_000), "--duration"),
            (|o| o.rate = 0, "--rate"),
            (|o| o.rate = 1_000_000_001, "--rate"),
            (|o| o.flows = 0, "--flows"),
            (|o| o.flows = 65_535, "--flows"),
            (|o| o.length = Length::Count(0), "--count"),
            (|o| o.length = Length::Duration(999_999), "--duration"),
            (|o| o.length = Length::Count(1 << 33), "2^32"),
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
    fn slip_percentiles_are_nearest_ranks() {
        let mut distribution = Distribution::new();
        assert_eq!(summarise(&mut distribution), None);
        (1..=1000).for_each(|value| distribution.record(value));
        let slip = summarise(&mut distribution).expect("not empty");
        assert_eq!((slip.min, slip.max), (1, 1000));
        assert!((slip.mean - 500.5).abs() < 1e-9);
        let values: Vec<u64> = slip.percentiles.iter().map(|p| p.1).collect();
        assert_eq!(values, [500, 900, 990, 999, 1000, 1000]);
        assert_eq!(slip.percentiles[4].0, 0.9999);
    }
}
