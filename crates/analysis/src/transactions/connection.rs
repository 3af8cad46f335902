//! A connection of TCP: the bytes of both ends in order, and what is spoken.
//!
//! Segments that come early are held until those before them come, or until the other end acknowledges
//! what is missing: then the capture has a gap. What was held behind it keeps the time at which it came.
//! Memory is bounded: so many bytes of an end are held, and of a connection that speaks nothing of interest
//! nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use super::Kind;
use super::before;
use super::book::Books;
use super::http::Http;
use super::http2::Http2;
use super::line::{Asked, Line, Over, Shown};
use super::named::DnsStream;
use super::packet::{Ends, Packet};
use super::tls::Tls;

/// So many bytes of an end's segments are held, and so many segments.
const MOST_HELD: usize = 1 << 18;
const MOST_SEGMENTS: usize = 256;
/// What is spoken shows in no more bytes than this.
const MOST_START: usize = 1 << 13;

/// Bytes of an end, and how many behind them are missing.
pub(super) struct Segment<'a> {
    pub time_ns: u64,
    pub number: u64,
    pub acknowledged: Option<u32>,
    pub bytes: Cow<'a, [u8]>,
    pub missing: usize,
    /// Whether packets are missing, and not the ends of packets.
    pub dropped: bool,
}

impl Segment<'_> {
    fn len(&self) -> usize {
        self.bytes.len() + self.missing
    }

    /// Leaves out bytes that are known.
    pub fn skip(&mut self, known: usize) {
        let whole = self.len().saturating_sub(known);
        let skipped = known.min(self.bytes.len());
        match &mut self.bytes {
            Cow::Borrowed(bytes) => *bytes = &bytes[skipped..],
            Cow::Owned(bytes) => drop(bytes.drain(..skipped)),
        }
        self.missing = whole - self.bytes.len();
    }
}

/// The packet at hand, and the next bytes of both ends before it.
pub(super) struct Now<'a, 'b> {
    pub packet: &'a Packet<'b>,
    pub before: [Option<u32>; 2],
}

/// What an end has said so far.
#[derive(Default)]
pub(super) struct Half {
    /// The number of the first byte, where its SYN was seen.
    pub begin: Option<u32>,
    /// The number of the next byte.
    pub next: Option<u32>,
    /// The number behind the last byte that was captured.
    captured: Option<u32>,
    /// The number up to which the other end has acknowledged.
    pub acknowledged: Option<u32>,
    /// The number of the other end's next byte when it did so.
    pub told_at: Option<u32>,
    /// The number behind the last byte, once it is known.
    pub end: Option<u32>,
    /// The number up to which the last segment reached by its header of IP, where that is beyond the frame.
    pub claimed: Option<u32>,
    /// When the bytes before the next one were here.
    latest_ns: u64,
    /// Segments that came early, by the numbers of their first bytes.
    held: BTreeMap<u32, Segment<'static>>,
    held_bytes: usize,
    /// The first bytes, while they do not yet show what is spoken.
    start: Vec<u8>,
}

/// What is spoken on a connection.
pub(super) enum Talk {
    Unknown,
    Dns(DnsStream),
    Http(Http),
    Http2(Http2),
    Tls(Tls),
    /// Nothing of interest.
    Other,
}

impl Talk {
    /// What these first bytes ask in; `None` while they do not show it. More may have been cut off.
    fn by(bytes: &[u8], cut: bool) -> Option<Self> {
        let mut more = false;
        for (shown, make) in [
            (Http2::shown(bytes), (|| Self::Http2(Http2::default())) as fn() -> Self),
            (Http2::asks(bytes), || Self::Http2(Http2::joined())),
            (Http::shown(bytes, cut), || Self::Http(Http::default())),
            (Tls::shown(bytes), || Self::Tls(Tls::default())),
            (DnsStream::shown(bytes), || Self::Dns(DnsStream::default())),
        ] {
            match shown {
                Shown::Yes => return Some(make()),
                Shown::More => more = true,
                Shown::No => {}
            }
        }
        (!more || bytes.len() >= MOST_START).then_some(Self::Other)
    }
}

/// A connection.
pub(super) struct Connection {
    /// Both ends, the first half's first.
    ends: Ends,
    /// The place of its first packet among all.
    first: u64,
    pub halves: [Half; 2],
    /// Which half asks, once that is known.
    pub asker: Option<usize>,
    /// Whether its beginning was seen.
    pub whole: bool,
    /// Where what the other end says was known to end, when bytes in front of the first that are known were
    /// missed last, if this one asks.
    missed: [Option<u32>; 2],
    /// Whether a proxy was asked for it by SOCKS.
    tunnel: bool,
    /// Whether encryption was asked for.
    pub greeted: bool,
    pub talk: Talk,
    pub asked: VecDeque<Asked>,
}

