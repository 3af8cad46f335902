//! HTTP/2 without encryption (RFC 9113): the headers that open a stream, and those that answer on it.
//!
//! Interim responses (1xx) are no answers. Their status is the first field of a header, and most often
//! plain to see (RFC 7541). Where it stands in a table that nobody kept, what follows on the stream
//! tells: only an interim response is followed by another one. Behind a gap, the next frame that begins
//! a segment is looked for.

use super::Kind;
use super::line::{Line, Over, Shown};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
/// So much of a header shows its status: padding, priority, new sizes of the table, and the field.
const NEEDED: usize = 24;
/// The longest frame, unless an end allows more.
const MOST_FRAME: usize = 1 << 14;
/// So many answers of a connection are remembered until it is sure that they are no interim ones.
const MOST_UNSURE: usize = 1 << 10;
const HTTP: &[Kind] = &[Kind::Http];

/// The key of a stream: another connection of the same ends has streams of the same numbers.
fn key(line: &Line<'_, '_>, stream: u32) -> u64 {
    line.ends.hash(1 << 63 | line.first << 31 | u64::from(stream))
}

/// Both directions of a connection.
#[derive(Default)]
pub(super) struct Http2 {
    halves: [Half; 2],
    /// The latest stream that a client opened.
    latest: u32,
    /// Streams whose answer may be an interim one.
    unsure: Vec<u32>,
}

#[derive(Default)]
struct Half {
    /// What is left of the preface that only clients send; counted up.
    preface: usize,
    head: Vec<u8>,
    frame: Frame,
    /// Bytes of the frame that are to be passed over.
    left: usize,
    /// The first bytes of a header.
    block: Vec<u8>,
    /// When the frame began, and the number of its first byte.
    began_ns: u64,
    began_at: u32,
    /// Where a request began whose header goes on in further frames.
    opening: Option<u32>,
    /// Nobody knows where the next frame begins.
    lost: bool,
}

#[derive(Clone, Copy, Default)]
struct Frame {
    len: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frame {
    fn read(head: &[u8]) -> Option<Self> {
        let head = head.first_chunk::<HEAD>()?;
        Some(Self {
            len: usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]),
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]),
        })
    }

    /// How many bytes stand in front of a header's fields.
    fn skipped(self) -> usize {
        usize::from(self.flags & PADDED != 0) + if self.flags & PRIORITY == 0 { 0 } else { 5 }
    }

    /// Whether a frame that begins here makes sense: its length, flags and stream fit its kind.
    fn makes_sense(self, asks: bool, latest: u32) -> bool {
        let (flags, lengths, on_stream) = match self.kind {
            DATA => (END_STREAM | PADDED, 0..=MOST_FRAME, true),
            HEADERS => (END_STREAM | END_HEADERS | PADDED | PRIORITY, 1..=MOST_FRAME, true),
            2 => (0, 5..=5, true),
            RST_STREAM => (0, 4..=4, true),
            4 => (1, 0..=6 * 16, false),
            6 => (1, 8..=8, false),
            7 => (0, 8..=MOST_FRAME, false),
            8 => (0, 4..=4, self.stream != 0),
            _ => return false,
        };
        let opens = asks && self.kind == HEADERS;
        let near = self.stream <= latest || opens && self.stream - latest < 1 << 16;
        let stream = if on_stream { self.stream % 2 == 1 && near } else { self.stream == 0 };
        self.flags & !flags == 0 && lengths.contains(&self.len) && stream
    }
}

/// What the first field of a header says.
enum Status {
    Interim,
    Final,
    /// It is in the table.
    Tabled,
    /// It is none.
    Other,
}

impl Http2 {
    /// One that HTTP/1.1 became, with its first request.
    pub fn upgraded() -> Self {
        Self { latest: 1, ..Self::default() }
    }

    /// One whose beginning was not captured.
    pub fn joined() -> Self {
        let client = Half { preface: PREFACE.len(), ..Half::default() };
        Self { halves: [client, Half { lost: true, ..Half::default() }], ..Self::default() }
    }

    /// Whether these bytes are frames of a client that asks, without its preface: the first field of its
    /// header is the method.
    pub fn asks(mut bytes: &[u8]) -> Shown {
        while let Some(frame) = Frame::read(bytes).filter(|one| one.makes_sense(true, u32::MAX)) {
            let content = &bytes[HEAD..];
            if frame.kind == HEADERS {
                let block = content.get(frame.skipped()..).unwrap_or_default();
                return if matches!(block, [0x82 | 0x83, ..]) { Shown::Yes } else { Shown::No };
            }
            bytes = content.get(frame.len..).unwrap_or_default();
        }
        Shown::No
    }

    /// Whether the first bytes are a client's.
    pub fn shown(bytes: &[u8]) -> Shown {
        let len = bytes.len().min(PREFACE.len());
        match (bytes[..len] == PREFACE[..len], len == PREFACE.len()) {
            (false, _) => Shown::No,
            (true, false) => Shown::More,
            (true, true) => Shown::Yes,
        }
    }

