//! The tap's eBPF program: what it is told when it is loaded, and its ring.

use std::io;
use std::mem::size_of;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;
use tailtap_analysis::key::Field;

use super::ring::{Ring, State};
use crate::bpf::{Attachment, Bell, BpfError, Hook, Loaded, Place, TAP, busy, programs_on};
use crate::interface::Interface;

/// The program that taps, the same for packets that are stamped on receipt, those that note when XDP
/// frames are handed over, and packets that bring a time, the one that does nothing, and the one that
/// reads the clock.
const TAP_PROGRAM: &str = "tap";
const RECEIPT_PROGRAM: &str = "receipt";
const FLUSHED: &str = "flushed";
const HANDED: &str = "handed";
const NOTHING: &str = "nothing";
const ONLY_CLOCK: &str = "only_clock";
/// The types of the running kernel, which [`FLUSHED`] and [`HANDED`] read.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// What becomes of a packet after its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way.
    Pass,
    /// It is absorbed.
    Drop,
    /// It leaves through the interface with this index.
    Redirect(i32),
}

/// Which packets a tap keeps, and what of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Time and id of every packet in MoonSniff's layout.
    Stamps,
    /// Time and id of every packet that is long enough to have this field, at most
    /// [`MAX_KEY_WIDTH`] bytes wide.
    Field(Field),
    /// Time and at most so many first bytes of every packet; not 0.
    Bytes(u32),
}

/// Bytes of the widest id that a stamp holds.
pub const MAX_KEY_WIDTH: usize = 4;
/// Words of a slot before the bytes of a packet: `struct packet` in bpf/tap.bpf.c.
pub const PACKET_WORDS: usize = 3;

impl Keep {
    /// Words of a slot in the ring.
    pub fn slot_words(self) -> usize {
        match self {
            Self::Stamps | Self::Field(_) => 2,
            Self::Bytes(snap) => PACKET_WORDS + (snap as usize).div_ceil(8),
        }
    }

    /// The words of `config` in bpf/tap.bpf.c from `snap` on.
    fn words(self) -> [u32; 4] {
        match self {
            Self::Stamps => [0; 4],
            Self::Field(field) => {
                [0, field.offset as u32, field.width as u32, u32::from(field.big_endian)]
            }
            Self::Bytes(snap) => [snap, 0, 0, 0],
        }
    }
}

impl Verdict {
    /// The first two words of `config` in bpf/tap.bpf.c.
    fn words(self) -> [u32; 2] {
        match self {
            Self::Pass => [0, 0],
            Self::Drop => [1, 0],
            Self::Redirect(index) => [2, index as u32],
        }
    }
}

/// Which moment of a packet a stamp is the time of.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// When the tap's program sees it.
    Now,
    /// The same where another tap may stand that stamps packets when they were handed over.
    Receipt,
    /// When it was handed over to this interface, the one that is tapped. The kernel must be asked
    /// for stamps, see [`crate::tap::arrival`].
    Arrival(&'a Interface),
    /// The same of packets of TCP as well, which the kernel does not stamp; each of them costs more.
    AnyArrival(&'a Interface),
}

impl Moment<'_> {
    fn program(self) -> &'static str {
        match self {
            Self::Now | Self::Arrival(_) | Self::AnyArrival(_) => TAP_PROGRAM,
            Self::Receipt => RECEIPT_PROGRAM,
        }
    }

    /// The programs that note when packets are handed over, where the kernel lets all be loaded.
    fn noting(self) -> &'static [&'static str] {
        match self {
            Self::Now | Self::Receipt => &[],
            Self::Arrival(_) => &[FLUSHED],
            Self::AnyArrival(_) => &[FLUSHED, HANDED],
        }
    }

    /// The last four words of `config` in bpf/tap.bpf.c.
    fn words(self, noting: &[&str]) -> io::Result<[u32; 4]> {
        Ok(match self {
            Self::Now | Self::Receipt => [0; 4],
            Self::Arrival(_) | Self::AnyArrival(_) if noting.is_empty() => [1, 0, 0, 0],
            Self::Arrival(interface) | Self::AnyArrival(interface) => {
                let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
                let noted = u32::from(noting.contains(&HANDED));
                [1, interface.index as u32, namespace as u32, noted]
            }
        })
    }
}