impl Connection {
    pub fn new(ends: Ends, first: u64) -> Self {
        Self {
            ends,
            first,
            halves: Default::default(),
            asker: None,
            whole: false,
            missed: [None; 2],
            tunnel: false,
            greeted: false,
            talk: Talk::Unknown,
            asked: VecDeque::new(),
        }
    }

    /// Both ends, the asking one first.
    fn asking(&self) -> Ends {
        if self.asker == Some(1) { self.ends.turned() } else { self.ends }
    }

    /// Takes bytes of an end, in order.
    pub fn take(&mut self, half: usize, turn: &Segment<'_>, now: &Now<'_, '_>, books: &mut Books) {
        let (mut bytes, missing) = (turn.bytes.as_ref(), turn.missing);
        let heard = now.before[1 - half].or(self.halves[1 - half].next);
        // What the other end says up to there does not acknowledge what is missing.
        let captured = self.halves[1 - half].captured;
        let own = &mut self.halves[half];
        let at = own.next.unwrap_or(0).wrapping_add(bytes.len() as u32);
        own.next = Some(at.wrapping_add(missing as u32));
        if !turn.dropped {
            own.captured = own.next;
        }
        own.latest_ns = own.latest_ns.max(turn.time_ns);
        let packet = &Packet { time_ns: own.latest_ns, number: turn.number, ..*now.packet };
        let mut begun;
        if matches!(self.talk, Talk::Unknown) {
            if turn.dropped {
                self.missed[half] = captured.or(self.missed[half]).or(heard);
                self.missed[1 - half].get_or_insert(at);
            }
            if self.asker.is_some_and(|asker| asker != half) {
                return;
            }
            if turn.dropped {
                // The beginning is lost; requests may yet come.
                self.whole = false;
                own.start.clear();
            }
            if bytes.is_empty() {
                return;
            }
            let cut = missing > 0;
            begun = std::mem::take(&mut own.start);
            begun.extend_from_slice(bytes);
            let Some(head) = before::header(&begun).or_else(|| cut.then_some(0)) else {
                own.start = begun;
                return;
            };
            let mut found = Talk::by(&begun[head..], cut);
            if (!self.whole || before::is_hello(bytes) || before::is_socks(&begun))
                && begun.len() > bytes.len()
                && matches!(found, Some(Talk::Other))
            {
                // What came first was the rest of something, or asked whether the end is still there, for
                // encryption, or for a connection.
                begun = bytes.to_vec();
                found = Talk::by(bytes, cut);
            }
            match found {
                None if !cut => {
                    own.start = begun;
                    return;
                }
                // Of a connection whose beginning was not seen, requests may yet come.
                Some(Talk::Other) | None if !self.whole => return,
                found => self.talk = found.unwrap_or(Talk::Other),
            }
            if matches!(self.talk, Talk::Other) {
                self.tunnel = before::is_socks(&begun);
                self.halves.iter_mut().for_each(Half::let_go);
                return;
            }
            self.asker = Some(half);
            self.greeted = matches!(self.talk, Talk::Tls(_));
            if let (Talk::Http(http), Some(number)) = (&mut self.talk, self.missed[half]) {
                http.missed(number);
            }
            if begun.len() > bytes.len() || head > 0 {
                bytes = begun.get(head..).unwrap_or_default();
            }
        }
        let asks = self.asker == Some(half);
        let said = self.halves[half].said().filter(|_| turn.dropped);
        loop {
            let mut line = Line {
                packet,
                books,
                ends: self.asking(),
                asked: &mut self.asked,
                first: self.first,
                at,
                acknowledged: turn.acknowledged,
                heard: now.before[1 - half],
                said,
                dropped: turn.dropped,
            };
            let over = match &mut self.talk {
                Talk::Unknown | Talk::Other => return,
                Talk::Dns(dns) => dns.take(asks, bytes, missing, &mut line),
                Talk::Http(http) => http.take(asks, bytes, missing, &mut line),
                Talk::Http2(http) => http.take(asks, bytes, missing, &mut line),
                Talk::Tls(tls) => tls.take(asks, bytes, missing, &mut line),
            };
            match over {
                Over::GoesOn => {}
                Over::Astray => {
                    for Asked { kinds, key, .. } in self.asked.iter().filter(|_| !asks) {
                        kinds.iter().for_each(|kind| books.of(*kind).doubt(*key));
                    }
                }
                Over::Elsewhere => {
                    self.talk = Talk::Other;
                    self.halves.iter_mut().for_each(Half::let_go);
                    for Asked { kinds, key, .. } in self.asked.drain(..) {
                        kinds.iter().for_each(|kind| books.of(*kind).give_up(key));
                    }
                }
                Over::Anew => {
                    self.talk = Talk::Unknown;
                    self.halves.iter_mut().for_each(|half| half.start.clear());
                }
                Over::Upgraded(rest) => {
                    self.talk = Talk::Http2(Http2::upgraded());
                    bytes = &bytes[bytes.len() - rest..];
                    continue;
                }
            }
            return;
        }
    }

