//! Requests and their answers in one capture or two: how long each request waited.
//!
//! The packets come in time order ([`in_order`]). Each [`Protocol`] tells the [books](book) of its kinds of
//! the requests and answers in a packet. A book knows which request an answer is of, and gathers the
//! statistics. Memory is bounded, whatever the captures hold.

mod before;
mod book;
mod connection;
mod dns;
mod echo;
mod field;
mod gtp;
mod handshake;
mod http;
mod http2;
mod in_order;
mod line;
mod named;
mod ntp;
mod packet;
mod places;
mod ptp;
mod quic;
mod streams;
mod tls;

use serde::Serialize;
use tailtap_wire::{tcp, udp};

use crate::capture::CaptureError;
use crate::clocks::Excess;
use crate::evaluate::{self, Changes, EvaluateError, Evaluation, Side, Warning};
use crate::key::KeyKind;
use crate::series::Series;
use crate::source::{SetAside, Source};
use crate::stream::{Findings, Intake};
use book::{Book, Books, ByKey};
use field::Ids;
use in_order::InOrder;
use packet::{Packet, Part};
use places::{Places, Recent};

/// What a user may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYN to SYN with ACK.
    TcpHandshake,
    /// ClientHello to ServerHello.
    TlsServerHello,
    /// ClientHello to the end of the server's first flight.
    TlsFlight,
    /// ClientHello to the server's first application data.
    TlsFirstData,
    /// Query to response, by UDP or TCP.
    Dns,
    /// Echo request to echo reply, of ICMP or ICMPv6.
    IcmpEcho,
    /// The client's Initial to the server's first packet.
    QuicInitial,
    /// Request to response of HTTP/1.1, or of HTTP/2 without encryption.
    Http,
    /// Client to server packet of NTP.
    Ntp,
    /// Delay_Req to Delay_Resp of PTP.
    PtpDelay,
    /// Echo request to response of GTP-U.
    GtpUEcho,
    /// An id at a place that the user names.
    Field,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::TcpHandshake,
        Self::TlsServerHello,
        Self::TlsFlight,
        Self::TlsFirstData,
        Self::Dns,
        Self::IcmpEcho,
        Self::QuicInitial,
        Self::Http,
        Self::Ntp,
        Self::PtpDelay,
        Self::GtpUEcho,
        Self::Field,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpHandshake => "tcp-handshake",
            Self::TlsServerHello => "tls-server-hello",
            Self::TlsFlight => "tls-flight",
            Self::TlsFirstData => "tls-first-data",
            Self::Dns => "dns",
            Self::IcmpEcho => "icmp-echo",
            Self::QuicInitial => "quic-initial",
            Self::Http => "http",
            Self::Ntp => "ntp",
            Self::PtpDelay => "ptp-delay",
            Self::GtpUEcho => "gtp-u-echo",
            Self::Field => "field",
        }
    }

    /// Whether a request with the key of one that was answered is another request.
    fn uses_keys_again(self) -> bool {
        !matches!(
            self,
            Self::TcpHandshake
                | Self::TlsServerHello
                | Self::TlsFlight
                | Self::TlsFirstData
                | Self::Http
        )
    }

    /// Whether a request or an answer may be known only when later packets are here: it is in a stream.
    fn is_late(self) -> bool {
        matches!(
            self,
            Self::TlsServerHello | Self::TlsFlight | Self::TlsFirstData | Self::Dns | Self::Http
        )
    }
}

/// How transactions are evaluated.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// As packets are matched. An answer must come within the window. Requests within the time to trim
    /// of the first packet are left out. A key that is a [field](KeyKind::Field) is of the kind `field`.
    pub matching: evaluate::Options,
    /// Whether the wait counts from the last time that a request was sent, and not from the first.
    pub from_last: bool,
}

/// What became of requests and answers. Every request is in one of `answered`, `unanswered`,
/// `open_at_end`, `refused`, `given_up` and `trimmed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests; those sent again count once.
    pub requests: u64,
    /// Requests that the statistics are made of.
    pub answered: u64,
    /// Requests without an answer within the window.
    pub unanswered: u64,
    /// Requests without an answer whose window had not passed when the capture ended.
    pub open_at_end: u64,
    /// Requests that were refused or withdrawn: connections by RST, TLS by an alert, streams of HTTP/2 by
    /// RST_STREAM.
    pub refused: u64,
    /// Requests of which nobody can tell which answer is theirs, or whether they had one.
    pub given_up: u64,
    /// Requests left out by trimming.
    pub trimmed: u64,
    /// How often requests were sent again.
    pub retransmitted: u64,
    /// Further answers of a request.
    pub repeated_answers: u64,
    /// Answers without a request in the window.
    pub unmatched_answers: u64,
    /// Answers that shared a packet with the one before.
    pub coalesced: u64,
    /// Answers of a request that was sent before one that had its answer already.
    pub reordered: u64,
    /// Connections of TCP that the client did not complete.
    pub half_open: u64,
    /// Packets that were cut where a message should be.
    pub truncated: u64,
    /// Requests and answers whose headers were cut: they count by the packet that was cut.
    pub cut: u64,
}