/// A tap that is loaded, with its ring.
#[derive(Debug)]
pub struct Program {
    /// Which of the programs it is.
    name: &'static str,
    loaded: Loaded,
    /// Rings when the ring should be drained.
    pub bell: Bell,
    state: MmapRaw,
    records: MmapRaw,
    slots: usize,
    slot_words: usize,
    /// The programs that note when packets are handed over.
    noting: &'static [&'static str],
}

impl Program {
    /// Loads a tap with a ring of `slots` records, a power of two.
    ///
    /// A kernel without its own types (CONFIG_DEBUG_INFO_BTF) does not tell when XDP frames are
    /// handed over, and one before Linux 6.2 not when packets of TCP are: they are stamped on
    /// receipt, and counted as late.
    pub fn load(
        verdict: Verdict,
        keep: Keep,
        slots: u32,
        moment: Moment<'_>,
    ) -> Result<Self, BpfError> {
        let mut noting = moment.noting();
        if !Path::new(KERNEL_TYPES).exists() {
            noting = &[];
        }
        loop {
            match (Self::load_with(verdict, keep, slots, moment, noting), noting) {
                (Err(_), [fewer @ .., _]) => noting = fewer,
                (result, _) => return result,
            }
        }
    }

    fn load_with(
        verdict: Verdict,
        keep: Keep,
        slots: u32,
        moment: Moment<'_>,
        noting: &'static [&'static str],
    ) -> Result<Self, BpfError> {
        let mut open = TAP.open()?;
        let name = moment.program();
        let slot_words = keep.slot_words();
        let mut words = Vec::from(verdict.words());
        words.push(slots - 1);
        words.extend(keep.words());
        words.extend(moment.words(noting).map_err(|error| TAP.refused(error))?);
        open.set_constants(&words);
        open.size_map("ring", slots, Some((slot_words * size_of::<u64>()) as u32))?;
        let idle = if name == TAP_PROGRAM { RECEIPT_PROGRAM } else { TAP_PROGRAM };
        open.leave_out(idle);
        for other in [FLUSHED, HANDED] {
            if !noting.contains(&other) {
                open.leave_out(other);
            }
        }
        let loaded = open.load()?;
        let state = loaded.map_memory(".bss", size_of::<State>())?;
        let slots = slots as usize;
        let records = loaded.map_memory("ring", slots * slot_words * size_of::<u64>())?;
        let bell = loaded.bell()?;
        Ok(Self { name, loaded, bell, state, records, slots, slot_words, noting })
    }

    /// The ring; there must be one consumer at a time.
    pub fn ring(&self) -> Ring<'_> {
        // SAFETY: both mappings are zeroed memory of the right size, aligned to a page, shared
        // with the kernel and accessed through atomics alone, and live as long as `self`.
        unsafe {
            Ring::new(
                &*self.state.as_ptr().cast::<State>(),
                std::slice::from_raw_parts(
                    self.records.as_ptr().cast::<AtomicU64>(),
                    self.slots * self.slot_words,
                ),
                self.slot_words,
            )
        }
    }

    /// Attaches the tap to an interface of this thread's network namespace, before what is there.
    pub fn attach(&self, interface: &Interface, hook: Hook) -> Result<Attached, BpfError> {
        let tcx = Place::Tcx(hook);
        let programs = programs_on(interface, hook).map_err(|error| self.loaded.refused(error))?;
        if programs.iter().flatten().any(|name| name == self.name) {
            return Err(busy(interface, tcx));
        }
        let place = if programs.is_some() { tcx } else { Place::Filter(hook) };
        let tap = self.loaded.attach(self.name, interface, place)?;
        // Behind the tap, which numbers frames from the first note on.
        let noting = self.noting.iter().map(|name| self.loaded.follow(name, None));
        Ok(Attached { _noting: noting.collect::<Result<_, _>>()?, _tap: tap })
    }

    /// Time that the tap took, in nanoseconds, and how often it ran, while statistics were on
    /// (see [`enable_statistics`](crate::bpf::enable_statistics)).
    pub fn run_time(&self) -> io::Result<(u64, u64)> {
        self.loaded.run_time(self.name)
    }

    /// What the statistics say, while they are on, that a program takes which does nothing: mean
    /// nanoseconds. So much of every program's time is the kernel reading its clock.
    pub fn floor(&self) -> io::Result<f64> {
        self.loaded.test_run(NOTHING)
    }

    /// The same of a program that reads the clock of the stamps.
    pub fn clock(&self) -> io::Result<f64> {
        self.loaded.test_run(ONLY_CLOCK)
    }
}

