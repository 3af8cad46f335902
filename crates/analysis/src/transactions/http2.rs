//! HTTP/2 without encryption (RFC 9113): the headers that open a stream, and those that answer on it.

use super::streams::{Line, Over, Shown};
use super::{Kind, http};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const HEADERS: u8 = 1;

/// Both directions of a connection.
#[derive(Default)]
pub(super) struct Http2 {
    halves: [Half; 2],
    /// The latest stream that a client opened.
    latest: u32,
}

#[derive(Default)]
struct Half {
    /// What is left of the preface that only clients send; counted up.
    preface: usize,
    head: Vec<u8>,
    /// Bytes of the frame that are to be passed over.
    left: usize,
}

impl Http2 {
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
        let half = &mut self.halves[usize::from(!asks)];
        if asks {
            let preface = bytes.len().min(PREFACE.len() - half.preface);
            half.preface += preface;
            bytes = &bytes[preface..];
        }
        while !bytes.is_empty() {
            let passed = half.left.min(bytes.len());
            half.left -= passed;
            bytes = &bytes[passed..];
            let more = bytes.len().min(HEAD - half.head.len());
            if half.left > 0 || more == 0 {
                continue;
            }
            half.head.extend_from_slice(&bytes[..more]);
            bytes = &bytes[more..];
            let Ok(head) = <[u8; HEAD]>::try_from(half.head.as_slice()) else { continue };
            half.head.clear();
            half.left =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
            if head[3] != HEADERS {
                continue;
            }
            let (ends, key) = (line.ends, http::key(line, stream));
            if asks && stream > self.latest && stream % 2 == 1 {
                self.latest = stream;
                let from = line.position().wrapping_sub((bytes.len() + HEAD) as u32);
                line.request(&[Kind::Http], key, from);
            } else if !asks {
                let name = || format!("{ends} stream {stream}").into();
                line.answer(Kind::Http, key, line.packet.time_ns, name);
            }
        }
        if missing > 0 {
            if half.left < missing {
                return Over::Elsewhere;
            }
            half.left -= missing;
        }
        Over::GoesOn
    }
}
