"""Each check of the doctor against a machine made for it; none of them asks the machine that runs the tests."""

import asyncio
import contextlib
import json
import shutil
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bus import server
from producers import clock as grid
from schemas import settings as all_settings
from schemas.settings import Settings
from spazio import addresses, doctor, host, up
