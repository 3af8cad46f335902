/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The kinds of a trace's records: what C calls each, its number in the file, and its name.
 *
 * This is the only list of them. crates/analysis/build.rs makes the constants of Rust from these
 * lines, and Python takes them from there. A number is never given to another kind.
 */
KIND(IRQ, 1, "irq") /* A device's interrupt; the id is its number. */
KIND(VECTOR, 2, "vector") /* A vector of the processor: timer, reschedule, function call and others. */
KIND(IPI_FUNCTION, 3, "ipi-function") /* The function that an interrupt between processors called. */
KIND(IPI_DELAY, 4, "ipi-delay") /* From sending an interrupt between processors to entering it. */
KIND(SOFTIRQ, 5, "softirq") /* A softirq; the id is its vector, the aux who raised it and how long before. */
KIND(TASK, 6, "task") /* A stretch of a task on the core; the id is its pid. */
KIND(WAKEUP, 7, "wakeup") /* From waking a served task to running it. */
KIND(WORK, 8, "work") /* The function of a kworker. */
KIND(IDLE, 9, "idle") /* The core idles; the id is the state. */
KIND(NMI, 10, "nmi") /* A non-maskable interrupt. */
KIND(HRTIMER, 11, "hrtimer") /* The function of a timer. */
KIND(TLB_FLUSH, 12, "tlb-flush") /* A flush of the TLB; the id is the reason. */
KIND(PAGE_FAULT, 13, "page-fault") /* A page fault. */
KIND(RECLAIM, 14, "reclaim") /* Direct reclaim of memory. */
KIND(COMPACTION, 15, "compaction") /* Compaction of memory. */
KIND(FREQUENCY, 16, "frequency") /* The core has another frequency from now on. */
KIND(KVM_EXIT, 17, "kvm-exit") /* From one exit of a guest to its next entry. */
KIND(MIGRATE, 18, "migrate") /* A task moved to another core. */
KIND(RUNNABLE, 19, "runnable") /* A served task that could run and did not. */
KIND(FOREIGN_RX, 20, "foreign-rx") /* A softirq received packets of other networks than those that are served. */
KIND(TOLD, 21, "told") /* A core was told of packets. */
KIND(LOST, 254, "lost") /* The tracer had no room for records. */
