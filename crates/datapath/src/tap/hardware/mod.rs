//! Stamps by network cards, or for comparison by the kernel when it receives: for the host that
//! records both sides of a device under test, behind optical splitters.
//!
//! Where a driver gives its stamps to XDP programs they are taken there ([`metadata`]), elsewhere
//! from the control messages of a packet socket ([`messages`]). Both hand over the first bytes of
//! every packet with its stamp; the id is looked for here. Links are listened to and left alone:
//! nothing is forwarded.

mod filter;
mod messages;
mod metadata;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailtap_analysis::marks::Sample;
use tailtap_analysis::stamps::{Clock, TapCounts};
use tailtap_wire::moonsniff;

use crate::OnReady;
use crate::bpf::BpfError;
use crate::clock::now_ns;
use crate::cpu::{CpuError, pin};
use crate::interface::{Interface, InterfaceError};
use crate::privileges::{self, Work};
use crate::signals::StopSignals;
use crate::tap::file::Format;
use crate::tap::ring::Counters;
use crate::tap::writer::{Rotation, Target, WriteError, Writer};

use filter::EveryPacket;
pub use filter::FilterError;
use messages::Messages;
use metadata::Metadata;

/// How often the sources are looked at. Both hold far more than comes in this time.
const PERIOD: Duration = Duration::from_millis(1);
/// Records that are written at once.
const CHUNK: u64 = 1 << 16;

/// How stamps get from the card to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// An XDP program reads them from the driver's metadata.
    Metadata,
    /// A packet socket receives them in control messages.
    Messages,
}

/// Whose clock stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamper {
    /// The network card.
    Card,
    /// The kernel, when it receives a packet: CLOCK_MONOTONIC in an XDP program, CLOCK_REALTIME in
    /// control messages.
    Kernel,
}

/// An interface to listen to.
#[derive(Clone, Debug)]
pub struct Link {
    /// What to call it.
    pub name: String,
    /// The interface whose received packets are stamped.
    pub interface: String,
    /// How its stamps are taken.
    pub method: Method,
    /// Whether packets end here; they go on their way otherwise.
    pub absorb: bool,
    /// The stamp file.
    pub path: PathBuf,
}

/// What to stamp and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The links; at least one.
    pub links: Vec<Link>,
    /// Whose clock.
    pub stamper: Stamper,
    /// End after this long.
    pub duration_ns: Option<u64>,
    /// End when every link has seen this many packets with an id.
    pub count: Option<u64>,
    /// Where the thread that reads and writes runs.
    pub cpu: Option<usize>,
}

/// What was stamped on one link.
#[derive(Clone, Debug)]
pub struct Report {
    /// The link.
    pub link: Link,
    /// The clock of the stamps.
    pub clock: Clock,
    /// The counts, as in the file.
    pub counts: TapCounts,
    /// Of those lost, packets that came without a stamp.
    pub unstamped: u64,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Packets could not be stamped.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A card cannot stamp all packets.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The XDP program cannot be used.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The socket cannot be used.
    #[error("cannot listen to interface {name}: {source}")]
    Socket {
        /// The interface.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// A packet socket gets a copy.
    #[error(
        "the stamps of interface {name} come through a packet socket, which cannot absorb packets: \
         leave :drop out"
    )]
    Absorb {
        /// The interface.
        name: String,
    },
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
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
    Ready(Box<dyn std::error::Error + Send + Sync>),
}

/// A packet, as a source hands it over.
#[derive(Debug)]
struct Received<'a> {
    /// Its first bytes.
    bytes: &'a [u8],
    /// Its length without FCS.
    len: usize,
    /// When it was received; `None` for a packet without a stamp.
    time_ns: Option<u64>,
}

