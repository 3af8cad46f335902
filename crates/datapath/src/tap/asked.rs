//! What is asked of taps: links and points, what is written, and what that means for the programs.

use std::path::PathBuf;

use tailtap_analysis::key::{Keeps, KeyKind, Packet, Sampling};
use tailtap_analysis::marks::MOST_LEVEL;
use tailtap_analysis::stamps::Clock;

use crate::bpf::{Classic, Hook};

use super::file::{Format, MOST_PAYLOAD, Marking};
use super::live::Prepared;
use super::program::Keep;
use super::writer::Rotation;
use super::{TapError, TapKey};

/// The largest ring: 2^26 records, 1 GiB of stamps.
pub(super) const MAX_RECORDS: u64 = 1 << 26;
/// The most bytes of a packet: all of any.
pub const MAX_SNAP: u32 = 65_535;

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
    pub(super) fn forward(&self) -> &Forward {
        match self {
            Self::Arriving(forward) | Self::HandedOver(forward) | Self::Leaving(forward) => forward,
            Self::Received => &Forward::Pass,
        }
    }

    /// Where the program sees them.
    pub(super) fn hook(&self) -> Hook {
        match self {
            Self::Arriving(_) | Self::HandedOver(_) | Self::Received => Hook::Ingress,
            Self::Leaving(_) => Hook::Egress,
        }
    }

    /// Whether they are stamped when they were handed over to the interface.
    pub(super) fn stamps_arrival(&self) -> bool {
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
    /// Of marks, what their hashes are of.
    pub hash: Option<KeyKind>,
    /// Whether its packets were through the device, if that is said.
    pub behind: Option<bool>,
}

impl Link {
    /// Whether its packets were through the device: unless it is said, those that leave.
    pub(super) fn is_behind(&self) -> bool {
        self.behind.unwrap_or(matches!(self.point, Point::Leaving(_)))
    }
}

/// The files that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Time and id of each packet with an id.
    Stamps,
    /// The first bytes of every packet, at most so many.
    Pcap(u32),
    /// Time, hash and length of every packet; so many of its first bytes are looked at.
    Marks(u32),
}

impl Kind {
    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stamps => "stamps",
            Self::Pcap(_) => "pcap",
            Self::Marks(_) => "marks",
        }
    }
}

/// What to tap and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The links; at least one.
    pub links: Vec<Link>,
    /// What to write of each packet.
    pub kind: Kind,
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
    /// Which packets are of interest: libpcap's program for frames of Ethernet.
    pub filter: Option<Vec<Classic>>,
    /// The same for packets that begin with IP, if there can be one.
    pub filter_of_ip: Option<Vec<Classic>>,
    /// One packet of `2^level` is stamped.
    pub level: u8,
    /// So much of one core's time the taps may take; they take thinner samples rather than more.
    pub budget: Option<f64>,
    /// How often it is told what was counted and measured.
    pub tell_ns: Option<u64>,
}

