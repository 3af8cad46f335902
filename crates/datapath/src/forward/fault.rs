//! The fault injector: a user-space forwarder that passes packets from one interface to another,
//! and holds, drops or duplicates chosen ones, or passes no more than a known rate. What it did is
//! known exactly, so a measurement around it must find just that.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::error::Error;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use serde::Serialize;
use tailtap_wire::{ethernet, moonsniff, vlan};

use super::limit::{Limit, Server};
use super::ports::{Ports, PortsError};
use crate::OnReady;
use crate::clock::{SPIN_NS, now_ns};
use crate::cpu::{CpuError, hurry, pin};
use crate::device::Device;
use crate::device::af_packet::AfPacket;
use crate::signals::StopSignals;
use crate::socket::PacketSocket;

/// The longest frame, without FCS and VLAN tag.
const FRAME_LEN: usize = 1 << 16;
/// What the input may queue, as the kernel counts: some tens of thousands of small frames.
const BUFFER_LEN: i32 = 64 << 20;
/// How long to wait when nothing is held; signals end the wait.
const IDLE: Duration = Duration::from_millis(100);

/// What to do to which packets. The dropped ones are dropped, whatever else is asked for them; a
/// packet that is both held and duplicated leaves twice after its time.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The interface where packets arrive.
    pub input: String,
    /// The interface through which they leave.
    pub output: String,
    /// Ids of packets to hold.
    pub hold: HashSet<u32>,
    /// How long to hold them.
    pub hold_for_ns: u64,
    /// Ids of packets to drop.
    pub drop: HashSet<u32>,
    /// Ids of packets to send twice.
    pub duplicate: HashSet<u32>,
    /// How many packets pass in a second, and how many more may wait; the held ones bypass it.
    pub limit: Option<Limit>,
    /// Where the thread runs.
    pub cpu: Option<usize>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Packets sent on, held ones included, second copies not.
    pub forwarded: u64,
    /// Of these, held.
    pub held: u64,
    /// Packets dropped as asked.
    pub dropped: u64,
    /// Second copies sent.
    pub duplicated: u64,
    /// Packets dropped because as many as the limit allows were waiting.
    pub limited: u64,
    /// Packets lost: for lack of room in the input's buffer, because the output did not take
    /// them, or because they were still held at the end.
    pub lost: u64,
}

/// Packets could not be forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The interfaces cannot be used.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The privilege is missing.
    #[error(
        "the kernel does not permit packet sockets: run as root (or with CAP_NET_RAW and \
         CAP_NET_ADMIN)"
    )]
    NotPermitted,
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

/// Forwards until SIGINT or SIGTERM. Pins the calling thread if asked to and raises its priority:
/// call it from a thread of its own.
pub fn forward(options: &Options, on_ready: Box<OnReady<'_>>) -> Result<Report, ForwardError> {
    let ports = Ports::find(&options.input, &options.output)?;
    let system = |what| move |source| ForwardError::System { what, source };
    let denied = |source: io::Error| {
        if source.kind() == io::ErrorKind::PermissionDenied {
            ForwardError::NotPermitted
        } else {
            system("open a packet socket")(source)
        }
    };
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    hurry();
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let device = AfPacket::open(&ports.output, true).map_err(denied)?;
    let mut forwarder = Forwarder::new(options, device);
    let receiver = PacketSocket::receiver(&ports.input, BUFFER_LEN).map_err(denied)?;
    on_ready().map_err(ForwardError::Ready)?;

    let mut buffer = vec![0; vlan::LEN + FRAME_LEN];
    while !signals.requested() {
        let now = now_ns();
        forwarder.release(now);
        match receive(&receiver, &mut buffer) {
            Ok(frame) => forwarder.take(frame, now_ns()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let wait = match forwarder.next_due() {
                    // Sleepers wake up late: spin towards the end.
                    Some(due) => match due.saturating_sub(now) {
                        ..=SPIN_NS => continue,
                        left => Duration::from_nanos(left - SPIN_NS).min(IDLE),
                    },
                    None => IDLE,
                };
                signals.wait(Some(receiver.as_fd()), wait);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The socket reports once that its interface went down or away.
            Err(error) => {
                ports.check()?;
                if error.raw_os_error() != Some(libc::ENETDOWN) {
                    return Err(system("receive packets")(error));
                }
            }
        }
    }
    let drops = receiver.take_drops().map_err(system("count lost packets"))?;
    let mut report = forwarder.report;
    report.lost += drops + forwarder.held.len() as u64;
    Ok(report)
}

/// A packet that is held: when it is due, its place among those of the same time, the frame, and
/// whether it leaves twice.
type Held = (u64, u64, Vec<u8>, bool);

struct Forwarder<'a, D> {
    options: &'a Options,
    device: D,
    server: Option<Server>,
    held: BinaryHeap<Reverse<Held>>,
    /// How many packets were ever put into `held`: they leave in this order at equal times.
    places: u64,
    report: Report,
}