/// The transactions of one kind.
#[derive(Debug)]
pub struct Found {
    /// The kind.
    pub kind: Kind,
    /// Its name, with the place where there are several: `dns`, `dns@interface-2`.
    pub name: String,
    /// What became of them.
    pub counts: Counts,
    /// The waits of those that were answered, as those of packets: requests before the device, answers
    /// behind it. Without any, its distribution is empty.
    pub evaluation: Evaluation,
}

/// All transactions of captures.
#[derive(Debug)]
pub struct Transactions {
    /// Each kind of which there was a request or an answer.
    pub kinds: Vec<Found>,
    /// What a reader must know before believing the numbers, of the captures as a whole.
    pub warnings: Vec<Warning>,
}

/// Something that tells the requests and answers of one protocol.
trait Protocol {
    /// Looks at the next packet: whether it is of this protocol.
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool;

    /// The captures have ended.
    fn finish(&mut self, _: &mut Books) {}
}

/// All protocols.
struct Protocols {
    handshake: handshake::Handshake,
    streams: streams::Streams,
    quic: quic::Quic,
    key: Option<KeyKind>,
    askers: ByKey<u32>,
}

impl Protocols {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) {
        match packet.inner.map(|inner| inner.protocol) {
            Some(tcp::PROTOCOL) => {
                self.handshake.see(packet, books);
                self.streams.see(packet, books)
            }
            Some(udp::PROTOCOL) => {
                dns::Dns.see(packet, books)
                    || self.quic.see(packet, books)
                    || ntp::Ntp.see(packet, books)
                    || ptp::Ptp.see(packet, books)
                    || gtp::GtpU.see(packet, books)
            }
            Some(_) => echo::Echo.see(packet, books),
            None => ptp::Ptp.see(packet, books),
        };
        match self.key {
            Some(KeyKind::Field(place)) => {
                Ids { asked: place, answered: place, askers: None }.see(packet, books)
            }
            Some(KeyKind::Fields([asked, answered])) => {
                Ids { asked, answered, askers: Some(&mut self.askers) }.see(packet, books)
            }
            Some(KeyKind::Moonsniff) => {
                let [asked, answered] = [crate::key::Moonsniff; 2];
                Ids { asked, answered, askers: None }.see(packet, books)
            }
            _ => false,
        };
    }
}

/// Evaluates the requests and answers of `first`, or the requests of `first` and the answers of
/// `second`. `cancelled` is asked now and then whether to give up.
pub fn transactions(
    first: impl Into<Source>,
    second: Option<Source>,
    options: &Options,
    cancelled: &dyn Fn() -> bool,
) -> Result<Transactions, EvaluateError> {
    let first = first.into();
    let mut walk = Walk::open(first.clone(), second.clone(), options, false)?;
    walk.run(u64::MAX, cancelled)?;
    let late = walk.sources.iter().any(|source| source.late > 0);
    if late && walk.sources.iter().map(|source| source.read_bytes).sum::<u64>() <= MOST_SORTED {
        // Answers may stand behind all requests, as where one file was appended to another.
        walk = Walk::open(first, second, options, true)?;
        walk.run(u64::MAX, cancelled)?;
    }
    Ok(walk.conclude(options))
}

/// Whether there are answered requests among the first packets of captures, so many at most of each.
pub fn has_transactions(
    first: impl Into<Source>,
    second: Option<Source>,
    options: &Options,
    packets: u64,
) -> Result<bool, EvaluateError> {
    let mut walk = Walk::open(first.into(), second, options, false)?;
    let captures = walk.sources.len() as u64;
    walk.run(packets.saturating_mul(captures), &|| false)?;
    let mut answered = 0;
    for (_, book) in walk.each.iter_mut().flat_map(|place| place.books.iter_mut()) {
        book.finish(walk.last_ns);
        answered += book.counts.answered;
    }
    Ok(answered > 0)
}

/// Captures on their way through the protocols.
struct Walk {
    sources: Vec<InOrder>,
    options: Options,
    begin_ns: u64,
    places: Places,
    each: Vec<Place>,
    /// Packets at more places than are told apart.
    elsewhere: u64,
    last_ns: u64,
    packets: u64,
}

/// What is found at a place.
struct Place {
    number: u64,
    protocols: Protocols,
    books: Books,
    recent: Recent,
}