    /// Passes over what is missing of an end before a number, and takes what is held in between: all of
    /// it, or only what is missing in front of held bytes.
    pub fn pass(
        &mut self,
        half: usize,
        until: u32,
        all: bool,
        now: &Now<'_, '_>,
        books: &mut Books,
    ) {
        loop {
            let own = &self.halves[half];
            let Some(next) = own.next else { return };
            let left = until.wrapping_sub(next) as i32;
            let gap = match own.first() {
                _ if left <= 0 => return,
                Some((_, ahead)) if ahead <= left => ahead,
                _ if all => left,
                _ => return,
            };
            // A frame that is shorter than its packet was cut before it was captured.
            let dropped = own.claimed != Some(next.wrapping_add(gap as u32));
            let turn = Segment {
                time_ns: 0,
                number: now.packet.number,
                acknowledged: None,
                bytes: Cow::Borrowed(&[]),
                missing: gap as usize,
                dropped,
            };
            self.take(half, &turn, now, books);
            self.go_on(half, now, books);
        }
    }

    /// Takes all that is held of both ends: nothing more comes.
    pub fn drain(&mut self, now: &Now<'_, '_>, books: &mut Books) {
        for half in [self.asker.unwrap_or(0), 1 - self.asker.unwrap_or(0)] {
            while let Some((from, _)) = self.halves[half].first() {
                self.pass(half, from, false, now, books);
            }
        }
    }

    /// Bytes of an end that were here before.
    pub fn again(
        &mut self,
        half: usize,
        from: u32,
        until: u32,
        packet: &Packet<'_>,
        books: &mut Books,
    ) {
        if self.asker != Some(half) {
            return;
        }
        for asked in &self.asked {
            let before = asked.until.wrapping_sub(from) as i32 <= 0;
            let behind = until.wrapping_sub(asked.from) as i32 <= 0;
            if !before && !behind {
                for kind in asked.kinds {
                    books.of(*kind).again(packet, asked.key);
                }
            }
        }
    }

    /// Of what is asked in order nobody knows whether it was answered before a number.
    pub fn doubt(&mut self, number: u32, books: &mut Books) {
        if let Talk::Http(http) = &mut self.talk {
            http.missed(number);
            self.asked.iter().for_each(|asked| books.of(Kind::Http).doubt(asked.key));
        }
    }

    /// Whether a segment begins a request, of a connection that began with something else.
    pub fn begins_anew(&self, bytes: &[u8]) -> bool {
        let request = || !matches!(Talk::by(bytes, false), None | Some(Talk::Other));
        before::is_hello(bytes) || self.tunnel && request()
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.halves.iter().map(|half| half.held_bytes + half.start.len()).sum()
    }

    /// Takes held segments whose turn it is.
    pub fn go_on(&mut self, half: usize, now: &Now<'_, '_>, books: &mut Books) {
        while let Some(segment) = self.halves[half].ready() {
            if segment.len() > 0 {
                self.take(half, &segment, now, books);
            }
        }
    }
}

impl Half {
    /// Keeps a segment that came early.
    pub fn hold(&mut self, from: u32, segment: Segment<'static>) {
        let there = self.held.get(&from).map_or(0, Segment::len);
        if there < segment.len() {
            self.held_bytes += segment.bytes.len();
            if let Some(old) = self.held.insert(from, segment) {
                self.held_bytes -= old.bytes.len();
            }
        }
    }

    /// Where the other end's bytes ended when it acknowledged these and no more.
    fn said(&self) -> Option<u32> {
        let newest = self.acknowledged?.wrapping_sub(self.next?) as i32 <= 0;
        self.told_at.filter(|_| newest)
    }

    /// Holds nothing any more.
    fn let_go(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
        self.start = Vec::new();
    }

    pub fn is_full(&self) -> bool {
        self.held_bytes > MOST_HELD || self.held.len() > MOST_SEGMENTS
    }

    /// The held segment that comes first, and how far ahead it is.
    pub fn first(&self) -> Option<(u32, i32)> {
        let next = self.next?;
        let ahead = |from: &u32| from.wrapping_sub(next) as i32;
        self.held.keys().map(|from| (*from, ahead(from))).min_by_key(|(_, ahead)| *ahead)
    }

    /// The next segment whose turn it is, without what is known of it.
    fn ready(&mut self) -> Option<Segment<'static>> {
        let (from, ahead) = self.first().filter(|(_, ahead)| *ahead <= 0)?;
        let mut segment = self.held.remove(&from)?;
        self.held_bytes -= segment.bytes.len();
        segment.skip(ahead.unsigned_abs() as usize);
        Some(segment)
    }
}
