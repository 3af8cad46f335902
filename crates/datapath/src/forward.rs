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

use crate::clock::{SPIN_NS, now_ns};
use crate::cpu::{CpuError, hurry, pin};
use crate::interface::{Interface, InterfaceError};
use crate::packet::moonsniff_id;
use crate::signals::StopSignals;
use crate::socket::PacketSocket;
use crate::tap::OnReady;

/// The longest frame, without FCS and VLAN tag.
const FRAME_LEN: usize = 1 << 16;
/// Room for a VLAN tag, which the kernel hands over beside the frame.
const TAG_LEN: usize = 4;
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

/// A device of known speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets a second, above zero.
    pub rate: u64,
    /// Packets that may wait for their turn; more are dropped.
    pub queue: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Input and output are the same.
    #[error("input and output are both {name}: choose two interfaces")]
    Same {
        /// The interface.
        name: String,
    },
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The privilege is missing.
    #[error(
        "the kernel does not permit packet sockets: run as root (or with CAP_NET_RAW and \
         CAP_NET_ADMIN)"
    )]
    NotPermitted,
    /// An interface was deleted.
    #[error("interface {name} vanished: whoever deleted it ended the forwarding")]
    Vanished {
        /// The interface.
        name: String,
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

/// Forwards until SIGINT or SIGTERM. Pins the calling thread if asked to and raises its priority:
/// call it from a thread of its own.
pub fn forward(options: &Options, on_ready: Box<OnReady<'_>>) -> Result<Report, ForwardError> {
    let input = Interface::find_up(&options.input)?;
    let output = Interface::find_up(&options.output)?;
    if input.index == output.index {
        return Err(ForwardError::Same { name: input.name });
    }
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
    let mut forwarder = Forwarder {
        options,
        sender: PacketSocket::sender(&output, true).map_err(denied)?,
        server: options.limit.map(Server::new),
        held: BinaryHeap::new(),
        places: 0,
        report: Report::default(),
    };
    let receiver = PacketSocket::receiver(&input, BUFFER_LEN).map_err(denied)?;
    on_ready().map_err(ForwardError::Ready)?;

    let mut buffer = vec![0; TAG_LEN + FRAME_LEN];
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
                for interface in [&input, &output] {
                    if !interface.exists() {
                        let name = interface.name.clone();
                        return Err(ForwardError::Vanished { name });
                    }
                }
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

struct Forwarder<'a> {
    options: &'a Options,
    sender: PacketSocket,
    server: Option<Server>,
    held: BinaryHeap<Reverse<Held>>,
    /// How many packets were ever put into `held`: they leave in this order at equal times.
    places: u64,
    report: Report,
}

impl Forwarder<'_> {
    /// Sends, holds or drops a frame that arrived at `now`.
    fn take(&mut self, frame: &[u8], now: u64) {
        let chosen = |ids: &HashSet<u32>| {
            !ids.is_empty() && moonsniff_id(frame).is_some_and(|id| ids.contains(&id))
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
        match self.sender.send(frame) {
            Ok(()) => self.report.forwarded += 1,
            Err(_) => self.report.lost += 1,
        }
        if twice {
            match self.sender.send(frame) {
                Ok(()) => self.report.duplicated += 1,
                Err(_) => self.report.lost += 1,
            }
        }
    }
}

/// Who lets packets pass one after the other, at the rate of a [`Limit`] at most.
struct Server {
    limit: Limit,
    /// When it began to be busy, and how many packets it has let pass since.
    since: u64,
    served: u64,
}

impl Server {
    fn new(limit: Limit) -> Self {
        Self { limit, since: 0, served: 0 }
    }

    /// When the next packet may leave; the past when nothing is waiting.
    fn free_at(&self) -> u64 {
        // Counted from the beginning: rounding does not add up.
        let busy = u128::from(self.served) * 1_000_000_000 / u128::from(self.limit.rate);
        self.since + busy as u64
    }

    /// When a packet that arrives `now` leaves; None when too many are waiting already.
    fn admit(&mut self, now: u64) -> Option<u64> {
        let free = self.free_at();
        if free <= now {
            self.since = now;
            self.served = 0;
        }
        let wait = u128::from(free.saturating_sub(now)) * u128::from(self.limit.rate);
        if wait > u128::from(self.limit.queue) * 1_000_000_000 {
            return None;
        }
        let due = self.free_at();
        self.served += 1;
        Some(due)
    }
}

/// Receives one frame into `buffer`, with the VLAN tag that the kernel took out put back.
fn receive<'a>(socket: &PacketSocket, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    /// Room for one control message, aligned as it must be.
    #[repr(C, align(8))]
    struct Control([u8; 64]);

    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: buffer[TAG_LEN..].as_mut_ptr().cast(),
        iov_len: buffer.len() - TAG_LEN,
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
        return Ok(&buffer[TAG_LEN..TAG_LEN + len]);
    };
    // The hardware addresses move forward, and the tag goes behind them.
    buffer.copy_within(TAG_LEN..TAG_LEN + 12, 0);
    buffer[12..14].copy_from_slice(&tag.tp_vlan_tpid.to_be_bytes());
    buffer[14..16].copy_from_slice(&tag.tp_vlan_tci.to_be_bytes());
    Ok(&buffer[..TAG_LEN + len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_interfaces_are_named() {
        let options =
            Options { input: "tt-no-such".into(), output: "lo".into(), ..Options::default() };
        let message = forward(&options, Box::new(|| Ok(()))).expect_err("refused").to_string();
        assert!(message.contains("tt-no-such"), "{message}");
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

    #[test]
    fn a_limited_server_passes_its_rate_and_drops_the_rest() {
        const SECOND: u64 = 1_000_000_000;
        let passed = |offered: u64, limit| {
            let mut server = Server::new(limit);
            let mut last = 0;
            let mut longest = 0;
            let mut passed = 0;
            for packet in 0..offered {
                let now = 7 * SECOND + packet * SECOND / offered;
                let Some(due) = server.admit(now) else { continue };
                assert!(due >= now, "packet {packet} leaves before it comes");
                assert!(due >= last, "packet {packet} overtakes");
                longest = longest.max(due - now);
                last = due;
                passed += 1;
            }
            (passed, longest)
        };
        let limit = Limit { rate: 30_000, queue: 60 };
        assert_eq!(passed(29_999, limit), (29_999, 0), "below the limit nothing waits");
        let (slow, longest) = passed(60_000, limit);
        assert!((30_000..=30_062).contains(&slow), "{slow}");
        assert!((1_900_000..=2_000_000).contains(&longest), "{longest}");
        assert!((30_000..=30_002).contains(&passed(60_000, Limit { queue: 0, ..limit }).0));
    }
}
