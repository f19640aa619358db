# Sourced by the scripts beside it: sets up what they need on a machine that has Python, a C++
# compiler and nothing else. Everything Python lands in a virtual environment in the checkout.
# shellcheck shell=bash

readonly TORCH_REQUIREMENT="torch==2.13.0"
# What the package's own build wants, and what the tests add to it.
readonly BUILD_PACKAGES=(pkg-config liburing-dev)
readonly TEST_PACKAGES=(libfuse3-dev fuse3 e2fsprogs xfsprogs squashfs-tools doctest-dev util-linux)
# A real HIP runtime with its headers (what else device tests compare with, they fetch themselves),
# and what runs the core's tests on 64-bit Arm.
readonly PLATFORM_PACKAGES=(libamdhip64-dev)
readonly AARCH64_PACKAGES=(g++-aarch64-linux-gnu qemu-user)

say() { printf '\n== %s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# system_packages NAME...: installs Debian packages that are missing, where that is possible.
system_packages() {
  local missing=() name
  if ! command -v dpkg-query >/dev/null; then
    printf 'not a Debian system: make sure that these, or what they hold, are here: %s\n' "$*" >&2
    return
  fi
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    printf 'missing packages, which only root can install (apt-get install %s): ' "${missing[*]}" >&2
    printf 'what needs them is left out\n' >&2
    return
  fi
  say "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null
}

# interpreter: sets PYTHON to a Python that can make environments and build extensions.
interpreter() {
  PYTHON=${PYTHON:-python3}
  command -v "$PYTHON" >/dev/null || die "no $PYTHON: install Python 3.10 or later, or set PYTHON"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$PYTHON is $("$PYTHON" -V): 3.10 or later is needed; set PYTHON"
  command -v c++ >/dev/null || die "no C++ compiler: install g++ or clang"
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || system_packages python3-venv
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$PYTHON cannot make virtual environments: install python3-venv"
  local header='import pathlib, sysconfig, sys
sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())'
  "$PYTHON" -c "$header" || system_packages python3-dev
  "$PYTHON" -c "$header" || die "$PYTHON has no headers: install python3-dev"
}

# once STAMP KEY COMMAND...: runs the command unless it succeeded before with the same key.
once() {
  local stamp=$1 key=$2
  shift 2
  [[ -f $stamp && $(<"$stamp") == "$key" ]] && return
  "$@"
  printf '%s\n' "$key" >"$stamp"
}

# fingerprint PATH...: a hash of the content of these files and folders.
fingerprint() {
  find "$@" -type f -not -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z |
    xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1
}

# environment FOLDER GROUP...: sets VENV: torch, the build's needs and dependency groups in it.
environment() {
  VENV=$PWD/$1
  shift
  interpreter
  [[ -x $VENV/bin/python ]] || "$PYTHON" -m venv "$VENV"
  local key
  key="$("$VENV/bin/python" -V) $TORCH_REQUIREMENT $* $(fingerprint pyproject.toml scripts/setup.sh)"
  once "$VENV/.requirements" "$key" install_requirements "$@"
}

install_requirements() {
  say "installing what Python needs into ${VENV##*/}"
  local pip=("$VENV/bin/python" -m pip --disable-pip-version-check install --quiet) group needs
  # Dependency groups came with pip 25.1.
  "${pip[@]}" --upgrade 'pip>=25.1'
  "${pip[@]}" "$TORCH_REQUIREMENT"
  mapfile -t needs < <("$VENV/bin/python" scripts/requirements.py)
  "${pip[@]}" "$TORCH_REQUIREMENT" "${needs[@]}"
  for group in "$@"; do
    "${pip[@]}" "$TORCH_REQUIREMENT" --group "$group"
  done
}

# install_package: builds the core and makes the checkout importable in VENV.
install_package() {
  once "$VENV/.package" "$(fingerprint native platforms CMakeLists.txt pyproject.toml)" build_package
}

build_package() {
  say "building fxload"
  # The environment's bin comes first: it holds cmake and ninja.
  PATH=$VENV/bin:$PATH "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet \
    --no-build-isolation --no-deps --editable . -C "build-dir=build/${VENV##*/}"
}