impl Place {
    fn new(number: u64, options: &Options, begin_ns: u64) -> Self {
        let mut books = Books::new(options);
        let matching = &options.matching;
        if matching.trim_ns > 0 {
            books.iter_mut().for_each(|(_, book)| book.trim(begin_ns + matching.trim_ns));
        }
        let protocols = Protocols {
            handshake: handshake::Handshake::new(matching.window_ns),
            streams: streams::Streams::default(),
            quic: quic::Quic::default(),
            key: matching.key,
            askers: ByKey::default(),
        };
        Self { number, protocols, books, recent: Recent::default() }
    }
}

/// Captures whose packets have so many bytes are sorted in memory, where that is needed.
const MOST_SORTED: u64 = 1 << 28;

/// So many places are told apart.
const MOST_PLACES: usize = 256;

/// So many packets are looked at before somebody may ask to stop.
const AT_ONCE: u64 = 1 << 12;

impl Walk {
    fn open(
        first: Source,
        second: Option<Source>,
        options: &Options,
        sorted: bool,
    ) -> Result<Self, EvaluateError> {
        let matching = &options.matching;
        let parts =
            if second.is_some() { [Part::Requests, Part::Answers] } else { [Part::Both; 2] };
        let formats = [matching.ingress_format, matching.egress_format];
        let sides = [Some(first), second].into_iter().flatten().enumerate();
        let mut places = Places::default();
        let sources = sides
            .map(|(side, source)| {
                let source = source.told(formats[side], matching.nanoseconds[side]);
                let (found, copied) = Places::survey(&source, parts[side])?;
                places = found;
                let mut opened = InOrder::open(&source, parts[side], sorted)?;
                opened.copied = copied;
                Ok(opened)
            })
            .collect::<Result<Vec<_>, CaptureError>>()?;
        for source in &sources {
            if !source.frames {
                return Err(EvaluateError::NoKey {
                    path: source.feed.path().to_owned(),
                    why: format!(
                        "{} files hold packet ids, not frames, and so no requests",
                        source.feed.format().name()
                    ),
                });
            }
        }
        let begin_ns = sources.iter().filter_map(|source| source.first_ns).min().unwrap_or(0);
        let (each, options) = (Vec::new(), options.clone());
        Ok(Self { sources, options, begin_ns, places, each, elsewhere: 0, last_ns: 0, packets: 0 })
    }

    /// Looks at packets in time order, so many at most; of equal times, at those of the first capture
    /// first.
    fn run(&mut self, most: u64, cancelled: &dyn Fn() -> bool) -> Result<(), EvaluateError> {
        while self.packets < most {
            if self.packets.is_multiple_of(AT_ONCE) && cancelled() {
                return Err(EvaluateError::Cancelled);
            }
            let next = self.sources.iter_mut().filter(|source| source.next_ns().is_some());
            let Some(source) = next.min_by_key(|source| source.next_ns()) else { break };
            if let Some(packet) = source.peek(self.packets) {
                self.last_ns = packet.time_ns;
                let number = self.places.of(&packet);
                let known = self.each.iter().position(|place| place.number == number);
                let at = known.unwrap_or(self.each.len());
                if at < MOST_PLACES {
                    if known.is_none() {
                        self.each.push(Place::new(number, &self.options, self.begin_ns));
                    }
                    let place = &mut self.each[at];
                    let is_copy = source.copied && place.recent.is_copy(&packet);
                    if !is_copy {
                        place.protocols.see(&packet, &mut place.books);
                    }
                    source.copies += u64::from(is_copy);
                } else {
                    self.elsewhere += 1;
                }
            }
            self.packets += 1;
            source.advance()?;
        }
        for Place { protocols, books, .. } in &mut self.each {
            protocols.handshake.finish(books);
            protocols.streams.finish(books);
        }
        Ok(())
    }

    fn conclude(mut self, options: &Options) -> Transactions {
        let notes: Vec<Side> = self.sources.iter().map(side).collect();
        let (before, after) = (&notes[0], notes.last().unwrap_or(&notes[0]));
        let mut warnings = evaluate::capture_warnings(before, after);
        let mut seen = std::collections::HashSet::new();
        warnings.retain(|warning| seen.insert(warning.message.clone()));
        for source in self.sources.iter().filter(|source| source.late > 0) {
            let path = source.feed.path().display();
            let message = format!(
                "{path}: {} packets stand so far behind later ones that they were left out: sort the \
                 capture by time (reordercap)",
                source.late
            );
            warnings.push(Warning { code: "timestamps-backwards", message });
        }
        if self.each.len() > 1 {
            let path = self.sources[0].feed.path().display();
            let (count, left) = (self.each.len(), self.elsewhere);
            let message = format!(
                "{path}: packets were captured at {count} places, and requests are matched with \
                 answers at the same place"
            );
            let more = format!("; {left} packets at further places were left out");
            let message = message + if left > 0 { &more } else { "" };
            warnings.push(Warning { code: "several-places", message });
        }
        let mut kinds = Vec::new();
        for Place { number, books, .. } in &mut self.each {
            let place = self.places.name(*number);
            for (kind, book) in books.iter_mut() {
                book.finish(self.last_ns);
                if book.counts.requests + book.counts.unmatched_answers > 0 {
                    let at = place.as_ref().map_or(String::new(), |place| format!("@{place}"));
                    let name = format!("{}{at}", kind.name());
                    kinds.push(found(kind, name, book, before, after, &warnings, options));
                }
            }
        }
        kinds.sort_by_key(|found| found.kind as usize);
        Transactions { kinds, warnings }
    }
}