impl<'a, D: Device> Forwarder<'a, D> {
    fn new(options: &'a Options, device: D) -> Self {
        Self {
            options,
            device,
            server: options.limit.map(Server::new),
            held: BinaryHeap::new(),
            places: 0,
            report: Report::default(),
        }
    }

    /// Sends, holds or drops a frame that arrived at `now`.
    fn take(&mut self, frame: &[u8], now: u64) {
        let chosen = |ids: &HashSet<u32>| {
            !ids.is_empty() && moonsniff::id(frame).is_some_and(|id| ids.contains(&id))
        };
        let twice = chosen(&self.options.duplicate);
        if chosen(&self.options.drop) {
            self.report.dropped += 1;
        } else if chosen(&self.options.hold) {
            self.report.held += 1;
            self.keep(now + self.options.hold_for_ns, frame, twice);
        } else {
            match self.server.as_mut().map_or(Some(now), |server| server.admit(now)) {
                Some(due) if due <= now => self.send(frame, twice),
                Some(due) => self.keep(due, frame, twice),
                None => self.report.limited += 1,
            }
        }
    }

    /// Keeps a frame until it is `due`.
    fn keep(&mut self, due: u64, frame: &[u8], twice: bool) {
        self.held.push(Reverse((due, self.places, frame.to_vec(), twice)));
        self.places += 1;
    }

    /// When the next held packet is due.
    fn next_due(&self) -> Option<u64> {
        self.held.peek().map(|Reverse(held)| held.0)
    }

    /// Sends the held packets that are due.
    fn release(&mut self, now: u64) {
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(Reverse((_, _, frame, twice))) = self.held.pop() {
                self.send(&frame, twice);
            }
        }
    }

    fn send(&mut self, frame: &[u8], twice: bool) {
        match self.hand_over(frame) {
            true => self.report.forwarded += 1,
            false => self.report.lost += 1,
        }
        if twice {
            match self.hand_over(frame) {
                true => self.report.duplicated += 1,
                false => self.report.lost += 1,
            }
        }
    }

    /// Whether the output took the frame.
    fn hand_over(&mut self, frame: &[u8]) -> bool {
        self.device.push(frame);
        self.device.flush() == 0
    }
}

/// Receives one frame into `buffer`, and puts back the VLAN tag that the kernel hands over beside
/// the frame.
fn receive<'a>(socket: &PacketSocket, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    /// Room for one control message, aligned as it must be.
    #[repr(C, align(8))]
    struct Control([u8; 64]);

    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: buffer[vlan::LEN..].as_mut_ptr().cast(),
        iov_len: buffer.len() - vlan::LEN,
    };
    // SAFETY: all pointers and lengths describe memory that lives until the call returns, and the
    // control message is read as what its type says, within what the kernel filled.
    let (len, tag) = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let len = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT);
        if len < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let tag = (!header.is_null() && (*header).cmsg_type == libc::PACKET_AUXDATA)
            .then(|| libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned())
            .filter(|data| data.tp_status & libc::TP_STATUS_VLAN_VALID != 0);
        (len as usize, tag)
    };
    let Some(tag) = tag else {
        return Ok(&buffer[vlan::LEN..vlan::LEN + len]);
    };
    // The hardware addresses move forward, and the tag goes behind them.
    buffer.copy_within(vlan::LEN..vlan::LEN + ethernet::ADDRESSES_LEN, 0);
    buffer[ethernet::ADDRESSES_LEN..][..vlan::LEN]
        .copy_from_slice(&vlan::tag(tag.tp_vlan_tpid, tag.tp_vlan_tci));
    Ok(&buffer[..vlan::LEN + len])
}

