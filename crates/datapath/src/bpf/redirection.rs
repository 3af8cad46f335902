//! The program of bpf/redirect.bpf.c on an interface.

use super::{Attachment, BpfError, Loaded, Place, REDIRECT, XdpMode};
use crate::interface::Interface;

const PROGRAM: &str = "redirect";

/// The program on one interface; dropping it, or the end of this process, takes it away.
pub(crate) struct Redirection {
    _attachment: Attachment,
    _loaded: Loaded,
}

// SAFETY: what libbpf keeps of a program and of its hook is used by who owns it alone; the pointer that is
// not `Send` by itself is that of a parent's name, which no hook of ours has.
unsafe impl Send for Redirection {}

impl Redirection {
    /// Redirects what `from` receives, or lets it pass.
    pub(crate) fn attach(
        from: &Interface,
        to: Option<&Interface>,
        mode: Option<XdpMode>,
    ) -> Result<Self, BpfError> {
        let mut open = REDIRECT.open()?;
        open.set_constants(&[to.map_or(0, |to| to.index as u32)]);
        let loaded = open.load()?;
        let attachment = loaded.attach(PROGRAM, from, Place::Xdp(mode))?;
        Ok(Self { _attachment: attachment, _loaded: loaded })
    }
}
