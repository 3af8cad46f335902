"""The kernel's resctrl file system: a group of cores with ways of the last cache of its own.

A group has masks of ways, a bit each, for each cache, and for code and data apart where that is
switched on (CDP). A core's work fills the ways of the group that the core is in. Ways that other
groups and devices do not fill are its own, whatever the kernel calls its mode: the mode
``exclusive`` would also take ways of caches that no core of the group fills, and is not used.
Documentation/filesystems/resctrl.rst is the source of all of this.
"""
