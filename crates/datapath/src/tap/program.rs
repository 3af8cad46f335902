//! The tap's eBPF program: what it is told when it is loaded, and its ring.

use std::io;
use std::mem::size_of;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use memmap2::MmapRaw;
use tailtap_analysis::key::{Field, Sampling};

use super::ring::{Ring, State};
use crate::bpf::{
    Attachment, Bell, BpfError, CHOICES, Choices, Classic, DIFFERS, Hook, Loaded, MATCHES, Place,
    Rings, TAP, busy, programs_on, translate,
};
use crate::interface::Interface;

/// The program that taps, the same for packets that are stamped on receipt, those that note when XDP
/// frames are handed over, and packets that bring a time, the one that does nothing, and the one that
/// reads the clock.
const TAP_PROGRAM: &str = "tap";
const RECEIPT_PROGRAM: &str = "receipt";
/// What stands before these where there is a filter, and what it goes on with where packets differ.
const TAP_FILTER: &str = "tap_filter";
const RECEIPT_FILTER: &str = "receipt_filter";
const FILTERED_OUT: &str = "filtered_out";
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
/// Which packets are of interest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest<'a> {
    /// The user's filter; all packets without one.
    pub filter: Option<&'a [Classic]>,
    /// What the hash of samples is made of; no samples are taken without one.
    pub sampling: Option<Sampling>,
    /// Where packets carry an id that is in this hash, if it is not MoonSniff's.
    pub id: Option<Field>,
}

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
    fn words(self, id: Option<Field>) -> [u32; 4] {
        let (snap, id) = match self {
            Self::Stamps => (0, None),
            Self::Field(field) => (0, Some(field)),
            Self::Bytes(snap) => (snap, id),
        };
        let [offset, width, order] = id.map_or([0; 3], |field| {
            [field.offset as u32, field.width as u32, u32::from(field.big_endian)]
        });
        [snap, offset, width, order]
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
    /// The program that stamps, and the one before it that a filter takes the place of.
    fn programs(self) -> [&'static str; 2] {
        match self {
            Self::Now | Self::Arrival(_) | Self::AnyArrival(_) => [TAP_PROGRAM, TAP_FILTER],
            Self::Receipt => [RECEIPT_PROGRAM, RECEIPT_FILTER],
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

    /// Four more words of `config` in bpf/tap.bpf.c.
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
    /// Which of the programs comes first.
    name: &'static str,
    /// By which names it is known that there is such a tap already.
    names: [&'static str; 2],
    loaded: Loaded,
    /// What a filter goes on with.
    _choices: Option<Choices>,
    /// Rings when the ring should be drained.
    pub bell: Bell,
    state: MmapRaw,
    rings: Rings,
    /// The programs that note when packets are handed over.
    noting: &'static [&'static str],
}

impl Program {
    /// Loads a tap with a ring of `slots` records, a power of two, for packets that are frames of
    /// Ethernet, or else begin with IP.
    ///
    /// A kernel without its own types (CONFIG_DEBUG_INFO_BTF) does not tell when XDP frames are
    /// handed over, and one before Linux 6.2 not when packets of TCP are: they are stamped on
    /// receipt, and counted as late.
    pub fn load(
        verdict: Verdict,
        keep: Keep,
        slots: u32,
        moment: Moment<'_>,
        interest: Interest<'_>,
        ethernet: bool,
    ) -> Result<Self, BpfError> {
        let mut noting = moment.noting();
        if !Path::new(KERNEL_TYPES).exists() {
            noting = &[];
        }
        loop {
            let moment = (moment, noting);
            match (Self::load_with(verdict, keep, slots, moment, interest, ethernet), noting) {
                (Err(_), [fewer @ .., _]) => noting = fewer,
                (result, _) => return result,
            }
        }
    }

    fn load_with(
        verdict: Verdict,
        keep: Keep,
        slots: u32,
        (moment, noting): (Moment<'_>, &'static [&'static str]),
        interest: Interest<'_>,
        ethernet: bool,
    ) -> Result<Self, BpfError> {
        let mut open = TAP.open()?;
        let names = moment.programs();
        let [stamping, filtering] = names;
        let slot_words = keep.slot_words();
        let mut words = Vec::from(verdict.words());
        words.extend([slots - 1, (slot_words * size_of::<u64>()) as u32]);
        words.extend(keep.words(interest.id));
        words.extend(moment.words(noting).map_err(|error| TAP.refused(error))?);
        words.push(interest.sampling.map_or(0, Sampling::bits));
        words.push(u32::from(!ethernet));
        open.set_constants(&words);
        let rings = open.size_rings(1, slots as usize, slot_words)?;
        let mut needed = vec![stamping, NOTHING, ONLY_CLOCK];
        needed.extend(noting);
        let choices = interest.filter.map(|filter| {
            needed.extend([filtering, FILTERED_OUT]);
            let choices = Choices::new(&TAP, CHOICES)?;
            let mut instructions = translate(filter, choices.fd())?;
            open.replace(filtering, &mut instructions).map(|()| choices)
        });
        let choices = choices.transpose()?;
        for (other, _) in open.programs() {
            if !needed.contains(&other.as_str()) {
                open.leave_out(&other);
            }
        }
        let loaded = open.load()?;
        if let Some(choices) = &choices {
            choices.put(MATCHES, &loaded, stamping)?;
            choices.put(DIFFERS, &loaded, FILTERED_OUT)?;
        }
        let name = if choices.is_some() { filtering } else { stamping };
        let state = loaded.map_memory(".bss", size_of::<State>())?;
        let rings = rings.share(&loaded)?;
        let bell = loaded.bell()?;
        Ok(Self { name, names, loaded, _choices: choices, bell, state, rings, noting })
    }

    /// The ring; there must be one consumer at a time.
    pub fn ring(&self) -> Ring<'_> {
        // SAFETY: the mapping is zeroed memory of the right size, aligned to a page, shared with the
        // kernel and accessed through atomics alone, and lives as long as `self`.
        Ring::new(unsafe { &*self.state.as_ptr().cast::<State>() }, &self.rings)
    }

    /// Attaches the tap to an interface of this thread's network namespace, before what is there.
    pub fn attach(&self, interface: &Interface, hook: Hook) -> Result<Attached, BpfError> {
        let tcx = Place::Tcx(hook);
        let programs = programs_on(interface, hook).map_err(|error| self.loaded.refused(error))?;
        if programs.iter().flatten().any(|name| self.names.contains(&name.as_str())) {
            return Err(busy(interface, tcx));
        }
        let place = if programs.is_some() { tcx } else { Place::Filter(hook) };
        let tap = self.loaded.attach(self.name, interface, place)?;
        // Behind the tap, which numbers frames from the first note on.
        let noting = self.noting.iter().map(|name| self.loaded.follow(name, None));
        Ok(Attached { _noting: noting.collect::<Result<_, _>>()?, _tap: tap, place })
    }

    /// The programs of others that a hook of an interface has before this tap by now.
    pub fn behind(&self, interface: &Interface, hook: Hook) -> Vec<String> {
        let ours = [TAP_PROGRAM, TAP_FILTER, RECEIPT_PROGRAM, RECEIPT_FILTER];
        let programs = programs_on(interface, hook).ok().flatten().unwrap_or_default();
        let place = programs.iter().position(|name| self.names.contains(&name.as_str()));
        let before = programs.into_iter().take(place.unwrap_or_default());
        before.filter(|name| !ours.contains(&name.as_str())).collect()
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
    place: Place,
}

impl Attached {
    /// The name of the place where the tap's program runs.
    pub fn place(&self) -> &'static str {
        match self.place {
            Place::Tcx(Hook::Ingress) => "tcx-ingress",
            Place::Tcx(Hook::Egress) => "tcx-egress",
            Place::Filter(Hook::Ingress) => "tc-ingress",
            Place::Filter(Hook::Egress) => "tc-egress",
            Place::Xdp(_) => "xdp",
        }
    }
}

/// Which packets a filter matches, as the kernel says; `None` without root's privileges.
#[cfg(test)]
pub(crate) fn answers(filter: &[Classic], packets: &[Vec<u8>]) -> Option<Vec<bool>> {
    let interest = Interest { filter: Some(filter), ..Interest::default() };
    let loaded = Program::load(Verdict::Drop, Keep::Bytes(16), 16, Moment::Now, interest, true);
    let program = match loaded {
        Err(BpfError::NotPermitted) => return None,
        loaded => loaded.expect("loaded"),
    };
    let answer = |packet: &Vec<u8>| {
        let before = program.ring().counters();
        program.loaded.run(program.name, packet, 1).expect("it runs");
        let after = program.ring().counters();
        let (stored, filtered) = (after.head - before.head, after.filtered - before.filtered);
        assert_eq!(stored + filtered, 1);
        stored == 1
    };
    Some(packets.iter().map(answer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tests::OLD;
    use crate::socket::PacketSocket;
    use std::process::Command;
    use std::sync::atomic::Ordering;
    use tailtap_analysis::capture::Content;
    use tailtap_analysis::key::KeyKind;
    use tailtap_wire::ethernet::LEN as ETHERNET_LEN;
    use tailtap_wire::link::Link;

    /// Bytes as hexadecimal digits, spaces apart.
    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| std::str::from_utf8(pair).expect("digits").to_owned();
        let pairs = digits.chunks(2).map(byte);
        pairs.map(|pair| u8::from_str_radix(&pair, 16).expect("hexadecimal")).collect()
    }

    /// Both sides choose the same packets only if they compute the same.
    #[test]
    fn the_kernel_has_the_hash_for_samples_that_the_writer_has() {
        let mac = "020000000001 020000000002";
        let udp = "1001 0035 0010 0000 0102030405060708";
        let tcp = "1001 0050 01020304 05060708 8018 0200 0000 0000 0101080a 11111111 22222222 \
                   6162636465";
        let v4 = |protocol: &str, len: usize, rest: &str| {
            format!("4500 {:04x} 1234 4000 40 {protocol} 0000 0a000001 0a000002 {rest}", 20 + len)
        };
        let v6 = |next: &str, len: usize, rest: &str| {
            format!(
                "60000000 {len:04x} {next} 40 20010db8000000000000000000000001 \
                 20010db8000000000000000000000002 {rest}"
            )
        };
        let long: String = (0..200).map(|byte| format!("{byte:02x}")).collect();
        let plain = v4("11", 16, udp);
        let inner = format!("{mac} 0800 {plain}");
        let behind_udp = |port: &str, header: &str, rest: &str| {
            let rest = format!("2000 {port} 0000 0000 {header} {rest}");
            let len = bytes(&rest).len();
            format!("{mac} 0800 {}", v4("11", len, &rest))
        };
        let frames = [
            format!("{mac} 0800 {plain} 000000000000"),
            format!("{mac} 0800 {}", v4("06", 37, tcp)),
            format!("{mac} 0800 {}", v4("11", 208, &format!("1001 0035 00d0 0000 {long}"))),
            format!("{mac} 0800 4600 0028 1234 4000 40 11 0000 0a000001 0a000002 01010100 {udp}"),
            format!("{mac} 0800 4500 0024 1234 2003 40 11 0000 0a000001 0a000002 {udp}"),
            format!("{mac} 0800 {}", v4("01", 12, "0800 0000 0007 0009 61626364")),
            format!("{mac} 0800 {}", v4("84", 16, "1001 0035 01020304 00000000 00000000")),
            format!("{mac} 0800 {}", v4("88", 16, udp)),
            format!("{mac} 0800 {}", v4("32", 16, udp)),
            format!("{mac} 8100 0005 0800 {plain}"),
            format!("{mac} 88a8 0005 8100 0006 0800 {plain}"),
            format!("{mac} 8847 00010009 00011109 {plain}"),
            format!("{mac} 8847 00011109 00000000 {inner}"),
            format!("{mac} 8864 1100 0003 0026 0021 {plain}"),
            format!("{mac} 86dd {}", v6("11", 16, udp)),
            format!("{mac} 86dd {}", v6("00", 24, &format!("11 00 000000000000 {udp}"))),
            format!("{mac} 86dd {}", v6("2c", 24, &format!("11 00 0001 01020304 {udp}"))),
            format!("{mac} 86dd {}", v6("2c", 24, &format!("11 00 0009 01020304 {udp}"))),
            format!("{mac} 86dd {}", v6("06", 37, tcp)),
            format!("{mac} 86dd {}", v6("3a", 12, "8000 0000 0007 0009 61626364")),
            format!("{mac} 0800 {}", v4("04", 36, &plain)),
            format!("{mac} 86dd {}", v6("04", 36, &plain)),
            format!("{mac} 0800 {}", v4("2f", 40, &format!("0000 0800 {plain}"))),
            format!("{mac} 0800 {}", v4("2f", 58, &format!("2000 6558 00000007 {inner}"))),
            format!(
                "{mac} 0800 {}",
                v4("2f", 66, &format!("1000 88be 00000007 0000000000000000 {inner}"))
            ),
            format!("{mac} 0800 {}", v4("33", 60, &format!("04 04 {} {plain}", "00".repeat(22)))),
            behind_udp("12b5", "08000000 00002a00", &inner),
            behind_udp("17c1", "0100 6558 00002a00 01020304", &inner),
            behind_udp("0868", "30ff 0028 00000005", &plain),
            behind_udp("0868", "36ff 0030 00000005 00010085 01000900", &plain),
            behind_udp("12b5", "00000000 00002a00", &inner),
            format!(
                "{mac} 0806 0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002 0000"
            ),
            format!("{mac} 88cc 0207 0402"),
        ];
        for key in ["packet", "packet-nat", "packet-flow", "packet-payload", "packet-id", "42:4:le"]
        {
            let key: KeyKind = key.parse().expect("a key");
            let sampling = Sampling::of(key).expect("sampled");
            let id = if let KeyKind::Field(field) = key { Some(field) } else { None };
            let interest = Interest { filter: None, sampling: Some(sampling), id };
            for ethernet in [true, false] {
                if !ethernet && id.is_some() {
                    continue; // it is a place of frames
                }
                let keep = Keep::Bytes(256);
                let loaded =
                    Program::load(Verdict::Drop, keep, 16, Moment::Now, interest, ethernet);
                let program = match loaded {
                    Err(BpfError::NotPermitted) => {
                        eprintln!("skipped: eBPF needs root");
                        return;
                    }
                    loaded => loaded.expect("loaded"),
                };
                for text in &frames {
                    let frame = bytes(text);
                    let frame = if ethernet { &frame[..] } else { &frame[ETHERNET_LEN..] };
                    if frame.len() < ETHERNET_LEN {
                        continue; // the kernel runs no program on less
                    }
                    let link = if ethernet { Some(Link::Ethernet) } else { Link::of_ip(frame) };
                    let wire_len = frame.len() as u32;
                    let ours = link.map_or(0, |link| {
                        sampling.hash(key, Content::Frame { bytes: frame, wire_len, link })
                    });
                    // A sample that this one is in: without any, no hash is computed.
                    program.ring().set_bits(!ours);
                    program.loaded.run(program.name, frame, 1).expect("it runs");
                    let mut found = None;
                    program
                        .ring()
                        .drain(1, |_, rest| found = Some(rest[0].load(Ordering::Relaxed)));
                    let kernel = found.expect("in the sample") >> 33;
                    assert_eq!(kernel, ours & 0x7fff_ffff, "{key} of {text}, {link:?}");
                }
            }
        }
    }

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
        let places = [Place::Tcx(Hook::Ingress), Place::Filter(Hook::Ingress)];
        for (place, old) in places.into_iter().flat_map(|place| [(place, false), (place, true)]) {
            OLD.set(old);
            let load = |verdict, moment| {
                Program::load(verdict, Keep::Bytes(64), 16, moment, Interest::default(), true)
            };
            let program = load(Verdict::Drop, Moment::Now).expect("loaded");
            let attachment = program.loaded.attach(TAP_PROGRAM, &receiver, place);
            let attachment = attachment.expect("attached");
            // The one that comes later sees packets first, and lets them pass.
            let early = load(Verdict::Pass, Moment::Receipt).expect("loaded");
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
            // Of a program of others that came later still.
            let other = early.loaded.attach(NOTHING, &receiver, place).expect("attached");
            let told = program.behind(&receiver, Hook::Ingress);
            assert_eq!(told.is_empty(), place == Place::Filter(Hook::Ingress));
            assert!(told.iter().all(|name| name == NOTHING), "{told:?}");
            drop((other, first, attachment));
            assert!(!run("tc qdisc show dev tt-b").contains("clsact"));
            let names = programs_on(&receiver, Hook::Ingress).expect("asked");
            assert_eq!(names.unwrap_or_default(), Vec::<String>::new());
        }
    }
}