/// What receives the packets of a link.
trait Source {
    /// Hands over what waits; returns whether there may be more.
    fn take(&mut self, each: &mut dyn FnMut(Received<'_>)) -> io::Result<bool>;

    /// Packets that found no room since the beginning, with an id or without.
    fn dropped(&mut self) -> io::Result<u64>;

    /// Receives no more; what waits can still be taken.
    fn close(&mut self) -> io::Result<()>;

    /// The clock of the stamps.
    fn clock(&self, stamper: Stamper) -> Clock;
}

/// Stamps until SIGINT, SIGTERM, the duration or the count, and reports link by link, in the order
/// given. Pins the calling thread if asked to, and gives its privileges up: call it from a thread of its
/// own. What was changed on the cards is changed back.
pub fn stamp(options: &Options, on_ready: Box<OnReady<'_>>) -> Result<Vec<Report>, HardwareError> {
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let system = |what| move |source| HardwareError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let mut listeners: Vec<Listener<'_>> = options
        .links
        .iter()
        .map(|link| Listener::start(link, options.stamper))
        .collect::<Result<_, _>>()?;
    on_ready().map_err(HardwareError::Ready)?;
    privileges::keep(Work::Tap { elsewhere: false, measured: false })
        .map_err(system("give up root's privileges"))?;

    let end = options.duration_ns.map(|ns| now_ns().saturating_add(ns));
    while !signals.requested() {
        let mut more = false;
        for listener in &mut listeners {
            more |= listener.listen()?;
        }
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(now_ns()));
        let enough = |count| listeners.iter().all(|listener| listener.seen >= count);
        if left == 0 || options.count.is_some_and(enough) {
            break;
        }
        if !more {
            signals.wait(None, PERIOD.min(Duration::from_nanos(left)));
        }
    }
    for listener in &mut listeners {
        let closed = listener.source.close();
        closed.map_err(|source| listener.socket_error(source))?;
    }
    listeners.into_iter().map(Listener::finish).collect()
}

/// A link that is listened to, with its file.
struct Listener<'a> {
    link: &'a Link,
    interface: Interface,
    source: Box<dyn Source>,
    clock: Clock,
    writer: Writer,
    /// Stamps that the writer was given, and how many of them it had when it last wrote.
    stamped: u64,
    flushed: u64,
    /// Packets with an id that were handed over, stamped or not.
    seen: u64,
    unstamped: u64,
    other: u64,
    // Last: the card goes back to what it did when nobody listens any more.
    _filter: Option<EveryPacket>,
}

impl<'a> Listener<'a> {
    fn start(link: &'a Link, stamper: Stamper) -> Result<Self, HardwareError> {
        let interface = Interface::find_up(&link.interface)?;
        if link.absorb && link.method == Method::Messages {
            return Err(HardwareError::Absorb { name: interface.name });
        }
        let filter = match stamper {
            Stamper::Card => Some(EveryPacket::stamp(&interface)?),
            Stamper::Kernel => None,
        };
        let source: Box<dyn Source> = match link.method {
            Method::Metadata => Box::new(Metadata::open(&interface, stamper, link.absorb)?),
            Method::Messages => {
                Box::new(Messages::open(&interface, stamper).map_err(|source| {
                    HardwareError::Socket { name: interface.name.clone(), source }
                })?)
            }
        };
        let clock = source.clock(stamper);
        let writer = Writer::create(target(link, clock))?;
        Ok(Self {
            link,
            interface,
            source,
            clock,
            writer,
            stamped: 0,
            flushed: 0,
            seen: 0,
            unstamped: 0,
            other: 0,
            _filter: filter,
        })
    }

    /// Takes what was received, and writes it when it is much; returns whether there may be more.
    fn listen(&mut self) -> Result<bool, HardwareError> {
        let (writer, stamped) = (&mut self.writer, &mut self.stamped);
        let (seen, unstamped, other) = (&mut self.seen, &mut self.unstamped, &mut self.other);
        let taken = self.source.take(&mut |packet| {
            let Some(id) = moonsniff::id(packet.bytes) else {
                *other += 1;
                return;
            };
            *seen += 1;
            match packet.time_ns {
                Some(time) => {
                    writer.push([time, u64::from(id) | (packet.len as u64 & 0xffff) << 32], &[]);
                    *stamped += 1;
                }
                None => *unstamped += 1,
            }
        });
        if self.stamped - self.flushed > CHUNK {
            // The clock may be any: what is kept back for sorting counts from the newest stamp.
            self.writer.flush(u64::MAX, false, self.counters(0))?;
            self.flushed = self.stamped;
        }
        match taken {
            // The interface is gone or down: the report says so.
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(false),
            other => other.map_err(|source| self.socket_error(source)),
        }
    }

