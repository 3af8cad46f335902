//! Records of a trace, as docs/reference/files.md describes them.

use serde::{Serialize, Serializer};
use tailtap_analysis::trace::kind;

/// Words of a record, in the ring as in the file.
pub(super) const RECORD_WORDS: usize = 4;

const ADDED_UP: u64 = 1;
/// Where the thread begins in the word that tells a sender, behind its CPU.
const SENDER_THREAD: u32 = 10;

/// What happened: `enum kind` in bpf/trace.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub(super) u8);

impl Kind {
    pub(super) const IRQ: Self = Self(kind::IRQ);
    pub(super) const VECTOR: Self = Self(kind::VECTOR);
    pub(super) const IPI_FUNCTION: Self = Self(kind::IPI_FUNCTION);
    pub(super) const IPI_DELAY: Self = Self(kind::IPI_DELAY);
    pub(super) const SOFTIRQ: Self = Self(kind::SOFTIRQ);
    pub(super) const TASK: Self = Self(kind::TASK);
    pub(super) const WAKEUP: Self = Self(kind::WAKEUP);
    pub(super) const WORK: Self = Self(kind::WORK);
    pub(super) const IDLE: Self = Self(kind::IDLE);
    pub(super) const NMI: Self = Self(kind::NMI);
    pub(super) const HRTIMER: Self = Self(kind::HRTIMER);
    pub(super) const PAGE_FAULT: Self = Self(kind::PAGE_FAULT);
    pub(super) const MIGRATE: Self = Self(kind::MIGRATE);
    pub(super) const RUNNABLE: Self = Self(kind::RUNNABLE);
    pub(super) const LOST: Self = Self(kind::LOST);

    /// Its name for people.
    pub fn name(self) -> &'static str {
        kind::name(self.0)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A record: its words are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(pub(super) [u64; RECORD_WORDS]);

impl Record {
    /// An interval of `dur` ns, in which nothing was stolen.
    pub(super) fn new(start: u64, dur: u64, kind: Kind, cpu: u16, aux: u64, id: u32) -> Self {
        let what = dur.min(u32::MAX.into()) | u64::from(kind.0) << 32 | u64::from(cpu) << 48;
        Self([start, what, aux, id.into()])
    }

    /// The same, as the sum of several.
    pub(super) fn added_up(self) -> Self {
        let Self([start, what, aux, more]) = self;
        Self([start, what | ADDED_UP << 40, aux, more])
    }

    pub(super) fn end(self) -> u64 {
        self.0[0].saturating_add(self.0[1] & 0xffff_ffff)
    }

    pub(super) fn kind(self) -> Kind {
        Kind((self.0[1] >> 32) as u8)
    }

    pub(super) fn aux(self) -> u64 {
        self.0[2]
    }

    pub(super) fn id(self) -> u32 {
        self.0[3] as u32
    }

    /// The thread that sent what this is about, if it is known: `sender()` in
    /// bpf/trace_interrupts.h.
    pub(super) fn sender(self) -> Option<u32> {
        let thread = self.id() >> SENDER_THREAD;
        (thread != 0 && self.id() != u32::MAX).then_some(thread)
    }

    /// The kind and the id of what raised a softirq, if that is known: `raiser` in
    /// bpf/trace_interrupts.h.
    pub(super) fn raiser(self) -> Option<(Kind, u32)> {
        let (kind, id) = ((self.aux() >> 60) as u8, (self.aux() >> 32) as u32 & 0x0fff_ffff);
        let added_up = self.0[1] >> 40 & ADDED_UP != 0;
        (self.kind() == Kind::SOFTIRQ && !added_up && kind != 0).then_some((Kind(kind), id))
    }

    pub(super) fn write_to(self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_known_where_a_thread_had_its_core() {
        let sender = |id| Record::new(5, 5, Kind::IPI_FUNCTION, 1, 0, id).sender();
        assert_eq!(sender(1023 | 77 << SENDER_THREAD), Some(77));
        assert_eq!((sender(3), sender(u32::MAX)), (None, None));
    }
}
