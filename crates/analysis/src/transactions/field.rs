//! An id at a place of requests and of their answers, which the user names.
//!
//! In one capture, who sends an id first asks, and what comes back with it is the answer. Of two
//! captures, one holds requests and the other answers.

use super::book::Books;
use super::packet::{Packet, Part};
use super::{Kind, Protocol};
use crate::key::{Extract, NoKey};

/// The kind of an id that `extract` takes from packets.
pub(super) struct Ids<X>(pub X);

impl<X: Extract> Protocol for Ids<X> {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let book = books.of(Kind::Field);
        let id = match self.0.extract(packet.content()) {
            Ok((id, _)) => id,
            Err(NoKey::Short) => {
                book.counts.truncated += 1;
                return true;
            }
            Err(_) => return false,
        };
        let ends = packet.ends();
        let (sorted, low) = ends.sorted();
        let key = sorted.hash(id);
        let known = match packet.part {
            Part::Both => book.known(packet.time_ns, key),
            Part::Requests | Part::Answers => None,
        };
        let sender = u32::from(low);
        let answers =
            packet.part == Part::Answers || known.is_some_and(|known| known.tag != sender);
        if answers {
            let ends = ends.turned();
            book.answer(packet, key, || format!("{ends} id {id}").into());
        } else {
            book.request(packet, key, sender);
        }
        true
    }
}
