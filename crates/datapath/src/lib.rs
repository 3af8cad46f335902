//! The privileged part of tailtap: the traffic generator, the eBPF taps and the fault-injecting
//! forwarder.