    /// Takes the rest and completes the file.
    fn finish(mut self) -> Result<Report, HardwareError> {
        while self.listen()? {}
        let dropped = self.source.dropped().map_err(|source| self.socket_error(source))?;
        let counters = self.counters(dropped);
        let mut warnings = Vec::new();
        if !self.interface.exists() {
            warnings.push(format!("interface vanished: {}", self.interface.name));
        }
        if self.unstamped > 0 {
            warnings.push(format!("{} packets came without a stamp", self.unstamped));
        }
        let (counts, _) = self.writer.finish(counters).map_err(|(error, writer)| {
            writer.abandon(counters);
            error
        })?;
        let (link, clock, unstamped) = (self.link.clone(), self.clock, self.unstamped);
        Ok(Report { link, clock, counts: counts.tap, unstamped, warnings })
    }

    /// What was counted so far, with `dropped` packets that found no room.
    fn counters(&self, dropped: u64) -> Counters {
        let lost = dropped + self.unstamped;
        Counters { head: self.stamped, lost, other: self.other, ..Default::default() }
    }

    fn socket_error(&self, source: io::Error) -> HardwareError {
        HardwareError::Socket { name: self.interface.name.clone(), source }
    }
}

fn target(link: &Link, clock: Clock) -> Target {
    Target {
        path: link.path.clone(),
        link: link.name.clone(),
        format: Format::Stamps,
        clock,
        shift: 0,
        rotation: Rotation::default(),
        sample: Sample::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::template::{
        DESTINATION_MAC, Flows, Layout, SOURCE_MAC, TIME_TO_LIVE, Template,
    };
    use tailtap_analysis::stamps::{HEADER_LEN, Header, RECORD_LEN, Stamp};
    use tailtap_wire::moonsniff::Kind;

    /// Hands over what it was given, and says that some did not fit.
    struct Script {
        packets: Vec<(Vec<u8>, Option<u64>)>,
        dropped: u64,
    }

    impl Source for Script {
        fn take(&mut self, each: &mut dyn FnMut(Received<'_>)) -> io::Result<bool> {
            for (bytes, time_ns) in self.packets.drain(..) {
                each(Received { bytes: &bytes, len: 1514, time_ns });
            }
            Ok(false)
        }

        fn dropped(&mut self) -> io::Result<u64> {
            Ok(self.dropped)
        }

        fn close(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn clock(&self, _: Stamper) -> Clock {
            Clock::Hardware
        }
    }

    #[test]
    fn packets_without_a_stamp_are_lost_and_told() {
        let mut template = Template::new(&Layout {
            sizes: vec![64],
            flows: Flows::default(),
            vlan: None,
            time_to_live: TIME_TO_LIVE,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        });
        let mut frame = |id, kind| template.packet(id, kind).to_vec();
        let packets = vec![
            (frame(1, Kind::Measured), Some(2_000)),
            (frame(2, Kind::Measured), None),
            (frame(0, Kind::WarmUp), None),
            (frame(3, Kind::Measured), Some(1_000)),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.stamps");
        let link = Link {
            name: "ingress".into(),
            interface: "tt-gone".into(),
            method: Method::Messages,
            absorb: false,
            path: path.clone(),
        };
        let listener = Listener {
            link: &link,
            interface: Interface {
                name: "tt-gone".into(),
                index: i32::MAX,
                mtu: 1500,
                up: true,
                ethernet: true,
            },
            source: Box::new(Script { packets, dropped: 5 }),
            clock: Clock::Hardware,
            writer: Writer::create(target(&link, Clock::Hardware)).expect("a file"),
            stamped: 0,
            flushed: 0,
            seen: 0,
            unstamped: 0,
            other: 0,
            _filter: None,
        };
        let report = listener.finish().expect("written");
        let counts = TapCounts { seen: 8, stored: 2, lost: 6, other: 1 };
        assert_eq!((report.counts, report.unstamped), (counts, 1));
        let expected = ["interface vanished: tt-gone", "1 packets came without a stamp"];
        assert_eq!(report.warnings, expected);

        let bytes = std::fs::read(&path).expect("readable");
        let header = Header::decode(&bytes).expect("a header");
        assert_eq!((header.clock, header.counts), (Clock::Hardware, Some(counts)));
        let records = bytes[HEADER_LEN..].chunks_exact(RECORD_LEN);
        let stamps: Vec<_> =
            records.map(|r| Stamp::decode(r.try_into().expect("sixteen bytes"))).collect();
        let stamp = |time_ns, id| Stamp { time_ns, id, frame_len: 1514 };
        assert_eq!(stamps, [stamp(1_000, 3), stamp(2_000, 1)]);
    }
}