/// A tap on a link; dropping it takes the tap away.
#[derive(Debug)]
pub struct Attached {
    // Before the tap: dropped first, so that the tap sees every frame that was noted.
    /// The tracepoints that tell of what is handed over.
    _noting: Vec<Attachment>,
    _tap: Attachment,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::PacketSocket;
    use std::process::Command;

    /// What `command` prints, run in the network namespace of this thread.
    fn run(command: &str) -> String {
        let mut words = command.split(' ');
        let program = words.next().expect("a program");
        let output = Command::new(program).args(words).output().expect("it runs");
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Newer kernels have links and older ones filters; the older way must work on the newer ones.
    #[test]
    fn both_ways_of_attaching_stamp_and_leave_nothing() {
        // SAFETY: takes no pointers; only this thread moves to a namespace of its own.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("skipped: network namespaces and eBPF need root");
            return;
        }
        run("ip link add tt-a type veth peer name tt-b");
        run("ip link set tt-a up");
        run("ip link set tt-b up");
        let [sender, receiver] = ["tt-a", "tt-b"].map(|name| Interface::find_up(name).expect("up"));
        let socket = PacketSocket::sender(&sender, true).expect("a socket");
        for place in [Place::Tcx(Hook::Ingress), Place::Filter(Hook::Ingress)] {
            let program =
                Program::load(Verdict::Drop, Keep::Bytes(64), 16, Moment::Now).expect("loaded");
            let attachment = program.loaded.attach(TAP_PROGRAM, &receiver, place);
            let attachment = attachment.expect("attached");
            // The one that comes later sees packets first, and lets them pass.
            let early =
                Program::load(Verdict::Pass, Keep::Bytes(64), 16, Moment::Receipt).expect("loaded");
            let first = early.loaded.attach(RECEIPT_PROGRAM, &receiver, place).expect("attached");
            let before = program.ring().counters().head;
            for _ in 0..3 {
                socket.send(&[0x02; 60]).expect("sent");
            }
            assert!(program.ring().counters().head >= before + 3);
            let times = |one: &Program| {
                let mut found = Vec::new();
                one.ring().drain(u64::MAX, |record, _| found.push(record[0]));
                found
            };
            let (earlier, later) = (times(&early), times(&program));
            assert!(earlier.len() >= 3);
            let pairs = earlier.iter().rev().zip(later.iter().rev());
            assert!(pairs.into_iter().all(|(one, other)| one < other));
            assert_eq!(
                run("tc qdisc show dev tt-b").contains("clsact"),
                place == Place::Filter(Hook::Ingress)
            );
            drop((first, attachment));
            assert!(!run("tc qdisc show dev tt-b").contains("clsact"));
            let names = programs_on(&receiver, Hook::Ingress).expect("asked");
            assert_eq!(names.unwrap_or_default(), Vec::<String>::new());
        }
    }
}
