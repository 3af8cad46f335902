//! Why packets were late: late packets and what the kernel did meanwhile, on one clock.
//!
//! The model is that of docs/explain.md. The way of a record through the modules:
//!
//! [`layout`] (records to intervals with owners) → [`timeline`] (each nanosecond to one owner) →
//! [`join`] (the parts of late packets, stalls, queues) and [`claims`] (what chance would give), with
//! [`egress`] for what the stamps after the device say of cores and queues.
//!
//! Nothing here knows what an owner is called, or which one serves: the caller sorts owners into
//! [`Row`]s.

pub mod claims;
pub mod egress;
pub mod join;
mod layout;
pub mod timeline;

use std::collections::{BTreeMap, HashMap};

use crate::trace::Trace;
use timeline::Timeline;

/// What a nanosecond can belong to: the kind of its record, and which of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// One of [`crate::trace::kind`], or one of [`UNSEEN`] and [`STEAL`].
    pub kind: u8,
    /// An interrupt's number, a vector, a process, a state, or a function's address.
    pub id: u64,
    /// Of a function, the core that asked for it. Of a task, [`KERNEL_THREAD`] and [`SERVED`]. Of a
    /// softirq, [`FOREIGN`].
    pub more: u64,
}

/// No record tells, or records were lost.
pub const UNSEEN: u8 = 0;
/// The hypervisor had the core.
pub const STEAL: u8 = 255;
/// A bit of a task: it is a thread of the kernel.
pub const KERNEL_THREAD: u64 = 1;
/// A bit of a task: it serves packets.
pub const SERVED: u64 = 2;
/// A bit of a softirq: no packet of the run left during it.
pub const FOREIGN: u64 = 1;

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
}

impl Default for Owners {
    fn default() -> Self {
        let mut owners = Self { list: Vec::new(), places: HashMap::new() };
        owners.number(Owner { kind: UNSEEN, id: 0, more: 0 });
        owners
    }
}

impl Owners {
    /// The number of nobody.
    pub const NOBODY: u32 = 0;

    /// The number of an owner.
    fn number(&mut self, owner: Owner) -> u32 {
        *self.places.entry(owner).or_insert_with(|| {
            self.list.push(owner);
            (self.list.len() - 1) as u32
        })
    }

    /// All owners by their numbers.
    pub fn list(&self) -> &[Owner] {
        &self.list
    }
}

/// What each of some cores did.
#[derive(Clone, Debug)]
pub struct Cores {
    /// By core.
    pub timelines: BTreeMap<u16, Timeline>,
    /// Who is in them.
    pub owners: Owners,
}

impl Cores {
    /// Lays out the records of a trace that ended at a time.
    pub fn lay_out(trace: &Trace, ended_ns: u64) -> Self {
        let mut owners = Owners::default();
        let mut timelines = BTreeMap::new();
        for (&cpu, records) in &trace.cores {
            let intervals = layout::intervals(records, ended_ns, &mut owners);
            timelines.insert(cpu, timeline::sweep(intervals, &owners));
        }
        Self { timelines, owners }
    }
}
