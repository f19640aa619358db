"""Which I/O engine this process may use, what was refused, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload.doctor.findings import Finding, Level, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxload._native import Capability
    from fxload.doctor.host_files import HostFiles

__all__ = ["check_engines"]

_NAMES = {
    "cachestat": "page cache state",
    "statx_dioalign": "direct I/O alignment",
    "madv_populate_write": "populating memory",
    "registered_buffers": "registered buffers",
    "transparent_huge_pages": "huge pages on advice",
}
_WITHOUT = {
    "cachestat": "residency comes from mincore",
    "statx_dioalign": "alignments are assumed to be 4096 bytes and proven by a real read",
    "madv_populate_write": "destination pages are touched one by one, in parallel",
    "registered_buffers": "reads use unregistered buffers",
    "transparent_huge_pages": "the destination consists of small pages",
}


def check_engines(host: HostFiles, capabilities: Mapping[str, Capability]) -> Section:
    """Explain the core's probes: each was really tried by this process."""
    uring = capabilities["io_uring"]
    findings = []
    data: dict[str, object] = {
        "engine": "io_uring" if uring["ok"] else "pread",
        "capabilities": {name: dict(value) for name, value in capabilities.items()},
        "io_uring_disabled": host.integer("/proc/sys/kernel/io_uring_disabled"),
        "seccomp": _seccomp(host),
    }
    if uring["ok"]:
        findings += [
            Finding(Level.OK, "engine", "io_uring", "a ring was set up and read through"),
            Finding(Level.INFO, "fallback", "pread threads", "if a mount refuses io_uring"),
        ]
    else:
        why, hint = _why_refused(host, uring["reason"])
        data["io_uring_refused_because"] = why
        findings += [
            Finding(Level.WARN, "io_uring", "refused", why, hint),
            Finding(
                Level.OK,
                "engine",
                "pread threads",
                "the fallback for a refused io_uring: a deep pool of blocking reads, "
                "as fast as a ring at more processor time",
            ),
        ]
    for key, name in _NAMES.items():
        capability = capabilities.get(key)
        if capability is None:
            continue
        if capability["ok"]:
            findings.append(Finding(Level.OK, name, "yes"))
        else:
            reason = f"{capability['reason']}; {_WITHOUT[key]}".lstrip("; ")
            findings.append(Finding(Level.INFO, name, "no", reason))
    return Section("I/O engines", tuple(findings), data)


def _seccomp(host: HostFiles) -> str:
    mode = host.fields("/proc/self/status").get("Seccomp")
    return {"0": "off", "1": "strict", "2": "filter"}.get(mode or "", "unknown")


def _why_refused(host: HostFiles, reason: str) -> tuple[str, str]:
    """The core's own reason, completed by what the host says of itself, and the next step."""
    disabled = host.integer("/proc/sys/kernel/io_uring_disabled")
    filtered = _seccomp(host) == "filter"
    if "io_uring_disabled" in reason and disabled:
        group = host.integer("/proc/sys/kernel/io_uring_group")
        who = "everybody" if disabled == 2 else "unprivileged users"
        hint = "sysctl kernel.io_uring_disabled=0"
        if disabled == 1 and group is not None and group >= 0:
            hint += f", or add the user to group {group}"
        return f"the sysctl kernel.io_uring_disabled={disabled} refuses it to {who}", hint
    profile = "run with a seccomp profile that allows io_uring_setup, io_uring_enter, _register"
    if "EPERM" in reason:
        if filtered:
            return f"{reason} (this process runs under a seccomp filter)", profile
        return f"{reason} (no seccomp filter is on)", "see the kernel's audit log"
    if "has no io_uring" in reason:
        if filtered:
            return f"{reason} (ENOSYS, and this process runs under a seccomp filter)", profile
        return f"{reason} (ENOSYS)", "io_uring came with Linux 5.1"
    if "liburing" in reason:
        return reason, "install the headers of liburing and build fxload again"
    if "RLIMIT_MEMLOCK" in reason:
        return reason, "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service"
    return reason or "no reason given", ""
