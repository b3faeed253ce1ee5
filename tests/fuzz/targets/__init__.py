"""All targets by name; each is made when it is asked for, since some start a server."""

from collections.abc import Callable, Mapping

from tests.fuzz.session import Target
from tests.fuzz.targets import backups, containers, extender, files, messages, nodes, objects, pages, tables, texts

TARGETS: Mapping[str, Callable[[], Target]] = {
    "messages": messages.target,
    "proc": nodes.proc,
    "cgroup": nodes.cgroups,
    "containers": containers.target,
    "kube": objects.kube,
    "pod": objects.pod_file,
    "extender": extender.target,
    "replay": tables.target,
    "settings": texts.settings,
    "web": texts.web,
    "files": files.target,
    "backups": backups.target,
    "pages": pages.target,
}
