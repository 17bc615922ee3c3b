"""Say which kind of file system a path is on."""

from __future__ import annotations

import re
from pathlib import Path

SYSTEM_ROOT = Path("/")
NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda davfs gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2 "
    "orangefs panfs pvfs2 smb3 smbfs wekafs".split()
)
# Programs that serve files are mostly buckets and drives elsewhere; these are not.
LOCAL_FUSE = frozenset(
    f"fuse.{name}"
    for name in (
        "fuse-overlayfs lxcfs mergerfs ntfs-3g portal squashfuse squashfuse_ll "
        "unionfs-fuse vmware-vmblock"
    ).split()
)
MEMORY = frozenset(("tmpfs", "ramfs"))
_OCTAL = re.compile(r"\\([0-7]{3})")


def filesystem_of(path: str, *, root: Path = SYSTEM_ROOT) -> str | None:
    """Return the type of the file system a path is on, None where nobody says.

    By Linux's list of mounts; `root` stands for `/`.
    """
    real = str(Path(path).resolve())
    try:
        text = (root / "proc/self/mounts").read_text("utf-8", errors="replace")
    except OSError:
        return None
    found, longest = None, -1
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[1])
        # Of two mounts on the same point the later one is seen.
        if len(point) >= longest and _is_below(real, point):
            found, longest = fields[2], len(point)
    return found


def is_remote(filesystem: str) -> bool:
    """Say whether reading from such a file system goes over a network."""
    if filesystem in NETWORK:
        return True
    is_served = filesystem == "fuse" or filesystem.startswith("fuse.")
    return is_served and filesystem not in LOCAL_FUSE


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
