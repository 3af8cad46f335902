//! An id at a place of requests and of their answers, which the user names; answers may have it elsewhere.
//!
//! In one capture, who sends an id first asks, and what comes back with it is the answer. Where the places
//! differ, the first answer shows which end asks: whatever the other one sends is an answer. Of two
//! captures, one holds requests and the other answers.

use super::book::{Books, ByKey};
use super::packet::{Packet, Part};
use super::{Kind, Protocol};
use crate::key::{Extract, NoKey};

/// So many pairs of ends are remembered of which it is known who asks.
const MOST_ASKERS: usize = 1 << 16;

/// The kind of an id that `asked` takes from requests, and `answered` from answers.
pub(super) struct Ids<'a, X> {
    pub asked: X,
    pub answered: X,
    /// Which end asks, where the places differ.
    pub askers: Option<&'a mut ByKey<u32>>,
}

impl<X: Extract> Protocol for Ids<'_, X> {
    fn see(&mut self, packet: &Packet<'_>, books: &mut Books) -> bool {
        let book = books.of(Kind::Field);
        let ends = packet.ends();
        let (sorted, low) = ends.sorted();
        let (both, sender) = (sorted.hash(0), u32::from(low));
        let asker = self.askers.as_ref().and_then(|askers| askers.get(&both).copied());
        let extract = |place: &X| place.extract(packet.content()).map(|(id, _)| id);
        if packet.may_answer() && asker != Some(sender) {
            let answered = extract(&self.answered);
            let known = answered.as_ref().ok().and_then(|id| {
                let known = book.known(packet.time_ns, sorted.hash(*id));
                known.filter(|known| known.tag != sender)
            });
            let answers = packet.part == Part::Answers || asker.is_some() || known.is_some();
            match answered {
                Ok(id) if answers => {
                    let ends = ends.turned();
                    book.answer(packet, sorted.hash(id), || format!("{ends} id {id}").into());
                    if let Some(askers) = self.askers.as_mut().filter(|_| known.is_some()) {
                        if askers.len() >= MOST_ASKERS {
                            askers.clear();
                        }
                        askers.insert(both, 1 - sender);
                    }
                    return true;
                }
                Err(NoKey::Short) if answers => {
                    book.counts.truncated += 1;
                    return true;
                }
                Err(_) if answers => return false,
                _ => {}
            }
        }
        match extract(&self.asked) {
            Ok(id) => book.request(packet, sorted.hash(id), sender),
            Err(NoKey::Short) => book.counts.truncated += 1,
            Err(_) => return false,
        }
        true
    }
}