    pub fn take(
        &mut self,
        asks: bool,
        mut bytes: &[u8],
        missing: usize,
        line: &mut Line<'_, '_>,
    ) -> Over {
        let side = usize::from(!asks);
        if asks {
            let half = &mut self.halves[side];
            let preface = bytes.len().min(PREFACE.len() - half.preface);
            half.preface += preface;
            bytes = &bytes[preface..];
        }
        if self.halves[side].lost {
            let latest = self.latest;
            let begins = Frame::read(bytes).is_some_and(|one| one.makes_sense(asks, latest));
            self.halves[side].lost = !begins;
        }
        while !bytes.is_empty() && !self.halves[side].lost {
            let half = &mut self.halves[side];
            if half.left == 0 {
                if half.head.is_empty() {
                    half.began_ns = line.packet.time_ns;
                    half.began_at = line.position().wrapping_sub(bytes.len() as u32);
                }
                let more = bytes.len().min(HEAD - half.head.len());
                half.head.extend_from_slice(&bytes[..more]);
                bytes = &bytes[more..];
                let Some(frame) = Frame::read(&half.head) else { continue };
                half.head.clear();
                half.block.clear();
                (half.frame, half.left) = (frame, frame.len);
            } else {
                let passed = half.left.min(bytes.len());
                let room = NEEDED.saturating_sub(half.block.len()).min(passed);
                half.block.extend_from_slice(&bytes[..room]);
                half.left -= passed;
                bytes = &bytes[passed..];
            }
            if half.left == 0 {
                self.end(asks, false, line);
            }
        }
        let half = &mut self.halves[side];
        if half.lost {
            return Over::Astray;
        }
        if missing == 0 {
            return Over::GoesOn;
        }
        let here = half.left;
        if here > 0 || half.opening.is_some() && here < missing {
            half.left -= here.min(missing);
            if here <= missing {
                self.end(asks, line.dropped || here < missing, line);
            }
        }
        let half = &mut self.halves[side];
        half.lost = here < missing || !half.head.is_empty();
        half.head.clear();
        if half.lost { Over::Astray } else { Over::GoesOn }
    }

    /// A frame is over. Of what is `torn`, no more can be read.
    fn end(&mut self, asks: bool, torn: bool, line: &mut Line<'_, '_>) {
        let half = &mut self.halves[usize::from(!asks)];
        let Frame { kind, flags, stream, .. } = half.frame;
        let key = key(line, stream);
        if kind == RST_STREAM {
            self.settle(stream, line);
            line.refuse(HTTP, key);
        } else if !asks {
            let (status, began_ns) = (half.status(), half.began_ns);
            match kind {
                HEADERS => self.response(status, stream, flags, began_ns, line),
                DATA => self.settle(stream, line),
                _ => {}
            }
        } else {
            if kind == HEADERS && stream > self.latest && stream % 2 == 1 {
                self.latest = stream;
                half.opening = Some(half.began_at);
            }
            let ends = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0;
            if let Some(from) = half.opening.take_if(|_| ends || torn) {
                line.request(HTTP, key, from);
                line.books.of(Kind::Http).counts.cut += u64::from(!ends && !line.dropped);
                if torn && line.dropped {
                    // Nobody knows when its header was whole.
                    line.give_up(HTTP, key);
                }
            }
        }
    }

    /// The server sent a header.
    fn response(
        &mut self,
        status: Status,
        stream: u32,
        flags: u8,
        began_ns: u64,
        line: &mut Line<'_, '_>,
    ) {
        let (ends, key) = (line.ends, key(line, stream));
        let name = || format!("{ends} stream {stream}").into();
        match status {
            Status::Interim => {}
            // Behind the answer comes a trailer, which has no status.
            Status::Other => self.settle(stream, line),
            Status::Tabled if flags & END_STREAM == 0 && self.unsure.len() < MOST_UNSURE => {
                let packet = &super::Packet { time_ns: began_ns, ..*line.packet };
                line.books.of(Kind::Http).extend(packet, key, name);
                if !self.unsure.contains(&stream) {
                    self.unsure.push(stream);
                }
            }
            Status::Final | Status::Tabled => {
                self.unsure.retain(|one| *one != stream);
                line.answer(Kind::Http, key, began_ns, name);
            }
        }
    }

    /// The header that answered on a stream was the last one.
    fn settle(&mut self, stream: u32, line: &mut Line<'_, '_>) {
        if let Some(place) = self.unsure.iter().position(|one| *one == stream) {
            self.unsure.swap_remove(place);
            let key = key(line, stream);
            line.books.of(Kind::Http).settle(key);
            line.forget(key);
        }
    }
}

impl Half {
    /// What the first field of the header says (RFC 7541, section 6 and appendix A).
    fn status(&self) -> Status {
        let block = self.block.get(self.frame.skipped()..).unwrap_or_default();
        // New sizes of the table come first, in bytes that go on while their first bit is set.
        let mut at = 0;
        while block.get(at).is_some_and(|byte| byte >> 5 == 1) {
            let long = block[at] & 0x1f == 0x1f;
            at += 1;
            while long && block.get(at).is_some_and(|byte| byte & 0x80 != 0) {
                at += 1;
            }
            at += usize::from(long);
        }
        let block = block.get(at..).unwrap_or_default();
        match block {
            [0x88..=0x8e, ..] => Status::Final,
            [0x48..=0x4e | 0x08..=0x0e, 3, digit, ..] => Status::by(*digit == b'1'),
            // By Huffman's code, in which `1` is 00001.
            [0x48..=0x4e | 0x08..=0x0e, 0x82 | 0x83, code, ..] => Status::by(code >> 3 == 1),
            [first, ..] if *first < 0xbe => Status::Other,
            _ => Status::Tabled,
        }
    }
}

impl Status {
    fn by(interim: bool) -> Self {
        if interim { Self::Interim } else { Self::Final }
    }
}