/// The slots of each link's ring, of which there are `usual` unless the options say otherwise.
pub(super) fn slots(options: &Options, usual: u64) -> Result<Vec<u64>, TapError> {
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
pub(super) fn keep(options: &Options) -> Result<Keep, TapError> {
    if options.level > MOST_LEVEL {
        return Err(TapError::Sample { of: 1 << options.level.min(63) });
    }
    match (options.kind, options.key) {
        (Kind::Stamps, TapKey::Moonsniff) => Ok(Keep::Stamps),
        (Kind::Stamps, TapKey::Field(field)) => Ok(Keep::Field(field)),
        (Kind::Pcap(snap) | Kind::Marks(snap), _) if !(1..=MAX_SNAP).contains(&snap) => {
            Err(TapError::Snap { snap })
        }
        (Kind::Pcap(_) | Kind::Marks(_), TapKey::Field(_)) => Err(TapError::KeyOfPackets),
        (Kind::Pcap(snap) | Kind::Marks(snap), TapKey::Moonsniff) => Ok(Keep::Bytes(snap)),
    }
}

/// How samples of a link's packets are taken, if they are.
pub(super) fn sampling(options: &Options, link: &Link) -> Result<Option<Sampling>, TapError> {
    let key = match (options.kind, options.key) {
        (Kind::Marks(_), _) => match link.hash {
            Some(key) if key.fits_marks() => key,
            Some(key) => return Err(TapError::NoMarks { key }),
            None => return Err(TapError::NoHash { link: link.name.clone() }),
        },
        (Kind::Stamps, TapKey::Moonsniff) => KeyKind::Moonsniff,
        (Kind::Stamps, TapKey::Field(field)) => KeyKind::Field(field),
        // By what nearly all devices leave.
        (Kind::Pcap(_), _) => KeyKind::Packet(Packet::new(Keeps::Payload)),
    };
    if options.level == 0 && options.budget.is_none() {
        return Ok(None);
    }
    if options.budget.is_some() && !matches!(options.kind, Kind::Marks(_)) {
        return Err(TapError::Budget);
    }
    Sampling::of(key).map(Some).ok_or(TapError::NoSample { key })
}

/// What is written of a link.
pub(super) fn format(
    options: &Options,
    prepared: &Prepared<'_>,
    sampling: Option<Sampling>,
) -> Format {
    let (link, ethernet) = (prepared.link, prepared.has_ethernet());
    match (options.kind, link.hash) {
        (Kind::Stamps, _) => Format::Stamps,
        (Kind::Marks(snap), Some(key)) => {
            let key = match key {
                KeyKind::Packet(Packet { keeps, .. }) => {
                    KeyKind::Packet(Packet { keeps, most: MOST_PAYLOAD })
                }
                key => key,
            };
            let left = matches!(link.point, Point::Leaving(_));
            Format::Marks(Marking { key, snap, sampling, left, ethernet })
        }
        (Kind::Pcap(snap) | Kind::Marks(snap), _) => Format::Pcap { snap, ethernet },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::tap;

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
            hash: None,
            behind: None,
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
        let error = refused(Options { key, kind: Kind::Pcap(64), ..options() });
        assert!(matches!(error, TapError::KeyOfPackets), "{error}");
        for snap in [0, MAX_SNAP + 1] {
            for kind in [Kind::Pcap(snap), Kind::Marks(snap)] {
                let error = refused(Options { kind, ..options() });
                assert!(matches!(error, TapError::Snap { .. }), "{error}");
            }
        }
    }

    #[test]
    fn samples_and_budgets_that_cannot_be_kept_are_refused() {
        let marks = |hash: Option<&str>| Options {
            kind: Kind::Marks(256),
            links: vec![Link {
                name: "a".into(),
                namespace: None,
                interface: "a".into(),
                point: Point::Arriving(Forward::Pass),
                path: PathBuf::new(),
                records: None,
                hash: hash.map(|key| key.parse().expect("a key")),
                behind: None,
            }],
            ..options()
        };
        let error = refused(marks(None));
        assert!(matches!(error, TapError::NoHash { .. }), "{error}");
        for key in ["signature", "packet-stream"] {
            let error = refused(marks(Some(key)));
            assert!(matches!(error, TapError::NoMarks { .. }), "{error}");
        }
        let sampled = Options { level: 4, ..marks(Some("udp.payload+0:4:le")) };
        let error = refused(sampled);
        assert!(matches!(error, TapError::NoSample { .. }), "{error}");
        let error = refused(Options { level: MOST_LEVEL + 1, ..marks(Some("packet")) });
        assert!(matches!(error, TapError::Sample { of: 131_072 }), "{error}");
        let links = marks(None).links;
        let error = refused(Options { budget: Some(0.02), links, ..options() });
        assert!(matches!(error, TapError::Budget), "{error}");
    }

    fn refused(options: Options) -> TapError {
        tap(&options, Box::new(|| Ok(())), &mut |_| Ok(())).expect_err("refused")
    }

    fn options() -> Options {
        Options {
            links: Vec::new(),
            kind: Kind::Stamps,
            key: TapKey::Moonsniff,
            clock: Clock::Monotonic,
            rotation: Rotation::default(),
            records: None,
            flush_ns: None,
            duration_ns: None,
            count: None,
            cpu: None,
            measure_cost: false,
            filter: None,
            filter_of_ip: None,
            level: 0,
            budget: None,
            tell_ns: None,
        }
    }
}
