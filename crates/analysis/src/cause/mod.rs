//! Why packets were late: late packets and what the kernel did meanwhile, on one clock.
//!
//! The model is that of docs/explanation/causes.md. The way of a record through the modules:
//!
//! [`layout`] (records to intervals with owners) → [`sweep`] (each nanosecond to one of them), or
//! [`nested`] (records that lie in each other, at once), as [`lane`] decides → [`timeline`] (where that is kept) → [`join`] (the parts of late packets, stalls, queues) and
//! [`claims`] (what chance would give, by [`shifts`]), with [`egress`] for what the stamps after the
//! device say of cores and queues. [`cores`] runs the first three side by side.
//!
//! [`guest`] lays what a guest's kernel did under what its host did, and [`sender`] what held the core
//! that tells of packets under the time in which it told nobody.
//!
//! Nothing here knows what an owner is called, or which one serves: the caller sorts owners into
//! [`Row`]s.

pub mod claims;
pub mod cores;
pub mod egress;
pub mod guest;
pub mod join;
mod lane;
mod layout;
mod nested;
mod sender;
mod shifts;
mod sweep;
pub mod timeline;

use std::collections::HashMap;

pub use cores::{Cores, Serving};

/// What a nanosecond can belong to: the kind of its record, and which of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// One of [`crate::trace::kind`], or one of [`UNSEEN`], [`UNTOLD`] and [`STEAL`].
    pub kind: u8,
    /// An interrupt's number, a vector, a process, a state, or a function's address.
    pub id: u64,
    /// Of a function, the core that asked for it. Of a task, [`KERNEL_THREAD`] and [`SERVED`]. Of a
    /// softirq, [`FOREIGN`], and from [`RAISER`] on what raised it. Of an idle core, [`ASLEEP`].
    pub more: u64,
}

/// No record tells, or records were lost.
pub const UNSEEN: u8 = 0;
/// A task had the core, and nobody had told the core of packets.
pub const UNTOLD: u8 = 253;
/// The hypervisor had the core.
pub const STEAL: u8 = 255;
/// A bit of a task: it is a thread of the kernel.
pub const KERNEL_THREAD: u64 = 1;
/// A bit of a task: it serves packets.
pub const SERVED: u64 = 2;
/// A bit of a softirq: no packet of the run left during it.
pub const FOREIGN: u64 = 1;
/// Where [`crate::trace::Record::raiser`] begins.
pub const RAISER: u32 = 8;
/// A bit of an idle core on which threads serve, in a device that softirqs serve on other cores.
pub const ASLEEP: u64 = 1;
/// A bit of any owner: a guest's kernel says so, and its id and the other bits are the guest's.
pub const GUEST: u64 = 1 << 63;

/// A bit of any owner: it held a core that tells others of packets, whose number stands from
/// [`SENDER_CPU`] on.
pub const SENDER: u64 = 1 << 62;
/// Where the number of a sender's core begins.
pub const SENDER_CPU: u32 = 44;

/// Where an owner belongs: a row of the table of causes.
pub type Row = u32;
/// What explains nothing.
pub const NOTHING: Row = 0;
/// What serves packets.
pub const SERVING: Row = 1;

/// All owners that were met, each with a number.
#[derive(Clone, Debug)]
pub struct Owners {
    list: Vec<Owner>,
    places: HashMap<Owner, u32>,
    /// Some of those that were asked for last: few owners have nearly all records.
    recent: Box<[(Owner, u32); RECENT]>,
}

/// So many owners are found without a search, a power of two.
const RECENT: usize = 64;

impl Default for Owners {
    fn default() -> Self {
        let nobody = Owner { kind: UNSEEN, id: 0, more: 0 };
        Self {
            list: vec![nobody],
            places: HashMap::from([(nobody, Self::NOBODY)]),
            recent: Box::new([(nobody, Self::NOBODY); RECENT]),
        }
    }
}

impl Owners {
    /// The number of nobody.
    pub const NOBODY: u32 = 0;

    /// The number of an owner.
    #[inline]
    fn number(&mut self, owner: Owner) -> u32 {
        let Owner { kind, id, more } = owner;
        let mixed = id ^ id >> 8 ^ u64::from(kind) << 2 ^ more;
        let place = mixed as usize % RECENT;
        let (recent, number) = self.recent[place];
        if recent.id == id && recent.more == more && recent.kind == kind {
            return number;
        }
        self.search(owner, place)
    }

    #[cold]
    fn search(&mut self, owner: Owner, place: usize) -> u32 {
        let number = *self.places.entry(owner).or_insert_with(|| {
            self.list.push(owner);
            (self.list.len() - 1) as u32
        });
        self.recent[place] = (owner, number);
        number
    }

    /// All owners by their numbers.
    pub fn list(&self) -> &[Owner] {
        &self.list
    }
}