/// What is known of a capture without any packet's key.
fn side(source: &InOrder) -> Side {
    let intake = Intake {
        backwards: source.backwards,
        largest_step_ns: source.largest_step_ns,
        ..Intake::default()
    };
    Side::of(
        Findings {
            notes: source.feed.notes(),
            files: source.feed.files(),
            set_aside: SetAside { copies: source.copies, ..source.feed.set_aside() },
            intake,
            series: Series::default(),
        },
        source.feed.path(),
        source.feed.file(),
        source.feed.format(),
    )
}

/// The evaluation of a kind at a place.
fn found(
    kind: Kind,
    name: String,
    book: &mut Book,
    before: &Side,
    after: &Side,
    warnings: &[Warning],
    options: &Options,
) -> Found {
    let counts = book.counts;
    let of = |side: &Side, series: &Series, tick, short| {
        let mut side = side.clone();
        // A rate is one of requests or answers, not of whatever else was captured.
        side.notes.packets = series.packets;
        side.intake.keyed = series.packets;
        side.intake.first_ns = series.first_ns();
        side.intake.last_ns = series.last_ns();
        side.intake.tick = tick;
        side.intake.short = short;
        side.series = series.clone();
        side
    };
    let ingress = of(before, &book.asked, book.asked_tick, counts.truncated);
    let egress = of(after, &book.answers, book.answers_tick, 0);
    let mut warnings = warnings.to_vec();
    warnings.extend(kind_warnings(&name, &counts, options));
    let latencies = std::mem::take(&mut book.latencies);
    let exceedances =
        std::mem::replace(&mut book.exceedances, crate::exceedances::Exceedances::new(None));
    let (floor_ns, exceedances) = exceedances.into_largest(&latencies);
    let evaluation = Evaluation {
        keys: [kind.name().to_owned(), kind.name().to_owned()],
        key_reason: None,
        counts: evaluate::Counts {
            ingress: counts.requests,
            egress: counts.answered + counts.repeated_answers + counts.unmatched_answers,
            matched: counts.answered,
            lost: counts.unanswered,
            unmatched_egress: counts.unmatched_answers,
            duplicate_egress: counts.repeated_answers,
            reordered: counts.reordered,
            trimmed_ingress: counts.trimmed,
            unkeyed_ingress: counts.truncated,
            unread_ingress: before.notes.unread.total(),
            unread_egress: after.notes.unread.total(),
            ..evaluate::Counts::default()
        },
        latencies,
        worst: book.take_worst(),
        floor_ns,
        exceedances,
        blocks: std::mem::take(&mut book.blocks),
        ingress,
        egress,
        warnings,
        excess: Excess::default(),
        changes: Changes::default(),
        lost: Vec::new(),
        arrivals: None,
    };
    Found { kind, name, counts, evaluation }
}

fn kind_warnings(name: &str, counts: &Counts, options: &Options) -> Vec<Warning> {
    let seconds = options.matching.window_ns as f64 / 1e9;
    let mut warnings = Vec::new();
    let mut warn = |code, message| warnings.push(Warning { code, message });
    if counts.open_at_end > 0 {
        warn(
            "open-requests",
            format!(
                "{name}: {} requests were sent less than --window ({seconds} s) before the capture \
                 ended and had no answer yet: they count as neither answered nor unanswered",
                counts.open_at_end
            ),
        );
    }
    if counts.given_up > 0 {
        warn(
            "requests-given-up",
            format!(
                "{name}: of {} requests nobody can tell the answer, as packets of their connections \
                 are missing in the capture or too many waited at once: they count as neither \
                 answered nor unanswered",
                counts.given_up
            ),
        );
    }
    if counts.truncated > 0 {
        let message = format!("{name}: the snap length cut {} messages off", counts.truncated);
        warn("snap-length", message);
    }
    if counts.cut > 0 {
        let message = format!(
            "{name}: the snap length cut the headers of {} requests and answers: they count by the \
             packet that was cut",
            counts.cut
        );
        warn("snap-length", message);
    }
    warnings
}
