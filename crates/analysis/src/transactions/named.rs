//! DNS by TCP (RFC 7766): each message behind its length. A message counts when it is whole.

use super::Kind;
use super::dns::{Message, NEEDED, UPDATE};
use super::line::{Line, Over, Shown};
use super::packet::be16;

const LENGTH: usize = 2;
/// So much of a first message shows what it is.
const HEAD: usize = LENGTH + 12;

/// Both directions of a connection.
#[derive(Default)]
pub(super) struct DnsStream {
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    /// The length and as much of the message as is needed; of a lost one, a segment that may be its length.
    message: Vec<u8>,
    /// What is left of the message, once its length is known.
    left: Option<usize>,
    /// Nobody knows where the next message begins.
    lost: bool,
}

/// What tells keys of a connection from those of another one with the same ends.
fn connection(line: &Line<'_, '_>) -> u64 {
    line.ends.hash(1 << 62 | line.first)
}

impl DnsStream {
    /// Whether the first bytes are a query.
    pub fn shown(bytes: &[u8]) -> Shown {
        let Some(head) = bytes.get(..HEAD) else {
            // Ids are anything, and so are lengths.
            return Shown::More;
        };
        let query = head[4] & 0x80 == 0 && head[5] & 0x4f == 0 && head[6..8] == [0, 1];
        let few = head[8] == 0 && head[9] <= 1 && head[10] == 0 && head[11] <= 1 && head[12] == 0;
        let long = be16(head, 0).is_some_and(|len| usize::from(len) >= 17);
        if query && (few || u16::from(head[4] >> 3) == UPDATE) && long {
            Shown::Yes
        } else {
            Shown::No
        }
    }

    pub fn take(
        &mut self,
        asks: bool,
        bytes: &[u8],
        missing: usize,
        line: &mut Line<'_, '_>,
    ) -> Over {
        let half = &mut self.halves[usize::from(!asks)];
        let mut begun = Vec::new();
        let mut bytes = bytes;
        if half.lost {
            // One that begins with a segment shows its length, and its question, or an id that was asked
            // by. The length, or half of it, may be a segment of its own.
            begun.append(&mut half.message);
            let alone = begun.is_empty();
            begun.extend_from_slice(bytes);
            let (ends, of) = (line.ends, connection(line));
            let book = &*line.books.of(Kind::Dns);
            let begins = |bytes: &[u8]| {
                let message = bytes.get(LENGTH..).and_then(Message::parse);
                message.is_some_and(|message| {
                    let known = || book.aliased(of ^ message.key(&ends)).is_some();
                    message.answers != asks && (!message.is_bare() || known())
                })
            };
            if !alone && begins(&begun) {
                (bytes, half.lost) = (&begun, false);
            } else if begins(bytes) {
                half.lost = false;
            } else if bytes.len() <= LENGTH && missing == 0 {
                half.message = bytes.to_vec();
            }
        }
        while !bytes.is_empty() && !half.lost {
            let Some(left) = half.left else {
                half.message.push(bytes[0]);
                bytes = &bytes[1..];
                half.left = match half.message.len() {
                    LENGTH => be16(&half.message, 0).map(usize::from),
                    _ => None,
                };
                continue;
            };
            let (now, later) = bytes.split_at(left.min(bytes.len()));
            let room = (LENGTH + NEEDED).saturating_sub(half.message.len());
            half.message.extend_from_slice(&now[..room.min(now.len())]);
            bytes = later;
            half.left = Some(left - now.len());
            if left == now.len() {
                half.end(asks, bytes.len() as u32, false, line);
            }
        }
        if half.lost {
            return Over::Astray;
        }
        if missing == 0 {
            return Over::GoesOn;
        }
        match half.left {
            Some(left) if left > missing => half.left = Some(left - missing),
            left => {
                // Of a message whose end was dropped nobody knows when it was whole.
                half.end(asks, 0, line.dropped, line);
                half.lost = left != Some(missing);
                if half.lost {
                    return Over::Astray;
                }
            }
        }
        Over::GoesOn
    }
}

impl Half {
    /// A message is whole, or as much of it as there is; `behind` bytes are behind it.
    fn end(&mut self, asks: bool, behind: u32, torn: bool, line: &mut Line<'_, '_>) {
        let message = std::mem::take(&mut self.message);
        self.left = None;
        let Some(message) = message.get(LENGTH..).and_then(Message::parse) else { return };
        let (ends, of) = (line.ends, connection(line));
        let key = of ^ message.key(&ends);
        if asks && !message.answers {
            let from = line.position().wrapping_sub(behind).wrapping_sub(HEAD as u32);
            line.request(&[Kind::Dns], key, from);
            line.books.of(Kind::Dns).alias(line.packet, of ^ message.alias(&ends), key);
        } else if !asks && message.answers && !torn {
            let book = line.books.of(Kind::Dns);
            let Some(key) = message.answered(key, book) else {
                book.counts.unmatched_answers += 1;
                return;
            };
            let name = || format!("{ends} by TCP {}", message.shown()).into();
            line.forget(key);
            line.books.of(Kind::Dns).answer(line.packet, key, name);
        }
        if torn {
            line.give_up(&[Kind::Dns], key);
        }
    }
}
