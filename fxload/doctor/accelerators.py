"""Which accelerators a load could go to: runtimes, devices, pinning, copy speed."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fxload.devices.folders import runtime_folders
from fxload.doctor.asking import ask
from fxload.doctor.direct_storage import judge_direct_storage, read_kernel_support
from fxload.doctor.findings import Finding, Level, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fxload.doctor.asking import Answer
    from fxload.doctor.host_files import HostFiles
    from fxload.doctor.location import Location

__all__ = ["check_accelerators"]

_PROBE = "fxload.doctor.accelerator_probe"
_TIMEOUT_S = 60.0  # the first use of some drivers takes half a minute
_MEMLOCK_HINT = "ulimit -l unlimited, --ulimit memlock=-1, or LimitMEMLOCK=infinity in the service"
# Without it `import torch` fails where torch_npu is installed and CANN is not.
_NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def check_accelerators(
    host: HostFiles,
    places: Sequence[Location] = (),
    probe_path: str = "",
    *,
    timeout_s: float = _TIMEOUT_S,
) -> Section:
    """Look for every platform of this build, measure its devices, and judge ``places``.

    Each runtime is loaded, and each device opened, in a short process of its own: nothing that
    they do reaches this one, and no device stays open. ``probe_path`` is a file to read into
    pinned memory past the page cache.
    """
    from fxload import _native

    names = [name for name in _native.platform_names() if name != "host"]
    folders = runtime_folders()
    with ThreadPoolExecutor(max_workers=1) as beside:
        # Importing torch takes seconds.
        asked = beside.submit(ask, _PROBE, ["torch"], timeout_s, env=_NO_AUTOLOAD)
        platforms = [_examine(name, folders, host, places, probe_path, timeout_s) for name in names]
        torch = asked.result()
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    findings = [*_torch_findings(torch)]
    for platform in platforms:
        findings += _platform_findings(platform)
    data: dict[str, object] = {
        "platforms": platforms,
        "torch": {**torch.facts, "failure": torch.failure},
        "memlock_bytes": None if soft == resource.RLIM_INFINITY else soft,
    }
    return Section("accelerators", tuple(findings), data)


def _examine(
    name: str,
    folders: Sequence[str],
    host: HostFiles,
    places: Sequence[Location],
    probe_path: str,
    timeout_s: float,
) -> dict[str, Any]:
    """All that is known of a platform, as JSON. Devices are opened one after the other."""
    answer = ask(_PROBE, ["find", name, *folders], timeout_s)
    facts = answer.facts
    found = "library" in facts
    platform: dict[str, Any] = {
        "name": name,
        "found": found,
        "absent": bool(facts.get("absent")),
        "reason": facts.get("error") or _failure(answer),
        "version": facts.get("version", ""),
        "library": facts.get("library", ""),
        "found_by": facts.get("found_by", ""),
        "devices": [],
        "direct_storage": [],
    }
    if not found:
        return platform
    for index in range(facts["device_count"]):
        measured = ask(_PROBE, ["measure", name, str(index), probe_path, *folders], timeout_s)
        failure = measured.facts.get("error") or _failure(measured)
        told = {key: value for key, value in measured.facts.items() if key not in _OWN}
        platform["devices"].append({"index": index, **told, "failure": failure})
    kernel = read_kernel_support(host) if places else None
    for place in places:
        assert kernel is not None
        verdict = judge_direct_storage(name, platform["version"], place, kernel)
        platform["direct_storage"].append(
            {
                "path": str(place.path),
                "name": verdict.name,
                "usable": verdict.usable,
                "reasons": list(verdict.reasons),
            }
        )
    return platform


_OWN = ("error", "absent")


def _failure(answer: Answer) -> str:
    return answer.failure or ("" if answer.facts else "it told nothing")


def _torch_findings(answer: Answer) -> Iterator[Finding]:
    facts = answer.facts
    failure = facts.get("error") or answer.failure
    version = str(facts.get("torch") or "not installed")
    if failure:
        hint = "install torch for the platform that you use"
        yield Finding(Level.WARN, "torch", version, f"importing it fails: {failure}", hint)
        return
    built = "neither CUDA nor ROCm"
    if facts.get("hip"):
        built = f"ROCm {facts['hip']}"
    elif facts.get("cuda"):
        built = f"CUDA {facts['cuda']}"
    seen = facts.get("cuda_error") or f"it sees {_count(facts.get('cuda_devices', 0))}"
    reason = f"built for {built}" + (f"; {seen}" if facts.get("hip") or facts.get("cuda") else "")
    yield Finding(Level.OK, "torch", version, reason)
    if facts.get("torch_npu") is None:
        return
    version = str(facts["torch_npu"])
    if "npu_error" in facts:
        yield Finding(
            Level.WARN,
            "torch_npu",
            version,
            f"importing it fails: {facts['npu_error']}",
            "install CANN and source its set_env.sh; without it set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0, or `import torch` fails too",
        )
        return
    yield Finding(Level.OK, "torch_npu", version, f"it sees {_count(facts['npu_devices'])}")


def _platform_findings(platform: dict[str, Any]) -> Iterator[Finding]:
    name = platform["name"]
    if platform["absent"]:
        yield Finding(Level.INFO, name, "none", platform["reason"])
        return
    if not platform["found"]:
        yield Finding(
            Level.WARN,
            name,
            "does not work",
            platform["reason"],
            "try the vendor's own tool (rocminfo, nvidia-smi, npu-smi info)",
        )
        return
    version = platform["version"] or "version unknown"
    value = f"{version}, {_count(len(platform['devices']))}"
    yield Finding(Level.OK, name, value, f"{platform['library']} ({platform['found_by']})")
    for device in platform["devices"]:
        yield from _device_findings(device)
    for judged in platform["direct_storage"]:
        yield _direct_storage_finding(judged)


def _device_findings(device: dict[str, Any]) -> Iterator[Finding]:
    label = f"  device {device['index']}"
    if "total_bytes" not in device:
        hint = "see the vendor's own tool; another process may hold the device"
        yield Finding(Level.WARN, label, "does not open", device["failure"], hint)
        return
    yield Finding(Level.OK, label, ", ".join(_facts(device)))
    ring = device.get("ring")
    if ring is None:
        yield Finding(Level.WARN, "    pinned memory", "none", device["failure"])
        return
    size = f"{ring['size_bytes'] >> 20} MiB"
    if not ring["pinned"]:
        yield Finding(
            Level.WARN,
            "    pinned memory",
            f"{size} not registered",
            f"{ring['reason']}; copies then wait for the host",
            _MEMLOCK_HINT if "MEMLOCK" in ring["reason"] else "",
        )
    else:
        node = "" if ring["numa_node"] is None else f", NUMA node {ring['numa_node']}"
        how = "registered" if ring["method"] == "registered" else "from the runtime"
        yield Finding(Level.OK, "    pinned memory", f"{size} {how}{node}", ring["reason"])
    if ring["takes_direct_reads"] is False:
        reason = "a direct read into it failed; reads then go through the page cache"
        yield Finding(Level.WARN, "    direct reads into it", "refused", reason)
    elif ring["takes_direct_reads"]:
        yield Finding(Level.OK, "    direct reads into it", "work")
    rate = device.get("bytes_per_s")
    if rate is None:
        yield Finding(Level.WARN, "    copy to the device", "not measured", device["failure"])
    else:
        yield Finding(Level.OK, "    copy to the device", f"{rate / 1e9:.1f} GB/s")


def _facts(device: dict[str, Any]) -> Iterator[str]:
    yield device["name"] or "unnamed"
    yield f"{device['free_bytes'] / 1e9:.1f} of {device['total_bytes'] / 1e9:.1f} GB free"
    if device["pci_bus"]:
        yield device["pci_bus"]
    if device["numa_node"] is not None:
        yield f"NUMA node {device['numa_node']}"


def _direct_storage_finding(judged: dict[str, Any]) -> Finding:
    reasons = "; ".join(judged["reasons"])
    if judged["usable"]:
        reason = f"{reasons}; fxload does not use it: it copies from pinned memory"
        return Finding(Level.INFO, f"  {judged['name']}", "possible here", reason)
    reason = f"{reasons}; fxload copies from pinned memory, which needs none of it"
    return Finding(Level.INFO, f"  {judged['name']}", "not usable here", reason)


def _count(devices: int) -> str:
    return f"{devices} device{'' if devices == 1 else 's'}"