#[cfg(test)]
mod tests {
    use tailtap_wire::moonsniff::Kind;

    use super::*;
    use crate::device::loopback;
    use crate::generate::template::{
        DESTINATION_MAC, Flows, Layout, SOURCE_MAC, TIME_TO_LIVE, Template,
    };

    #[test]
    fn missing_interfaces_are_named() {
        let options =
            Options { input: "tt-no-such".into(), output: "lo".into(), ..Options::default() };
        let message = forward(&options, Box::new(|| Ok(()))).expect_err("refused").to_string();
        assert!(message.contains("tt-no-such"), "{message}");
    }

    /// The ids of frames that a forwarder with these options lets pass, when frame n comes after n
    /// milliseconds, and what it reports.
    fn forwarded(options: &Options, frames: u32) -> (Vec<u32>, Report) {
        const MILLISECOND: u64 = 1_000_000;
        let layout = Layout {
            sizes: vec![64],
            flows: Flows::default(),
            vlan: None,
            time_to_live: TIME_TO_LIVE,
            source: SOURCE_MAC,
            destination: DESTINATION_MAC,
        };
        let mut template = Template::new(&layout);
        let (device, received) = loopback::pair(1);
        let mut forwarder = Forwarder::new(options, device);
        for id in 0..frames {
            let now = u64::from(id) * MILLISECOND;
            forwarder.release(now);
            forwarder.take(template.packet(id, Kind::Measured), now);
        }
        forwarder.release(u64::from(frames) * MILLISECOND);
        let ids = std::iter::from_fn(|| received.take());
        let ids = ids.map(|frame| moonsniff::id(&frame).expect("an id"));
        (ids.collect(), forwarder.report)
    }

    #[test]
    fn chosen_packets_are_held_dropped_and_duplicated() {
        let options = Options {
            hold: [1, 4].into(),
            hold_for_ns: 2_500_000,
            drop: [0, 4].into(),
            duplicate: [1, 2, 0].into(),
            ..Options::default()
        };
        // 1 leaves with its copy at 3.5 ms, before 4 would come; what is dropped is nothing else.
        let (ids, report) = forwarded(&options, 6);
        assert_eq!(ids, [2, 2, 3, 1, 1, 5]);
        let expected =
            Report { forwarded: 4, held: 1, dropped: 2, duplicated: 2, ..Report::default() };
        assert_eq!(report, expected);
    }

    #[test]
    fn packets_above_the_limit_wait_or_are_dropped() {
        // Half of what comes, and room for two.
        let limit = Some(Limit { rate: 500, queue: 2 });
        let (ids, report) = forwarded(&Options { limit, ..Options::default() }, 100);
        assert!(ids.is_sorted());
        assert_eq!(report.forwarded, ids.len() as u64);
        assert!((50..=52).contains(&report.forwarded), "{report:?}");
        assert!((45..=50).contains(&report.limited), "{report:?}");
    }

    #[test]
    fn held_packets_leave_in_the_order_of_their_times() {
        let mut held: BinaryHeap<Reverse<Held>> = BinaryHeap::new();
        for (place, due) in [30, 10, 20, 10].into_iter().enumerate() {
            held.push(Reverse((due, place as u64, vec![], false)));
        }
        let order: Vec<u64> = std::iter::from_fn(|| held.pop().map(|h| h.0.1)).collect();
        assert_eq!(order, [1, 3, 2, 0]);
    }
}
