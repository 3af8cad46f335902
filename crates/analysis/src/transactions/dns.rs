//! Questions to name servers and their answers, by UDP and by TCP (RFC 1035).
//!
//! No port is looked at: a message with one whole question is hard to mistake. Servers leave the
//! question out of some errors (RFC 2136 allows it, too): then the id alone tells what they answer. What
//! goes to groups of hosts (mDNS, LLMNR) has no one answer and is left out. The name service of NetBIOS
//! (RFC 1002) has messages of the same form.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::book::{Book, Books};
use super::packet::{Ends, Packet, be16};
use super::{Kind, Protocol};

const HEADER: usize = 12;
/// The longest name, with the type and the class behind it.
const MOST: usize = 255 + 4;
/// As much of a message as is needed.
pub(super) const NEEDED: usize = HEADER + MOST;
const PORT: u16 = 53;
const NETBIOS_PORT: u16 = 137;
/// The opcode of changes (RFC 2136), whose sections are of any length.
pub(super) const UPDATE: u16 = 5;

/// The header and the question of a message.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub answers: bool,
    id: u16,
    /// Name, type and class; empty in an answer without them.
    question: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message; `None` for what is none.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        // One question; of a query there is no answer yet.
        let head = bytes.first_chunk::<HEADER>()?;
        let (id, flags, questions) = (be16(head, 0)?, be16(head, 2)?, be16(head, 4)?);
        let (answers, opcode) = (flags & 0x8000 != 0, flags >> 11 & 15);
        let others = (be16(head, 6)?, be16(head, 8)?, be16(head, 10)?);
        let bare = answers && questions == 0 && others.0 == 0 && others.1 == 0 && others.2 <= 1;
        if !(questions == 1 || bare) || opcode > 6 || flags & 0x40 != 0 {
            return None;
        }
        let many = opcode != UPDATE && (others.0 > 1 || others.1 > 1 || others.2 > 8);
        if !answers && (many || flags & 0xf != 0) {
            return None;
        }
        if bare {
            return Some(Self { answers, id, question: &[] });
        }
        let behind = &bytes[HEADER..];
        let mut at = 0;
        loop {
            let len = usize::from(*behind.get(at)?);
            at += 1 + len;
            if len == 0 {
                break;
            }
            if len > 63 || at >= MOST - 4 {
                return None;
            }
        }
        let question = behind.get(..at + 4)?;
        let class = be16(question, at + 2)? & 0x7fff;
        matches!(class, 1 | 3 | 4 | 254 | 255).then_some(Self { answers, id, question })
    }

    /// The key of a message between these ends, the asking one first.
    #[inline]
    pub fn key(&self, ends: &Ends) -> u64 {
        // Servers need not keep the case of letters (RFC 4343).
        let mut lower = [0; MOST];
        let question = &mut lower[..self.question.len()];
        question.copy_from_slice(self.question);
        let (name, _) = question.split_at_mut(self.question.len().saturating_sub(4));
        name.make_ascii_lowercase();
        xxh3_64_with_seed(question, ends.hash(u64::from(self.id)))
    }

    /// Whether it leaves the question out.
    pub fn is_bare(&self) -> bool {
        self.question.is_empty()
    }

    /// The key by which a request is answered that has this one: by its id alone as well.
    pub fn alias(&self, ends: &Ends) -> u64 {
        Self { question: &[], ..*self }.key(ends)
    }

    /// The key of the request that it answers, by its own; `None` for one that names none and whose id
    /// nobody asked by.
    pub fn answered(&self, key: u64, book: &Book) -> Option<u64> {
        if self.is_bare() { book.aliased(key) } else { Some(key) }
    }

    /// The id and the name, as people see them.
    pub fn shown(&self) -> String {
        if self.is_bare() {
            return format!("id {}", self.id);
        }
        let mut name = String::new();
        let mut rest = self.question;
        while let Some((len, behind)) = rest.split_first().filter(|(len, _)| **len > 0) {
            let (label, behind) = behind.split_at(usize::from(*len).min(behind.len()));
            name += &format!("{}.", label.escape_ascii());
            rest = behind;
        }
        if name.is_empty() {
            name.push('.');
        }
        format!("id {} {name}", self.id)
    }
}

pub(super) struct Dns;

impl Protocol for Dns {
    #[inline]
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let Some(udp) = packet.udp() else { return false };
        if udp.is_of(NETBIOS_PORT) {
            return false;
        }
        let book = books.of(Kind::Dns);
        let Some(message) = Message::parse(udp.payload) else {
            let cut = packet.is_cut() && udp.is_of(PORT);
            book.counts.truncated += u64::from(cut);
            return cut;
        };
        if packet.is_multicast(&udp.inner) {
            return true;
        }
        let ends = packet.ends();
        if !message.answers && packet.may_ask() {
            let key = message.key(&ends);
            book.request(packet, key, 0);
            book.alias(packet, message.alias(&ends), key);
        } else if message.answers && packet.may_answer() {
            let ends = ends.turned();
            let name = || format!("{ends} {}", message.shown()).into();
            match message.answered(message.key(&ends), book) {
                Some(key) => _ = book.answer(packet, key, name),
                None => {
                    let unasked = udp.source == PORT;
                    book.counts.unmatched_answers += u64::from(unasked);
                    return unasked;
                }
            }
        }
        true
    }
}
