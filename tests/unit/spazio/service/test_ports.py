"""Which ports a pipeline gives to its services where others run."""

import socket

from schemas.sections.dashboard import Dashboard
from schemas.sections.placement import Extender
from schemas.settings import Settings
from spazio.service.composition.ports import Ports


def test_a_port_that_somebody_took_meanwhile_is_chosen_again_and_others_stay() -> None:
    ports = Ports(Settings(extender=Extender(port=0), dashboard=Dashboard(port=0)))
    extender, dashboard = (ports.sections[name].port for name in ("extender", "dashboard"))
    assert 0 < extender != dashboard > 0
    with socket.create_server(("127.0.0.1", dashboard)):
        for name in ("extender", "dashboard", "history"):
            ports.choose(name)
        assert ports.sections["extender"].port == extender
        assert ports.sections["dashboard"].port not in (extender, dashboard)
        chosen = ports.sections["dashboard"].port
    ports.choose("dashboard")
    assert ports.sections["dashboard"].port == chosen


def test_two_services_that_want_the_same_port_get_two() -> None:
    ports = Ports(Settings(extender=Extender(port=17_900), dashboard=Dashboard(port=17_900)))
    assert ports.sections["extender"].port != ports.sections["dashboard"].port
