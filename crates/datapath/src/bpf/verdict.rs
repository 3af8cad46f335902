//! Why the kernel's verifier refused a program, out of what libbpf says while it loads one.

use std::cell::RefCell;

use libbpf_rs::{PrintLevel, set_print};

/// libbpf quotes the verifier between these, behind the program's name.
const BEGIN: &str = "': -- BEGIN PROG LOAD LOG --\n";
const END: &str = "-- END PROG LOAD LOG --";
const PROGRAM: &str = "prog '";
/// The verifier's last line counts its steps; the reason stands before it.
const COUNTED: &str = "processed ";

thread_local! {
    static VERDICT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has libbpf's warnings read for a verdict, and shown to nobody.
pub(super) fn listen() {
    set_print(Some((PrintLevel::Warn, |_, message| {
        if let Some(reason) = reason(&message) {
            VERDICT.set(Some(reason));
        }
    })));
}

/// What the verifier said last in this thread, if anything.
pub(super) fn take() -> Option<String> {
    VERDICT.take()
}

/// The program and the reason as one line.
fn reason(message: &str) -> Option<String> {
    let (head, log) = message.split_once(BEGIN)?;
    let program = head.rsplit_once(PROGRAM)?.1;
    let log = log.split_once(END)?.0;
    let mut lines = log.lines().map(str::trim);
    let last = lines.rfind(|line| !line.is_empty() && !line.starts_with(COUNTED))?;
    Some(format!("the verifier says of {program}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_before_the_count() {
        let message = "libbpf: prog 'irq_ended': -- BEGIN PROG LOAD LOG --\n\
                       0: R1=ctx()\n1277: (0f) r9 += r1\nmath between pointers is not allowed\n\
                       processed 15161 insns (limit 1000000) max_states_per_insn 19\n\
                       -- END PROG LOAD LOG --\n";
        let said = "the verifier says of irq_ended: math between pointers is not allowed";
        assert_eq!(reason(message).as_deref(), Some(said));
    }

    #[test]
    fn other_warnings_are_no_reason() {
        assert_eq!(reason("libbpf: failed to load object 'trace'\n"), None);
        let empty = "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n-- END PROG LOAD LOG --\n";
        assert_eq!(reason(empty), None);
    }
}
